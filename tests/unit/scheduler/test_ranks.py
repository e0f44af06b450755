"""Patches go out by rank, decisions wait while many do, and a late pin looks at its node again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import GATE, cache, member, node, pod, put
from covey.kube.clock import SYSTEM
from covey.kube.turns import Turns
from covey.scheduler.commit import Committer, Placement
from covey.scheduler.ranks import RELEASE
from covey.scheduler.writer import Pinned, PodWriter
from scheduler_loop import settle, tree
from unit.scheduler.test_writer import Slow


async def test_releases_go_before_pins_and_pins_by_the_rank_of_their_gangs() -> None:
    api: Any = Slow()
    writer = PodWriter(api, in_flight=1, clock=SYSTEM)
    first = asyncio.create_task(writer.pin(member("decode", 0, gates=(GATE,)), "n1", {}, rank=(2, 0)))
    await settle()
    low = asyncio.create_task(writer.pin(member("low", 0, gates=(GATE,)), "n1", {}, rank=(2, 0)))
    high = asyncio.create_task(writer.pin(member("high", 0, gates=(GATE,)), "n1", {}, rank=(2, -1000)))
    released = asyncio.create_task(writer.release(member("gone", 0, pin="n1"), "NodeLost"))
    await settle()
    api.answer.set()
    await asyncio.gather(first, low, high, released)
    assert api.sent == ["root-decode-0-0", "root-gone-0-0", "root-high-0-0", "root-low-0-0"]


async def test_a_turn_that_was_given_to_a_task_that_is_cancelled_goes_to_the_next() -> None:
    turns = Turns(1)
    taken: list[str] = []

    async def work(name: str) -> None:
        async with turns.take((name,)):
            taken.append(name)

    async with turns.take(RELEASE):
        tasks = [asyncio.create_task(work(name)) for name in ("a", "b", "c")]
        await settle()
        tasks[1].cancel()
    tasks[0].cancel()  # its turn has come, and it does not know yet
    await asyncio.gather(*tasks, return_exceptions=True)
    assert taken == ["c"]
    async with turns.take(RELEASE):
        taken.append("free again")
    assert taken[-1] == "free again"


async def test_a_turn_that_lasts_too_long_is_not_counted_any_more_and_is_passed_on_once() -> None:
    turns, taken = Turns(1), list[str]()
    ends, begun = asyncio.Event(), asyncio.Event()

    async def work(name: str) -> None:
        async with turns.take((name,), 0.0):
            taken.append(name)
            if name == "b":
                begun.set()
            await ends.wait()

    tasks = [asyncio.create_task(work(name)) for name in ("a", "b")]
    await begun.wait()
    assert taken == ["a", "b"]
    ends.set()
    await asyncio.gather(*tasks)
    async with turns.take(("c",)):
        waiting = asyncio.create_task(work("d"))
        await settle()
        assert taken == ["a", "b"], "there is one turn, whatever became of the others"
    await waiting


@pytest.mark.parametrize(
    "spoilt",
    [
        node("n2", unschedulable=True),
        node("n2", taints=[{"key": "bad", "effect": "NoSchedule"}]),
        pod("thief", node="n2", gpus=8),
    ],
)
async def test_a_late_pin_looks_at_its_node_again(spoilt: Any) -> None:
    gated = [member("decode", number, gates=(GATE,), gpus=8) for number in range(2)]
    made = cache(node("n1"), node("n2"), *tree("root", replicas=0)[:2], *gated)
    api: Any = Slow()
    committer = Committer(made, PodWriter(api, in_flight=1, clock=SYSTEM))
    placements = [Placement(each, f"n{number}", {}) for number, each in enumerate(gated, start=1)]
    committer.assume(placements)
    course = asyncio.create_task(committer.commit(placements))
    await settle()
    put(made, spoilt)
    api.answer.set()
    committed = await course
    assert api.sent == [gated[0].metadata.name]
    assert committed.outcomes == {Pinned.DONE: 1, Pinned.DROPPED: 1}
    assert gated[1].metadata.uid not in made.capacity.assumed
