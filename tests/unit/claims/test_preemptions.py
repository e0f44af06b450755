"""The life of a Preemption: what is told of a taking, by whom it is read again, and how many are kept."""

from __future__ import annotations

import time
from typing import Any, Self

from msgspec.structs import replace

from builders.members import cache, drop, member, node, put, root_key
from covey.api import core
from covey.api.annotations import LEFT_ALONE, write_refused
from covey.api.constants import ANNOTATION_EVICTIONS_REFUSED
from covey.api.core.preemption import MOST_ENDED, Beneficiary
from covey.kube.clock import Clock
from covey.kube.errors import Forbidden
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.preemptions import PreemptionWriter
from covey.scheduler.reservations import Limits
from covey.watching.preemptions import describe_preemptions
from scheduler_loop import Loop, context_of, labels
from unit.claims.preemptions import StoredPreemptions
from unit.claims.test_who_gives_way import HOUR, MINUTE, WAITS, noted, running, turn
from unit.scheduler.test_preempting import READY, unit

ROOT = root_key("high")


class Life:
    """A scheduler process and what it writes of ``high``, which takes from others."""

    def __init__(self, *objects: Any, **limits: Any) -> None:
        self.stored = StoredPreemptions(lambda: core.rfc3339(self._wall()))
        self._limits = Limits(percent=100, claims=ClaimBounds(1000, **limits))
        self._begin(*objects)

    def _begin(self, *objects: Any) -> None:
        self.loop = Loop(cache(*objects), limits=self._limits)
        api: Any = self.stored
        context = context_of(self.loop.cache, api, Clock(wall=self._wall))
        self.writer = PreemptionWriter(context, self.loop.queue, self.loop.reservations)

    def _wall(self) -> float:
        return time.time() + self.loop.now

    async def look(self, now: float) -> Self:
        """A pass, and all that is written after it."""
        await turn(self.loop, now)
        found, root = self.loop.cache.index.unit(ROOT), self.loop.cache.index.root(ROOT)
        if found is not None and root is not None:
            await self.writer.prepare(found)
            status = replace(root.status, claim=self.loop.queue.decision(ROOT).claim)
            put(self.loop.cache, replace(root, status=status), root)
        await self.writer.write(ROOT)
        for each in list(self.stored.items.values()):
            put(self.loop.cache, each)
        for each in [each for each in self._told() if each.metadata.key not in self.stored.items]:
            drop(self.loop.cache, each)
        return self

    def _told(self) -> list[core.Preemption]:
        return list(self.loop.cache.preemptions[0].store.values())

    def restart(self) -> Self:
        """Another process, which knows nothing but what is stored."""
        known, now = self.loop.cache, self.loop.now
        groups = [group for root in known.index.roots() for group in (known.index.root(root),) if group is not None]
        leaves = [replace(each, metadata=each.metadata) for each in self._leaves]
        self._begin(
            *known.nodes.store.values(), *groups, *leaves, *known.pods.store.values(), *self.stored.items.values()
        )
        self.loop.now = now
        return self

    @property
    def _leaves(self) -> list[core.Group]:
        known = self.loop.cache.index
        return [
            leaf for root in known.roots() if (found := known.unit(root)) for leaf in (r.group for r in found.roles)
        ]

    def pod(self, name: str) -> core.Pod:
        return self.loop.cache.pods.store["ns", name]

    def mark(self, name: str, until: float) -> None:
        """The operator has the replica of a pod drain for the claim."""
        notes = {
            "covey.dev/claimed-by": "uid-high",
            "scheduling.covey.dev/drain-until": core.rfc3339(time.time() + until),
        }
        put(self.loop.cache, noted([self.pod(name)], notes)[0])

    def newest(self) -> core.Preemption:
        """The Preemption that was made last."""
        return max(self.stored.items.values(), key=lambda each: int(each.metadata.uid.rpartition("-")[2]))

    def states(self) -> list[str]:
        """The states of its victims."""
        return [state.state for state in self.newest().status.victims]


def crowded(*others: Any, replicas: int = 2, **high: Any) -> Life:
    """A node of eight GPUs with a unit of two replicas of which one is surplus; a gang of higher priority wants four."""
    low = unit("low", replicas=replicas, nodes=("n1",) * replicas, priority=1)
    wanted = unit("high", replicas=1, **{"priority": 10, **WAITS, **high})
    return Life(node("n1", gpus=4 * replicas, labels=labels()), *others, *low, *wanted)


