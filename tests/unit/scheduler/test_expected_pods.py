"""Pods of a suspended Job are planned before they exist, and come where they were expected."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import structs

from builders.members import GATE, cache, drop, group, node, pod, put, root_key
from covey.api import core
from covey.api.annotations import Expected, dump_expected
from scheduler_loop import Loop, tree
from virtual_time import virtual

OWNER = {"kind": "Job", "name": "train", "uid": "job", "controller": True}
TRAIN = root_key("train", composite=False)


def member(number: int, *, gpus: int = 4) -> core.Pod:
    """A pod of the Job."""
    return pod(f"train-{number}", group="train", gates=(GATE,), gpus=gpus, owner=OWNER)


def suspended(minimum: int = 2, **expected: Any) -> core.Group:
    """The PodGroup of a Job that has no pods yet."""
    like = core.Pod(core.Meta(), member(0).spec)
    made = group("train", minimum=minimum, owner=OWNER)
    notes = {"scheduling.covey.dev/expected": dump_expected(Expected(**{"pod": like, **expected})) or ""}
    return structs.replace(made, metadata=structs.replace(made.metadata, annotations=notes))


@virtual
async def test_pods_when_they_are_expected_have_places_reserved_that_nobody_else_gets() -> None:
    made = cache(suspended(), node("n1"))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.queue.decision(TRAIN).reason == "Reserved"
    for each in tree("other"):
        put(made, each)
    assert await loop.turn() == {}
    assert loop.queue.decision(root_key("other")).reason == "Infeasible"
    put(made, member(0))
    assert await loop.turn() == {}, "its mate is not there yet"
    put(made, member(1))
    assert await loop.turn() == {"train-0": "n1", "train-1": "n1"}


@virtual
async def test_pods_when_they_are_otherwise_than_expected_are_planned_anew() -> None:
    made = cache(suspended(), node("n1"), node("n2"))
    loop = Loop(made)
    await loop.turn()
    for number in range(2):
        put(made, member(number, gpus=8))
    assert set((await loop.turn()).values()) == {"n1", "n2"}


@virtual
async def test_places_when_nobody_creates_their_pods_are_free_again_and_reserved_later() -> None:
    made = cache(suspended(), node("n1"))
    loop = Loop(made)
    await loop.turn()

    await asyncio.sleep(61)
    await loop.turn()
    decision = loop.queue.decision(TRAIN)
    assert (decision.reason, "were not created" in decision.message) == ("Waiting", True)
    for each in tree("other"):
        put(made, each)
    assert await loop.turn() == {"other-decode-0-0": "n1"}


@virtual
async def test_group_when_its_pods_are_not_asked_for_yet_says_why_and_has_none() -> None:
    made = cache(suspended(waits="quota ns/few: pods 2 needed, 1 left", reason="QuotaExceeded"), node("n1"))
    loop = Loop(made)
    await loop.turn()
    decision = loop.queue.decision(TRAIN)
    assert (decision.reason, decision.message) == ("QuotaExceeded", "quota ns/few: pods 2 needed, 1 left")
    assert not made.capacity.assumed


@virtual
async def test_reservation_when_the_group_goes_goes_with_it() -> None:
    made = cache(suspended(), node("n1"))
    loop = Loop(made)
    await loop.turn()
    assert made.capacity.assumed
    drop(made, suspended())
    assert not made.capacity.assumed


@virtual
async def test_expectation_when_it_is_beyond_what_the_barrier_holds_is_none() -> None:
    """Anybody who may write groups could have the process make millions of pods."""
    made = cache(suspended(minimum=10**9), node("n1"))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.queue.decision(TRAIN).reason == "Waiting"
