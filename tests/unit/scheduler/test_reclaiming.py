"""Reclaims of the scheduler process: what others have borrowed comes back to a minimum with a right to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.members import GATE, cache, drop, member, node, put, queue, root_key
from covey.admission.nodes import Key
from covey.api import core
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.reservations import Limits
from oracle import quotas
from oracle.quotas import Taken, Tenant
from scheduler_loop import Loop, labels
from unit.scheduler.test_preempting import LATELY, WAITED, _owned, unit

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
    return loop.claim("mine")


async def test_room_that_is_borrowed_gives_way_where_there_is_quota() -> None:
    """The quota is idle, the nodes are not: what is borrowed in another pool of the cohort gives its room."""
    third = queue("idle", 32, cohort="c", namespaces={})
    loop = world(*theirs(), queues=(A, B, third))
    claim = await refused(loop)
    assert claim is not None
    assert (claim.purpose, named(claim)) == ("Reclaim", [("Replica", "theirs")])
    assert claim.message.startswith("takes back decode/")
    assert loop.queue.decision(root_key("mine")).reason == "Infeasible"


async def test_minimum_when_its_node_is_gone_takes_back_nodes_while_capacity_is_held_for_it() -> None:
    """What is held for it is charged to it, and is no use of its nominal by anybody else."""
    idle = queue("idle", 32, cohort="c", namespaces={})
    loop = world(node("away", labels=labels()), *theirs(), queues=(queue("a", 4, cohort="c"), B, idle), holdSeconds=60)
    lost = _owned(member("decode", 0, root="mine", gpus=4, node="away", name="mine-before", gates=()))
    put(loop.cache, lost)
    await loop.turn()
    drop(loop.cache, loop.cache.nodes.store["", "away"])
    drop(loop.cache, lost)
    claim = await refused(loop)
    assert claim is not None
    assert (claim.purpose, named(claim)) == ("Reclaim", [("Replica", "theirs")])


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
    assert loop.queue.decision(root_key("theirs")).reason == "OverQuota"
    drop(loop.cache, next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in claim.victims[1].pods))
    assert set(await loop.turn()) == {"mine-decode-0-0", "mine-decode-1-0"}
    assert await loop.turn() == {}


def forsake(loop: Loop) -> None:
    """Delete the unit that waits first, with its claim."""
    drop(loop.cache, next(each for each in loop.cache.index.pods() if each.metadata.name.startswith("mine-")))
    drop(loop.cache, loop.cache.index.root(root_key("mine")))


async def test_claim_when_one_that_it_rests_on_is_over_takes_what_it_lacks_beside_its_own() -> None:
    """The first takes twice what it needs, and the second counts on the rest, until the first is deleted."""
    queues = (queue("a", 4, cohort="c"), queue("b", 12, cohort="c"), queue("z", 0, cohort="c", borrowMinimums=True))
    full = [*theirs(2, "r", "z", minimum=2), *unit("s", replicas=2, minimum=2, nodes=("n1", "n1"), queue="z")]
    loop = world(*full, nodes=6, queues=queues, priority=1)
    for each in unit("next", replicas=3, minimum=3, queue="b", status={"conditions": [WAITED]}):
        put(loop.cache, each)
    assert len(named(await refused(loop))) == len(named(loop.claim("next"))) == 1
    forsake(loop)
    await loop.turn()
    assert sorted(named(loop.claim("next"))) == [("Unit", "r"), ("Unit", "s")]


async def test_claim_when_one_that_it_rests_on_is_over_takes_what_suffices_without_it() -> None:
    """The same where nothing comes free on nodes, so that nobody is looked at for that."""
    queues = (queue("a", 8, cohort="c"), queue("b", 12, cohort="c"), queue("z", 0, cohort="c", borrowMinimums=True))
    full = unit("large", replicas=3, minimum=3, nodes=("n1", "n1", "half"), queue="z")
    full += theirs(2, "small", "z", minimum=2, priority=1)
    halves = (node(name, labels=labels(), gpus=4) for name in ("half", "free"))
    loop = world(*halves, *full, queues=queues, priority=2, gpus=8)
    for each in unit("next", replicas=3, minimum=3, queue="b", status={"conditions": [WAITED]}):
        put(loop.cache, each)
    assert named(await refused(loop)) == [("Unit", "large")]
    assert named(loop.claim("next")) == [("Unit", "small")]
    forsake(loop)
    await loop.turn()
    assert named(loop.claim("next")) == [("Unit", "large")]


@pytest.mark.parametrize(("priority", "mine", "gets"), [(0, "a", False), (5, "a", True), (0, "b", False)])
async def test_what_is_freed_is_for_nobody_behind_in_the_order(priority: int, mine: str, *, gets: bool) -> None:
    """Another minimum within nominal finds a node and the quota of the first victim: it gets them if it is before (L4)."""
    loop = world(*theirs(queue="z"), nodes=4, queues=(A, B, queue("z", 0, cohort="c")), replicas=2, minimum=2)
    claim = await refused(loop)
    assert claim is not None
    for each in unit("next", replicas=1, queue=mine, priority=priority, status={"conditions": [LATELY]}):
        put(loop.cache, each)
    drop(loop.cache, next(pod for pod in loop.cache.index.pods() if pod.metadata.uid in claim.victims[0].pods))
    assert set(await loop.turn()) == ({"next-decode-0-0"} if gets else set())


#: Queue, replicas that run, those of the minimum, priority.
RUNNING = st.lists(
    st.tuples(st.sampled_from("abd"), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4
)
#: Queue and replicas of a minimum that waits, priority.
WAITING = st.lists(st.tuples(st.sampled_from("abd"), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=4)
NOMINALS = st.fixed_dictionaries({name: st.integers(0, 5) for name in "abd"})
LIMITS = Limits(cluster=50, namespace=50, percent=100, claims=ClaimBounds(10**6))


class Story:
    """Units of three queues, of pods of half a node; victims end at once, and their successors wait."""

    def __init__(self, nominals: dict[str, int], running: list[Any], waiting: list[Any], spare: int) -> None:
        self.tenants = {name: Tenant(4 * nominal, borrow_minimums=True) for name, nominal in nominals.items()}
        self.slots = sum(count for _, count, _, _ in running) + spare
        nodes = [node(f"n{number}", labels=labels(), gpus=8) for number in range(self.slots // 2)]
        nodes += [node("last", labels=labels(), gpus=4)] if self.slots % 2 else []
        self.sizes = {each.metadata.name: 1 if each.metadata.name == "last" else 2 for each in nodes}
        places = [each.metadata.name for each in nodes for _ in range(2)][: self.slots]
        made: list[Any] = [queue(n, 4 * count, cohort="c", borrowMinimums=True) for n, count in nominals.items()]
        for number, (name, count, least, priority) in enumerate(running):
            spots, places = tuple(places[:count]), places[count:]
            made += unit(
                f"r{number}", replicas=count, minimum=min(count, least), nodes=spots, queue=name, priority=priority
            )
        #: Queue, replicas and priority of the minimum of each unit: those that run ask for theirs once they gave way.
        self.asked = {f"r{number}": (name, min(count, least), priority)
                      for number, (name, count, least, priority) in enumerate(running)}  # fmt: skip
        for number, (name, count, priority) in enumerate(waiting):
            root = f"w{number}"
            self.asked[root] = (name, count, priority)
            status = {"conditions": [WAITED]}
            made += unit(root, replicas=count, minimum=count, queue=name, priority=priority, status=status)
        self.loop = Loop(cache(*nodes, *made), limits=LIMITS)
        self.claims = 0
        self.loop.judge_claims(self.check)

    @property
    def taken(self) -> list[Taken]:
        ledger = self.loop.quotas.ledger
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
        """One pass. What it gives away is promised to nobody but those who are behind (L4)."""
        before, served = dict(self.find_claims()), set(filter(self.is_placed, self.asked))
        given = await self.loop.turn()
        self.loop.bind(given)
        placed = {name.split("-")[0] for name in given}
        for root, claim in self.find_claims():
            ahead = any(self.rank(each) < self.rank(root) for each in placed - served)
            if claim.purpose == "Reclaim" and root in before and not ahead and not placed <= {root}:
                assert self.has_quota(root, {uid for each in claim.victims for uid in each.pods}), (root, given)
        return given

    def is_placed(self, root: str) -> bool:
        return any(pod.spec.node_name for pod in self.pods_of(root))

    def rank(self, root: str) -> tuple[int, str]:
        """The place of a waiting minimum among others."""
        return -self.asked[root][2], root

    def find_claims(self) -> list[tuple[str, core.Claim]]:
        found = ((root, self.loop.claim(root)) for root in self.asked)
        return [(root, each) for root, each in found if each is not None and each.victims]

    def charge_of(self, root: str) -> Taken:
        """The charge that a waiting minimum would be."""
        name, count, priority = self.asked[root]
        return Taken(name, root, None, 4 * count, priority, 10**6)

    def without(self, gone: set[str], before: list[Taken]) -> list[Taken]:
        """Charges without those of some pods: of a minimum with the first of its pods."""
        left = [each for each in self.loop.cache.index.pods() if each.metadata.uid in gone]
        single = {(e.metadata.name.split("-")[0], int(e.metadata.name.split("-")[2])) for e in left}
        units = {unit for unit, number in single if not any((e.unit, e.replica) == (unit, number) for e in before)}
        return [
            e for e in before if (e.unit, e.replica) not in single and (e.unit not in units or e.replica is not None)
        ]

    def promises(self, root: str) -> tuple[set[str], list[Taken]]:
        """The victims of the claims that are before a minimum's in the order, and what is promised to these."""
        before = [(other, claim) for other, claim in self.find_claims() if self.rank(other) < self.rank(root)]
        gone = {uid for _, claim in before for each in claim.victims for uid in each.pods}
        return gone, [self.charge_of(other) for other, _ in before]

    def has_quota(self, root: str, gone: set[str]) -> bool:
        """Whether a minimum is within nominal once these pods are gone, beside what is promised to those before it."""
        new, (others, promised) = self.charge_of(root), self.promises(root)
        kept = [*self.without(gone | others, self.taken), *promised]
        inside = sum(e.amount for e in quotas.within(self.tenants[new.queue], kept, new.queue) if e.replica is None)
        return inside + new.amount <= self.tenants[new.queue].nominal and new.amount <= quotas.room(
            self.tenants, kept, new.queue
        )

    def has_room(self, root: str, gone: set[str]) -> bool:
        """Whether there are places once these pods are gone, on nodes that are kept for nobody before it who takes too."""
        kept = self.loop.reservations._kept.items()
        closed = {
            node
            for other, each in kept
            if each.takes and (-each.gang.priority, other.name) < self.rank(root)
            for node in each.nodes
        }
        free = sum(count for node, count in self.sizes.items() if node not in closed)
        capacity = self.loop.cache.capacity
        for pod in self.loop.cache.index.pods():
            place = pod.spec.node_name or capacity.assumed.get(pod.metadata.uid)
            free -= place is not None and place not in closed and pod.metadata.uid not in gone
        return free >= self.asked[root][1]

    def check(self, key: Key, claim: core.Claim, _asked: Any) -> None:
        """C2: all is borrowed; L1 and L2: it suffices, and each is needed; C4: a unit only where surplus would not do."""
        if claim.purpose != "Reclaim":
            return
        root = key.name
        self.claims += 1
        uids = [set(each.pods) for each in claim.victims]
        every, (others, promised) = set().union(*uids), self.promises(root)
        before = [*self.without(others, self.taken), *promised]
        left = self.without(every, before)
        new = self.charge_of(root)
        for each in (e for e in before if e not in left):
            assert quotas.must_give_way(self.tenants, before, new, each)

        def suffices(gone: set[str]) -> bool:
            return self.has_quota(root, gone) and self.has_room(root, gone)

        assert suffices(every)
        assert claim.unproven or all(not suffices(every - each) for each in uids)
        if any(each.kind == "Unit" for each in claim.victims):
            surplus = {
                pod.metadata.uid
                for e in before
                if e.replica is not None and quotas.must_give_way(self.tenants, before, new, e)
                for pod in self.pods_of(e.unit)
                if int(pod.metadata.name.split("-")[2]) == e.replica and pod.metadata.uid not in others
            }
            assert not suffices(surplus)

    def check_standing(self, root: str, claim: core.Claim) -> None:
        """L1 and L2 of a claim that is about to be obeyed, beside all others: nobody goes for nothing."""
        uids = [set(each.pods) for each in claim.victims]
        if claim.purpose != "Reclaim" or not all(map(self.loop.cache.index.pod, set().union(*uids))):
            return

        def suffices(gone: set[str]) -> bool:
            return self.has_quota(root, gone) and self.has_room(root, gone)

        assert suffices(set().union(*uids))
        assert claim.unproven or all(not suffices(set().union(*uids) - each) for each in uids)

    def obey(self, claim: core.Claim) -> bool:
        """Let its victims go; False where they are gone already."""
        uids = {uid for each in claim.victims for uid in each.pods}
        going = [each for each in self.loop.cache.index.pods() if each.metadata.uid in uids]
        for pod in going:
            drop(self.loop.cache, pod)
            name, number = pod.metadata.name.split("-")[0], int(pod.metadata.name.split("-")[2])
            put(self.loop.cache, _owned(member("decode", number + 100, root=name, gpus=4, gates=(GATE,))))
        return bool(going)