def webs(*names: str, namespace: str = "ns") -> list[core.Pod]:
    """Ordinary pods that fill a node each."""
    made = [running(name, f"n-{name}") for name in names]
    return [replace(each, metadata=replace(each.metadata, namespace=namespace)) for each in made]


def beside(*pods: core.Pod) -> Life:
    """A gang that needs the node of one of these pods."""
    nodes = [node(each.spec.node_name or "", labels=labels()) for each in pods]
    wanted = unit("high", replicas=1, gpus=8, priority=10, **WAITS)
    return Life(*nodes, *pods, *wanted, ordinary_pods=True)


async def test_a_preemption_when_a_claim_is_made_says_for_whom_from_whom_and_until_when() -> None:
    life = await crowded().look(0.0)
    made = life.newest()
    assert made.spec.beneficiary.uid == "uid-high"
    assert (made.spec.reason, made.spec.summary) == ("Priority", "1 replica of ns/low")
    assert [(each.kind, each.name, each.pods) for each in made.spec.victims] == [("Replica", "decode/0 of unit 0", 1)]
    assert made.spec.nodes == ("n1",)
    assert (made.status.progress, made.status.outcome, life.states()) == ("0/1", "", ["Named"])
    assert made.status.deadline is not None
    (owner,) = made.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("CompositePodGroup", "high", "uid-high")


async def test_a_preemption_when_its_victim_drains_and_goes_tells_of_it_until_its_gang_is_placed() -> None:
    life = await crowded().look(0.0)
    life.mark("low-decode-0-0", 90.0)
    await life.look(1.0)
    assert life.states() == ["Draining"]
    assert life.newest().status.victims[0].until is not None
    drop(life.loop.cache, life.pod("low-decode-0-0"))
    await life.look(2.0)
    status = life.newest().status
    assert (status.outcome, status.reason, status.progress, life.states()) == ("Placed", "Placed", "1/1", ["Gone"])
    assert status.end_time is not None


async def test_a_preemption_when_nothing_changes_is_not_written_again() -> None:
    life = await crowded().look(0.0)
    written = life.stored.writes
    for second in range(1, 20):
        await life.look(float(second))
    assert life.stored.writes == written


async def test_a_preemption_when_its_gang_needs_nobody_any_more_releases_its_victims() -> None:
    life = await crowded().look(0.0)
    put(life.loop.cache, node("n2", labels=labels()))
    put(life.loop.cache, replace(member("decode", 0, root="high", node="n2", conditions=READY)))
    await life.look(1.0)
    assert (life.newest().status.outcome, life.states()) == ("Placed", ["Released"])


async def test_a_preemption_when_its_gang_cannot_be_planned_any_more_releases_its_victims() -> None:
    life = await crowded().look(0.0)
    drop(life.loop.cache, life.pod("high-decode-0-0"))
    await life.look(1.0)
    status = life.newest().status
    assert (status.outcome, status.reason, life.states()) == ("Released", "Unplannable", ["Released"])


async def test_a_victim_of_another_namespace_is_told_by_its_workload_alone() -> None:
    (web,) = webs("web-7f-x", namespace="secret")
    owner = core.OwnerReference(kind="ReplicaSet", name="web-7f", uid="rs", controller=True)
    web = replace(web, metadata=replace(web.metadata, owner_references=(owner,)))
    life = await beside(web).look(0.0)
    (victim,) = life.newest().spec.victims
    assert (victim.namespace, victim.workload, victim.name) == ("secret", "web-7f", "")
    assert life.newest().spec.summary == "1 pod of secret/web-7f"


