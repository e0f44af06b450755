"""Reclaims of the scheduler process: what others have borrowed comes back to a minimum with a right to it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from builders.members import GATE, cache, drop, member, node, put, queue, root_key
from covey.api import core
from scheduler_loop import Loop, labels

from .test_preempting import LATELY, WAITED, _owned, claim_of, unit

A, B = queue("a", 8, cohort="c"), queue("b", 8, cohort="c")


def world(*more: Any, nodes: int = 2, queues: tuple[Any, ...] = (A, B), **mine: Any) -> Loop:
    """A unit of ``b`` has 4 nominal and borrows; a minimum of ``a`` waits that asks for 4."""
    there = [node(f"n{number}", labels=labels()) for number in range(nodes)]
    wishes: dict[str, Any] = {"queue": "a", "status": {"conditions": [WAITED]}, **mine}
    replicas = wishes.pop("replicas", 1)
    minimum = wishes.pop("minimum", 1)
    mine_ = unit("mine", replicas=replicas, minimum=minimum, **wishes)
    return Loop(cache(*there, *queues, *more, *mine_))


def theirs(count: int = 4, name: str = "theirs", queue: str = "b", **more: Any) -> list[Any]:
    spots = tuple(f"n{number // 2}" for number in range(count))
    return unit(name, replicas=count, nodes=spots, queue=queue, **more)


def named(claim: core.Claim | None) -> list[tuple[str, str]]:
    return [(victim.kind, victim.name) for victim in claim.victims] if claim is not None else []


async def refused(loop: Loop) -> core.Claim | None:
    assert await loop.turn() == {}
    return claim_of(loop, "mine")


async def test_surplus_that_is_borrowed_gives_way_exactly_as_much_as_is_needed() -> None:
    claim = await refused(world(*theirs()))
    assert claim is not None
    assert (claim.purpose, named(claim)) == ("Reclaim", [("Replica", "theirs")])
    assert claim.message.startswith("takes back decode/")
    two = await refused(world(*theirs(), replicas=2, minimum=2))
    assert named(two) == [("Replica", "theirs")] * 2


async def test_nothing_within_nominal_gives_way() -> None:
    """Only two of the replicas are borrowed, and three would be needed (C2)."""
    claim = await refused(world(*theirs(), replicas=3, minimum=3))
    assert claim is None or not claim.victims


async def test_room_that_is_borrowed_gives_way_where_there_is_quota() -> None:
    """The quota is idle, the nodes are not: what is borrowed in another pool of the cohort gives its room."""
    third = queue("idle", 32, cohort="c", namespaces={})
    loop = world(*theirs(), queues=(A, B, third))
    claim = await refused(loop)
    assert claim is not None
    assert (claim.purpose, named(claim)) == ("Reclaim", [("Replica", "theirs")])
    assert loop.admission.decision(root_key("mine")).reason == "Infeasible"


async def test_a_unit_that_is_borrowed_whole_gives_way_after_all_surplus() -> None:
    greedy = queue("b", 0, cohort="c", borrowMinimums=True)
    loop = world(*theirs(2, minimum=2), nodes=1, queues=(A, greedy))
    assert named(await refused(loop)) == [("Unit", "theirs")]
    both = world(*theirs(2, minimum=1), nodes=1, queues=(A, greedy))
    assert named(await refused(both)) == [("Replica", "theirs")]


async def test_surplus_of_its_own_queue_gives_way_too() -> None:
    alone = queue("a", 8)
    loop = world(*theirs(2, queue="a"), nodes=1, queues=(alone,))
    assert named(await refused(loop)) == [("Replica", "theirs")]


@pytest.mark.parametrize("mine", [{"status": {"conditions": [LATELY]}}, {"preemption": {"delaySeconds": 10**9}}])
async def test_the_delay_counts(mine: dict[str, Any]) -> None:
    claim = await refused(world(*theirs(), **mine))
    assert claim is None or not claim.victims


async def test_priority_does_not_count_and_a_right_is_a_right() -> None:
    loop = world(*theirs(priority=100), priority=1)
    classes = loop.cache.priority_classes.store
    classes["", "priority-1"] = replace(classes["", "priority-1"], preemption_policy="Never")
    assert named(await refused(loop)) == [("Replica", "theirs")]


async def test_what_is_freed_is_not_borrowed_again_meanwhile() -> None:
    """One victim is gone and one still drains: neither its successor nor anybody else borrows the quota (L4)."""
    loop = world(*theirs(), nodes=4, replicas=2, minimum=2)
    claim = await refused(loop)
    assert claim is not None
    first = claim.victims[0]
    successor = _owned(member("decode", 7, root="theirs", gpus=4, gates=(GATE,)))
    put(loop.cache, successor)
    drop(loop.cache, next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in first.pods))
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("theirs")).reason == "OverQuota"
    drop(loop.cache, next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in claim.victims[1].pods))
    assert set(await loop.turn()) == {"mine-decode-0-0", "mine-decode-1-0"}
    assert await loop.turn() == {}


async def test_what_is_needed_no_longer_is_pardoned() -> None:
    loop = world(*theirs(), replicas=2, minimum=2)
    claim = await refused(loop)
    assert claim is not None
    assert len(claim.victims) == 2
    other = next(
        pod
        for pod in loop.cache.index.pods()
        if pod.metadata.name.startswith("theirs")
        and pod.metadata.uid not in {uid for victim in claim.victims for uid in victim.pods}
    )
    drop(loop.cache, other)
    loop.admission.mark(root_key("mine"))
    again = await refused(loop)
    assert again is not None
    assert len(again.victims) == 1


async def test_a_shrunk_nominal_evicts_nobody() -> None:
    loop = world(*theirs(2), replicas=1, nodes=4)
    assert set(await loop.turn()) == {"mine-decode-0-0"}
    put(loop.cache, queue("b", 0, cohort="c"))
    assert await loop.turn() == {}
    assert claim_of(loop, "mine") is None
    assert claim_of(loop, "theirs") is None