@given(NOMINALS, RUNNING, WAITING, st.integers(0, 3))
@example({"a": 0, "b": 2, "d": 2}, [("a", 1, 1, 0)], [("a", 1, 0), ("b", 2, 0)], 1)  # it borrowed what was kept
@example(
    {"a": 1, "b": 0, "d": 2}, [("b", 1, 1, 0)], [("a", 1, 0), ("b", 1, 1)], 0
)  # nobody told it that there was room
@example(
    {"a": 3, "b": 2, "d": 1}, [("d", 3, 2, 0)], [("d", 1, 0), ("a", 1, 0), ("a", 2, 1)], 1
)  # it waited behind one of another queue that asks the same and may take nothing
@example(
    {"a": 3, "b": 0, "d": 2}, [("a", 1, 1, 0), ("b", 2, 2, 0)], [("a", 1, 0), ("b", 1, 0), ("a", 1, 0)], 0
)  # nodes were kept for the borrower that had given way
@example(
    {"d": 0, "a": 4, "b": 2}, [("b", 2, 4, 2), ("d", 2, 3, 0)], [("d", 3, 2), ("a", 2, 0), ("d", 2, 2), ("a", 3, 2)], 0
)  # a borrower of higher priority took nodes that were kept for a minimum within nominal
@example(
    {"a": 3, "b": 0, "d": 1}, [("a", 1, 1, 0), ("a", 2, 1, 0), ("b", 2, 2, 0)], [("a", 1, 0)], 0
)  # more was taken back than quota needed
@example(
    {"a": 1, "b": 1, "d": 0}, [("a", 1, 1, 0), ("a", 1, 1, 0)], [("a", 1, 1), ("b", 1, 0)], 1
)  # a claim by priority inside its queue stands beside it
@example(
    {"a": 2, "b": 2, "d": 0}, [("a", 2, 1, 0), ("a", 1, 1, 0)], [("a", 1, 0), ("a", 2, 1), ("b", 2, 0)], 1
)  # the same, while one of lower priority waits
@example(
    {"a": 2, "b": 3, "d": 0},
    [("b", 1, 1, 0), ("a", 3, 1, 0), ("a", 2, 2, 0)],
    [("a", 1, 0), ("a", 2, 1), ("b", 2, 1)],
    3,
)  # three claims ended each other for ever
@example(
    {"a": 3, "b": 5, "d": 5},
    [("b", 2, 2, 1), ("b", 4, 3, 2), ("b", 2, 2, 1)],
    [("d", 1, 1), ("b", 2, 2), ("d", 2, 2), ("b", 2, 2)],
    0,
)  # what was promised to a high priority counted as one of none, so that nothing of its queue was borrowed meanwhile
async def test_the_laws_of_reclaim(
    nominals: dict[str, int], running: list[Any], waiting: list[Any], spare: int
) -> None:
    """C2, C4 and L2 of each claim; C3: after few of them nobody with a right waits; C7: then nobody goes any more."""
    story = Story(nominals, running, waiting, spare)
    idle = 0
    for _ in range(40):
        while await story.turn():
            pass
        for root, claim in story.find_claims():
            story.check_standing(root, claim)
        obeyed = [story.obey(claim) for _, claim in story.find_claims()]
        idle = 0 if any(obeyed) else idle + 1
        if idle == 3:
            break
        story.loop.now += 1200  # a search that found nothing is repeated later
        for root in story.asked if idle else ():
            story.loop.queue.requeue(root_key(root))
    assert story.claims <= 2 * len(story.asked)
    assert not story.find_claims()
    for root, (name, count, _) in story.asked.items():
        roots = {pod.metadata.name.split("-")[0] for pod in story.loop.cache.index.pods()}
        kept_for = [each for each in roots if (claim := story.loop.claim(each)) and claim.nodes]
        if story.is_placed(root) or kept_for:
            continue
        new, taken = story.charge_of(root), story.taken
        kept = [each for each in taken if not quotas.must_give_way(story.tenants, taken, new, each)]
        inside = sum(e.amount for e in quotas.within(story.tenants[name], kept, name) if e.replica is None)
        free = story.slots - sum(each.amount for each in kept) // 4
        fits = 4 * count <= quotas.room(story.tenants, kept, name) and free >= count
        assert inside + 4 * count > story.tenants[name].nominal or not fits