async def test_a_pod_that_may_not_be_evicted_when_the_process_begins_anew_is_left_aside_still() -> None:
    life = await beside(*webs("a", "b")).look(0.0)
    (first,) = life.newest().spec.victims
    root = life.loop.cache.index.root(ROOT)
    assert root is not None
    notes = {ANNOTATION_EVICTIONS_REFUSED: write_refused({first.uid: time.time() + LEFT_ALONE})}
    put(life.loop.cache, replace(root, metadata=replace(root.metadata, annotations=notes)), root)
    await life.look(1.0)
    ended = [each for each in life.stored.items.values() if each.status.outcome]
    assert [(each.status.outcome, each.status.reason) for each in ended] == [("GivenUp", "Refused")]
    assert ended[0].status.victims[0].state == "Refused"
    assert life.newest().spec.victims[0].uid != first.uid
    # What the operator notes is over after five minutes; by then it is left aside for the second time, for ten.
    life.restart()
    aside = life.loop.reservations.claims.left_aside(ROOT)
    assert [aside[first.uid].attempts, aside[first.uid].refused] == [1, True]


async def test_a_victim_that_never_went_when_the_process_begins_anew_is_left_aside_for_longer_each_time() -> None:
    life = await beside(*webs("a", "b")).look(0.0)
    (first,) = life.newest().spec.victims
    attempts = []
    for number in range(1, 4):
        await life.look(number * 2000.0)
        ended = life.newest().status
        assert (ended.outcome, ended.reason, life.states()) == ("GivenUp", "NoProgress", ["Late"])
        life.restart()
        attempts.append(life.loop.reservations.claims.left_aside(ROOT)[first.uid].attempts)
        await life.look(number * 2000.0 + 1000.0)
    assert attempts == [1, 2, 3]
    assert life.newest().spec.victims[0].uid != first.uid


async def test_a_preemption_when_a_process_ended_before_its_claim_was_stored_is_that_of_the_next() -> None:
    life = crowded()
    await turn(life.loop, 0.0)
    await life.writer.write(ROOT)
    for each in life.stored.items.values():
        put(life.loop.cache, each)
    first = life.newest().metadata.name
    await life.restart().look(1.0)
    assert (life.newest().metadata.name, life.newest().status.outcome) == (first, "")


async def test_a_preemption_when_it_cannot_be_written_keeps_no_claim_back() -> None:
    life = crowded()

    async def refuse(*_: object, **__: object) -> core.Preemption:
        raise Forbidden(403, "Forbidden", "not yours")

    create, life.stored.create = life.stored.create, refuse  # type: ignore[method-assign] # an older set of rights
    await turn(life.loop, 0.0)
    found = life.loop.cache.index.unit(ROOT)
    assert found is not None
    await life.writer.prepare(found)
    assert not life.stored.items
    life.stored.create = create  # type: ignore[method-assign]
    await life.look(1.0)
    assert life.states() == ["Named"]


async def test_preemptions_that_ended_when_an_hour_is_over_are_deleted_and_others_by_number() -> None:
    life = crowded()
    for number in range(MOST_ENDED + 3):
        await life.look(number * 10.0)
        lost = life.pod("high-decode-0-0")
        drop(life.loop.cache, lost)
        await life.look(number * 10.0 + 5.0)
        put(life.loop.cache, lost)
    assert len(life.stored.items) == MOST_ENDED
    drop(life.loop.cache, life.pod("high-decode-0-0"))
    await life.look(HOUR + 20 * MINUTE)
    assert not life.stored.items


async def test_a_preemption_when_another_root_has_its_name_is_none_of_it() -> None:
    life = await crowded().look(0.0)
    (made,) = life.stored.items.values()
    before = made.status
    others = replace(made.spec, beneficiary=replace(made.spec.beneficiary, uid="another"))
    metadata = replace(made.metadata, resource_version="99")
    life.stored.items[made.metadata.key] = replace(made, spec=others, metadata=metadata)
    put(life.loop.cache, life.stored.items[made.metadata.key])
    await life.look(1.0)
    assert life.stored.items[made.metadata.key].status == before
    assert len(life.stored.items) == 2


async def test_explain_tells_of_preemptions_for_the_units_of_a_resource_the_last_first() -> None:
    life = await crowded().look(0.0)
    drop(life.loop.cache, life.pod("high-decode-0-0"))
    await life.look(1.0)
    other = replace(life.newest(), spec=replace(life.newest().spec, beneficiary=Beneficiary("PodGroup", "x", "uid-x")))
    told = describe_preemptions({"uid-high"}, [*life.stored.items.values(), other])
    [sentence] = told
    assert sentence.startswith("high: 1 replica of ns/low, Priority, 0/0 gone; Released at ")
    assert sentence.endswith(": the beneficiary cannot be planned any more")
