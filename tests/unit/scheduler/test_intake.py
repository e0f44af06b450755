"""No more is pinned than the barrier can hold, and nobody's gangs take all of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from builders.members import cache, drop, group, member, node, put, root_key
from covey.api import core
from covey.scheduler.barrier_limit import GATHER, Intake
from scheduler_loop import Loop, tree
from virtual_time import virtual

MOST = 8
NODES = [node(f"n{each}") for each in range(32)]


def loop_of(*objects: Any) -> Loop:
    loop = Loop(cache(*NODES, *objects))
    [intake] = [plugin for plugin in loop.admission.plugins if isinstance(plugin, Intake)]
    intake.most = MOST
    return loop


def pinned(name: str, number: int, place: str, **more: Any) -> core.Pod:
    return member("decode", number, root=name, pin=place, gpus=8, **more)


def elsewhere(thing: Any) -> Any:
    """The same object in another namespace."""
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, namespace="other"))


async def take(loop: Loop, name: str) -> int:
    """One pass; the watch shows its pins. How many of a unit's pods got one."""
    placed = await loop.turn()
    for pod, place in placed.items():
        root, _, number, _ = pod.rsplit("-", 3)
        put(loop.cache, pinned(root, int(number), place))
    return sum(pod.startswith(f"{name}-") for pod in placed)


@virtual
async def test_what_was_held_up_goes_when_pins_are_gone_too() -> None:
    loop = loop_of(*tree("a", replicas=5, minimum=5), *tree("b", replicas=5, minimum=5))
    assert await take(loop, "a") == 5
    assert await take(loop, "b") == 0
    for number in range(5):
        found = loop.cache.index.pod(f"uid-a-decode-{number}-0")
        assert found is not None
        drop(loop.cache, found)
    await asyncio.sleep(2 * GATHER)
    assert await take(loop, "b") == 5


async def test_small_gangs_do_not_pass_a_large_one_for_ever() -> None:
    loop = loop_of(*tree("a", replicas=3, minimum=3), *map(elsewhere, tree("large", replicas=6, minimum=6)))
    assert await take(loop, "a") == 3
    assert not any(pod.startswith("large") for pod in loop.writer.pinned)
    for name, priority in (("small", 0), ("urgent", 5)):
        for each in map(elsewhere, tree(name, replicas=2, minimum=2, priority=priority)):
            put(loop.cache, each)
    assert {pod.partition("-")[0] for pod in await loop.turn()} == {"urgent"}


async def test_a_minimum_beyond_the_barrier_says_so() -> None:
    loop = loop_of(*tree("big", replicas=9, minimum=9), group("unrelated"))
    assert await take(loop, "big") == 0
    assert "9 pods" in loop.queue.decision(root_key("big")).message
    assert "at most 8" in loop.queue.decision(root_key("big")).message
