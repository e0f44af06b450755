"""The room of lost pods: held for their successors, against gangs and ordinary pods, for a time."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups
from covey.api import core
from covey.api.constants import ANNOTATION_ROOM
from covey.scheduler.holding import SUCCESSOR
from scheduler_loop import Loop, labels, tree

HOLD = {"holdSeconds": 60}


def replica_of(root: str, *places: str, size: int = 1, replicas: int = 1, **spec: Any) -> list[core.Group | core.Pod]:
    """A unit of one role whose pods are bound to these nodes."""
    found: list[core.Group | core.Pod] = [
        group(root, composite=True, minimum=1, desired=1, **{**HOLD, **spec}),
        *role_groups("decode", replicas=replicas, minimum=1, size=size, root=root),
    ]
    found += [
        member("decode", *divmod(number, size), size=size, root=root, node=place, gpus=8)
        for number, place in enumerate(places)
    ]
    return found


def successor(root: str, number: int = 0, *, size: int = 1, room: str = "", **more: Any) -> core.Pod:
    """The pod after a pod that was lost."""
    replica, index = divmod(number, size)
    notes = {ANNOTATION_ROOM: room} if room else {}
    name = f"{root}-decode-{replica}-{index}-again"
    return member(
        *("decode", replica, index), size=size, root=root, name=name, gates=(GATE,), gpus=8, annotations=notes, **more
    )


def lose(loop: Loop, root: str, number: int = 0, *, size: int = 1) -> None:
    replica, index = divmod(number, size)
    drop(loop.cache, loop.cache.pods.store["ns", f"{root}-decode-{replica}-{index}"])


def held(loop: Loop) -> set[tuple[str, str]]:
    """Nodes and roots of what is held."""
    return {(hold.node, root.name) for root, holds in loop.holding._holds.items() for hold in holds.values()}


def pass_until(loop: Loop, second: float) -> None:
    """What is held for no longer is let go."""
    loop.now = second
    loop.holding.expire()


async def test_room_without_a_successor_is_held_for_seconds() -> None:
    """Its successor is denied, by quota or by a policy, or nobody is there to make it."""
    loop = Loop(cache(node("n1"), *replica_of("run", "n1", holdSeconds=3600), *tree("a-older")))
    await loop.turn()
    lose(loop, "run")
    pass_until(loop, SUCCESSOR)
    assert held(loop) == set()
    assert await loop.turn() == {"a-older-decode-0-0": "n1"}


async def test_room_whose_successor_has_gone_is_held_for_seconds() -> None:
    loop = Loop(cache(node("n1"), *replica_of("run", "n1")))
    lose(loop, "run")
    waits = successor("run")
    put(loop.cache, waits)
    pass_until(loop, SUCCESSOR)
    assert held(loop) == {("n1", "run")}
    drop(loop.cache, waits)
    pass_until(loop, 2 * SUCCESSOR)
    assert held(loop) == set()


async def test_successors_may_be_made_after_the_last_pod_of_the_replica_is_gone() -> None:
    loop = Loop(cache(node("n1"), node("n2"), *replica_of("run", "n1", "n2", size=2)))
    put(loop.cache, member("decode", 0, 1, size=2, root="run", node="n2", gpus=8, deleted=True))
    lose(loop, "run", 0, size=2)
    pass_until(loop, SUCCESSOR)
    assert held(loop) == {("n1", "run")}


async def test_what_is_scaled_down_is_not_held() -> None:
    loop = Loop(cache(node("n1"), node("n2"), *replica_of("run", "n1", "n2", replicas=2), *tree("a-older")))
    await loop.turn()
    lose(loop, "run", 1)
    assert held(loop) == {("n2", "run")}
    before = loop.cache.index.leaf_of(loop.cache.pods.store["ns", "run-decode-0-0"])
    assert before is not None
    smaller = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, desired_count=1))
    put(loop.cache, smaller, before)
    assert held(loop) == set()
    assert await loop.turn() == {"a-older-decode-0-0": "n2"}


async def test_a_replica_gets_back_what_its_pods_give_up_one_after_another() -> None:
    """The second pod of the replica still ends while the room of the first is free already."""
    loop = Loop(cache(node("n1"), node("n2"), *replica_of("run", "n1", "n2", size=2), *tree("a-older")))
    await loop.turn()
    put(loop.cache, member("decode", 0, 1, size=2, root="run", node="n2", gpus=8, deleted=True))
    lose(loop, "run", 0, size=2)
    for number in range(2):
        put(loop.cache, successor("run", number, size=2))
    assert await loop.turn() == {}
    lose(loop, "run", 1, size=2)
    assert held(loop) == {("n1", "run"), ("n2", "run")}
    got = await loop.turn()
    assert set(got) == {"run-decode-0-0-again", "run-decode-0-1-again"}
    assert not loop.cache.capacity.is_overcommitted("n1")
    assert held(loop) == set()


async def test_room_elsewhere_helps_a_unit_for_which_some_is_held() -> None:
    """Its own hold counts as taken for all others, but not for the question whether a change can help it."""
    world = [node("n1"), node("n2"), node("n3", labels=labels())]
    blocked = pod("occupant", node="n3", gpus=8)
    loop = Loop(cache(*world, blocked, *replica_of("run", "n1", "n2", size=2)))
    put(loop.cache, member("decode", 0, 1, size=2, root="run", node="n2", gpus=8, deleted=True))
    lose(loop, "run", 0, size=2)
    for number in range(2):
        put(loop.cache, successor("run", number, size=2))
    assert await loop.turn() == {}
    drop(loop.cache, blocked)
    assert set((await loop.turn()).values()) == {"n1", "n3"}


async def test_a_hold_gives_way_to_what_is_bound_by_others() -> None:
    loop = Loop(cache(node("n1"), *replica_of("run", "n1")))
    lose(loop, "run")
    put(loop.cache, pod("stranger", node="n1", gpus=1))
    assert held(loop) == set()
    assert not loop.cache.capacity.is_overcommitted("n1")


async def test_what_kube_scheduler_has_evicted_for_somebody_is_not_held() -> None:
    """A pod that was preempted: kube-scheduler's pod is nominated there before its victims are gone."""
    loop = Loop(cache(node("n1"), *replica_of("run", "n1")))
    winner = pod("winner", gpus=8)
    nominated = msgspec.structs.replace(winner.status, nominated_node_name="n1")
    put(loop.cache, msgspec.structs.replace(winner, status=nominated))
    lose(loop, "run")
    assert held(loop) == set()


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["lose", "succeed", "gang", "end", "stranger", "wait", "node"]), st.integers(0, 5)),
    max_size=25,
)


