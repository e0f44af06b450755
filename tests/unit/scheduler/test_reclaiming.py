"""Reclaims of the scheduler process: what others have borrowed comes back to a minimum with a right to it."""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.members import GATE, cache, drop, member, node, put, queue, root_key
from covey.api import core
from covey.scheduler.claims import Terms
from covey.scheduler.reservations import Limits
from oracle import quotas
from oracle.quotas import Taken, Tenant
from scheduler_loop import Loop, labels
from unit.scheduler.test_preempting import LATELY, WAITED, _owned, claim_of, unit

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


#: Queue, replicas that run, those of the minimum, priority.
RUNNING = st.lists(
    st.tuples(st.sampled_from("abd"), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4
)
#: Queue and replicas of a minimum that waits, priority: one of each queue, for a second one within the same nominal may
#: take the quota that the first one has made somebody give back.
WAITING = st.lists(
    st.tuples(st.sampled_from("abd"), st.integers(1, 3), st.integers(0, 2)),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each[0],
)
NOMINALS = st.fixed_dictionaries({name: st.integers(0, 5) for name in "abd"})
LIMITS = Limits(cluster=50, namespace=50, percent=100, claims=Terms(10**6))


class Story:
    """Units of three queues, of pods of half a node; victims end at once, and their successors wait."""

    def __init__(self, nominals: dict[str, int], running: list[Any], waiting: list[Any], spare: int) -> None:
        self.tenants = {name: Tenant(4 * nominal, borrow_minimums=True) for name, nominal in nominals.items()}
        self.slots = sum(count for _, count, _, _ in running) + spare
        nodes = [node(f"n{number}", labels=labels(), gpus=8) for number in range(self.slots // 2)]
        nodes += [node("last", labels=labels(), gpus=4)] if self.slots % 2 else []
        places = [each.metadata.name for each in nodes for _ in range(2)][: self.slots]
        made: list[Any] = [queue(n, 4 * count, cohort="c", borrowMinimums=True) for n, count in nominals.items()]
        for number, (name, count, least, priority) in enumerate(running):
            spots, places = tuple(places[:count]), places[count:]
            made += unit(
                f"r{number}", replicas=count, minimum=min(count, least), nodes=spots, queue=name, priority=priority
            )
        self.asked = {f"w{number}": each for number, each in enumerate(waiting)}
        for root, (name, count, priority) in self.asked.items():
            status = {"conditions": [WAITED]}
            made += unit(root, replicas=count, minimum=count, queue=name, priority=priority, status=status)
        self.loop = Loop(cache(*nodes, *made), limits=LIMITS)

    @property
    def taken(self) -> list[Taken]:
        ledger = self.loop.admission._quotas.ledger
        found = (each for name in self.tenants for each in ledger.charges_of(name))
        rank = {"": 0}
        return [
            Taken(each.queue, each.unit.name, each.member and each.member[1], sum(a for _, a in each.amounts),
                  each.priority, rank.get(each.since, 0))
            for each in found
        ]  # fmt: skip

    def pods_of(self, name: str) -> list[core.Pod]:
        return [each for each in self.loop.cache.index.pods() if each.metadata.name.startswith(f"{name}-")]

    async def turn(self) -> dict[str, str]:
        given = await self.loop.turn()
        for name, place in given.items():
            pod = self.loop.cache.pods.store["ns", name]
            put(self.loop.cache, replace(pod, spec=replace(pod.spec, node_name=place, scheduling_gates=())))
        return given

    def find_claims(self) -> list[tuple[str, core.Claim]]:
        found = ((root, claim_of(self.loop, root)) for root in self.asked)
        return [(root, each) for root, each in found if each is not None and each.purpose == "Reclaim"]

    def check(self, root: str, claim: core.Claim, *, alone: bool) -> None:
        """C2: all is borrowed; C4: a unit only where surplus would not do; L2: each is needed, if no other claim stands."""
        name, count, priority = self.asked[root]
        new, before = Taken(name, root, None, 4 * count, priority, 10**6), self.taken
        uids = [set(each.pods) for each in claim.victims]

        def without(gone: set[str]) -> tuple[list[Taken], int]:
            left = {each.metadata.uid for each in self.loop.cache.index.pods() if each.spec.node_name} - gone
            units = {
                each.namespace + each.name for each in claim.victims if set(each.pods) <= gone and each.kind == "Unit"
            }
            single = {(e.name, e.replica) for e in claim.victims if set(e.pods) <= gone and e.kind == "Replica"}
            kept = [e for e in before if "ns" + e.unit not in units and (e.unit, e.replica) not in single]
            return kept, self.slots - len(left)

        def suffices(gone: set[str]) -> bool:
            kept, free = without(gone)
            inside = sum(e.amount for e in quotas.within(self.tenants[name], kept, name) if e.replica is None)
            fits = inside + 4 * count <= self.tenants[name].nominal and 4 * count <= quotas.room(
                self.tenants, kept, name
            )
            return fits and free >= count

        every = set().union(*uids)
        others = [other for other, _ in self.find_claims() if other != root]
        promised = [Taken(q, other, None, 4 * n, p) for other in others for q, n, p in [self.asked[other]]]
        for each in (e for e in before if e not in without(every)[0]):
            assert quotas.must_give_way(self.tenants, [*before, *promised], new, each)
        if not alone:
            return
        assert suffices(every)
        assert all(not suffices(every - each) for each in uids)
        if any(each.kind == "Unit" for each in claim.victims):
            surplus = [e for e in before if e.replica is not None]
            surplus = [e for e in surplus if quotas.must_give_way(self.tenants, before, new, e)]
            kept = [e for e in before if e not in surplus]
            room = quotas.room(self.tenants, kept, name)
            free = self.slots - sum(e.amount for e in kept) // 4
            assert room < 4 * count or free < count

    def obey(self, claim: core.Claim) -> None:
        uids = {uid for each in claim.victims for uid in each.pods}
        for pod in [each for each in self.loop.cache.index.pods() if each.metadata.uid in uids]:
            drop(self.loop.cache, pod)
            name, number = pod.metadata.name.split("-")[0], int(pod.metadata.name.split("-")[2])
            put(self.loop.cache, _owned(member("decode", number + 100, root=name, gpus=4, gates=(GATE,))))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(NOMINALS, RUNNING, WAITING, st.integers(0, 3))
@example({"a": 0, "b": 2, "d": 2}, [("a", 1, 1, 0)], [("a", 1, 0), ("b", 2, 0)], 1)  # it borrowed what was kept
@example(
    {"a": 1, "b": 0, "d": 2}, [("b", 1, 1, 0)], [("a", 1, 0), ("b", 1, 1)], 0
)  # nobody told it that there was room
async def test_the_laws_of_reclaim(
    nominals: dict[str, int], running: list[Any], waiting: list[Any], spare: int
) -> None:
    """C2, C4 and L2 of each claim; C3: after few of them nobody with a right waits; C7: then nobody goes any more."""
    story = Story(nominals, running, waiting, spare)
    claims, idle = 0, 0
    for _ in range(40):
        while await story.turn():
            pass
        found = story.find_claims()
        claims += len(found)
        for root, claim in found:
            # Where several wait, one may have taken since what another's claim was made for.
            story.check(root, claim, alone=len(found) == len(story.asked) == 1)
        for _, claim in found:
            story.obey(claim)
        idle = 0 if found else idle + 1
        if idle == 3:
            break
        story.loop.now += 1200  # a search that found nothing is repeated later
        for root in story.asked if idle else ():
            story.loop.admission.mark(root_key(root))
    assert claims <= len(waiting) + 1
    assert not story.find_claims()
    for root, (name, count, priority) in story.asked.items():
        kept_for = [each for each in story.asked if (claim := claim_of(story.loop, each)) and claim.nodes]
        if any(pod.spec.node_name for pod in story.pods_of(root)) or kept_for:
            continue
        new, taken = Taken(name, root, None, 4 * count, priority, 10**6), story.taken
        kept = [each for each in taken if not quotas.must_give_way(story.tenants, taken, new, each)]
        inside = sum(e.amount for e in quotas.within(story.tenants[name], kept, name) if e.replica is None)
        free = story.slots - sum(each.amount for each in kept) // 4
        fits = 4 * count <= quotas.room(story.tenants, kept, name) and free >= count
        assert inside + 4 * count > story.tenants[name].nominal or not fits


async def test_held_room_is_charged_and_nobody_can_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge without pods has no step: others give way, or the hold ends by itself."""
    loop = world(*theirs(3), nodes=4, replicas=2, minimum=2)
    quotas = loop.admission._quotas
    real = quotas._enter

    def enter(root: Any, now: Any) -> None:
        held = [dataclass_replace(each, member=("decode", -1), since="~") for each in now if each.member is not None][
            :1
        ]
        real(root, (*now, *held))

    monkeypatch.setattr(quotas, "_enter", enter)
    claim = await refused(loop)
    assert claim is None or not claim.victims
    entry = loop.admission._books.shelf.entries[root_key("mine")]
    [right] = quotas.rights(entry)
    assert ("decode", -1) in {each.member for each in right.order}