@given(operations=OPERATIONS)
async def test_whatever_happens_nothing_is_over_committed_or_left_over(operations: list[tuple[str, int]]) -> None:
    names = [f"n{number}" for number in range(3)]
    loop = Loop(cache(*map(node, names), *replica_of("run", *names, replicas=3)))
    capacity = loop.cache.capacity
    for step, (what, number) in enumerate(operations):
        match what:
            case "lose":
                found = [each for each in loop.cache.pods.store.values() if "-decode-" in each.metadata.name]
                if number < len(found):
                    drop(loop.cache, found[number])
            case "succeed":
                put(loop.cache, successor("run", number % 3, room=names[number % 3]))
            case "gang":
                for each in tree(f"other{step}", gpus=4):
                    put(loop.cache, each)
            case "end":
                found = [each for each in loop.cache.pods.store.values() if each.metadata.name.startswith("other")]
                for each in found[:number]:
                    drop(loop.cache, each)
            case "stranger":
                place = names[number % 3]
                if capacity.room.free(place).get("nvidia.com/gpu", 0) >= 2:
                    put(loop.cache, pod(f"stranger{step}", node=place, gpus=2))
            case "wait":
                loop.now += 20.0 * number
                loop.holding.expire()
            case "node":
                put(loop.cache, node(names[number % 3], ready=number < 3))
        loop.bind(await loop.turn())
        assert not any(map(capacity.is_overcommitted, names)), (what, number)
    loop.now += 1000.0
    loop.holding.expire()
    assert held(loop) == set()
    pods = {each.metadata.uid for each in loop.cache.pods.store.values()}
    assert all(key in pods for keys in capacity.reserved.values() for key in keys)
    for inventory in (capacity.room, capacity.planned):
        assert all(key in pods for state in inventory.nodes.values() for key in state.held)
