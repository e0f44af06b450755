"""Several resources, their operator and the scheduler process over one set of objects, each of which may end after any write.

The operator is that of ``World``, one for each resource; the scheduler process is ``Loop`` over all their groups and pods.
A process that was killed is followed by one that knows nothing but the objects. Every claim is judged by the planner at
the moment it is made, and every write of the operator's by what is stored then.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final
from unittest import mock

import msgspec

from builders.members import cache, drop, node, put
from covey.admission import preemption
from covey.admission.nodes import Key
from covey.admission.preemption import PLANS
from covey.admission.reprieve import Judge, least_of
from covey.api import core
from covey.api.constants import PURPOSE_EVACUATION
from covey.api.inference import DisaggregatedInference
from covey.kube.clock import Clock
from covey.model import podstate
from covey.operator.model.claimed import RootClaim, read_claim
from covey.operator.model.node_drain import Notice
from covey.placement.model import Gang, Plan, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import LIMIT
from covey.scheduler import claims as scheduler_claims
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.preemptions import PreemptionWriter
from covey.scheduler.reservations import KeptNodes, Limits
from scheduler_loop import Loop, context_of, labels
from unit.claims.preemptions import Killed, StoredPreemptions
from unit.operator.test_claim_storm import check
from unit.operator.world import World

#: Waited for long whenever it waits at all, so that no delay is in the way.
_WAITS: Final = core.Condition("Admitted", "False", "Infeasible", "", "2020-01-01T00:00:00Z")
_KINDS: Final = frozenset({"CompositePodGroup", "PodGroup"})
#: Far more plans than a claim of these clusters needs.
_MANY: Final = 10_000
LIMITS: Final = Limits(cluster=4, namespace=4, percent=100, claims=ClaimBounds(1000, 0))
Step = Callable[[], None]


class Realm:
    """A cluster of some nodes in two racks, and resources by name; ``classes`` are priorities by class."""

    def __init__(self, nodes: int, classes: dict[str, int]) -> None:
        self.worlds: dict[str, World] = {}
        self.classes = classes
        self.nodes = [node(f"n{number}", labels=labels(f"r{number % 2}")) for number in range(nodes)]
        #: Claims of roots as they are stored, by UID.
        self.stored: dict[str, core.Claim] = {}
        #: Answers of the scheduler process to who has to go for whom, likewise.
        self.answers: dict[str, core.GroupSuccession] = {}
        #: How many claims with victims were made.
        self.made = 0
        #: How many claims on room for successors have stood.
        self.evacuated = 0
        #: Units of which a pod was lost: resource and number.
        self.lost: set[tuple[str, str]] = set()
        self._seen: dict[str, core.Group | core.Pod | core.Preemption] = {}
        self.preemptions = StoredPreemptions(lambda: core.rfc3339(self._wall()))
        self._numbers = itertools.count(1)
        self.start()

    # Resources

    def create(self, inference: DisaggregatedInference) -> None:
        """A resource comes; its pods wait behind their gates."""
        world = World(inference)
        world._uids = itertools.count(1000 * next(self._numbers))
        world.notices = self._notices(world)
        self.worlds[inference.metadata.name] = world
        for _ in range(3):
            self.operate(world)

    def delete(self, name: str) -> None:
        """A resource goes with all that it owns."""
        del self.worlds[name]
        self.tell()

    # The nodes

    def cordon(self, number: int, *, closed: bool) -> None:
        """A node is to be empty at once, or may be used again."""
        name = self.nodes[number].metadata.name
        labels_of = self.nodes[number].metadata.labels
        self.nodes[number] = node(name, labels=labels_of, **({"unschedulable": True} if closed else {}))
        for world in self.worlds.values():
            world.notices = self._notices(world)
        asyncio.run(self._deliver_node(self.nodes[number]))

    async def _deliver_node(self, changed: core.Node) -> None:
        put(self.loop.cache, changed)

    def _notices(self, world: World) -> dict[str, Notice]:
        closed = [each.metadata.name for each in self.nodes if each.spec.unschedulable]
        return dict.fromkeys(closed, Notice("to be drained", since=world.now))

    # The scheduler process

    def start(self) -> None:
        """A scheduler process begins with what is written."""
        self._seen = {}
        made = cache(*self.nodes)
        KeptNodes(made)
        self.loop = Loop(made, limits=LIMITS)
        for name, value in self.classes.items():
            self.loop.cache.priority_classes.store["", name] = core.PriorityClass(core.Meta(name=name), value=value)
        self.loop.judge_claims(self._judge_claim)
        api: Any = self.preemptions
        context = context_of(made, api, Clock(wall=self._wall))
        self._writer = PreemptionWriter(context, self.loop.queue, self.loop.reservations)
        self.tell()

    def _wall(self) -> float:
        return time.time() + self.loop.now

    def tell(self) -> None:
        """Its watches, and those of the operator, deliver what has changed."""
        now: dict[str, core.Group | core.Pod | core.Preemption] = {}
        roots: list[RootClaim] = []
        for name, world in self.worlds.items():
            for (kind, key), owned in list(world.objects.items()):
                if kind.partition(".")[0] not in _KINDS:
                    continue
                uid = owned.metadata.uid
                status = msgspec.structs.replace(
                    owned.status, claim=self.stored.get(uid), succession=self.answers.get(uid), conditions=(_WAITS,)
                )
                world.objects[kind, key] = root = msgspec.structs.replace(owned, status=status)
                now[uid] = self._group(kind, root)
                if (claim := read_claim(root)) is not None:
                    priority = self.classes[world.inference.spec.priority_class_name or ""]
                    roots.append(
                        replace(claim, namespace=world.inference.metadata.namespace, name=name, priority=priority)
                    )
            now |= {pod.metadata.uid: pod for pod in world.pods.values()}
        for name, world in self.worlds.items():
            found = (replace(each, victims=tuple(v for v in each.victims if v.name == name)) for each in roots)
            world.claims = tuple(each for each in found if each.victims)
        self.stored = {uid: claim for uid, claim in self.stored.items() if uid in now}
        for key, stored in list(self.preemptions.items.items()):
            if stored.spec.beneficiary.uid in now:
                now[stored.metadata.uid] = stored
            else:
                del self.preemptions.items[key]  # the garbage collector's
        asyncio.run(self._deliver(now))

    async def _deliver(self, now: dict[str, core.Group | core.Pod | core.Preemption]) -> None:
        before, self._seen = self._seen, now
        for uid in before.keys() - now.keys():
            drop(self.loop.cache, before[uid])
        for uid, each in now.items():
            known = before.get(uid)
            if known != each:
                put(self.loop.cache, each, known if isinstance(known, core.Group) else None)

    def _group(self, kind: str, owned: Any) -> core.Group:
        body = msgspec.to_builtins(owned)
        head = {"kind": kind.partition(".")[0], "apiVersion": "scheduling.covey.dev/v1alpha1"}
        return msgspec.convert({**body, **head}, core.Group)

    def schedule(self, writes: int | None = None) -> bool:
        """A pass of the scheduler process, killed after so many writes; returns whether it had any to make."""
        standing = dict(self.stored)
        with mock.patch.object(scheduler_claims, "search", _search):
            places = asyncio.run(self._turn())
        self._check_arrival(places, standing)
        steps = [*self._statuses(), *self._binds(places)]
        self.preemptions.left, before = writes, self.preemptions.writes
        try:
            for step in steps:
                step()
                self.tell()
            for root in list(self.loop.cache.index.roots()):
                asyncio.run(self._writer.write(root))
                self.tell()
        except Killed:
            pass
        if writes is not None:
            self.start()
        return bool(steps) or self.preemptions.writes > before

    async def _turn(self) -> dict[str, str]:
        self.loop.holding.expire()
        return await self.loop.turn()

    def _statuses(self) -> Iterator[Step]:
        for root in self.loop.cache.index.roots():
            uid, answer = self.uid_of(root), self.loop.queue.decision(root).succession
            if uid is not None and answer is not None and self.answers.get(uid) != answer:
                yield partial(self._answer, uid, answer)
        for root, claim in self.loop.claims().items():
            uid = self.uid_of(root)
            if uid is not None and self.stored.get(uid) != claim:
                yield lambda root=root, uid=uid, claim=claim: self._store(root, uid, claim)

    def _answer(self, uid: str, answer: core.GroupSuccession) -> None:
        self.preemptions.spend()
        self.answers[uid] = answer

    def _store(self, root: Key, uid: str, claim: core.Claim | None) -> None:
        unit = self.loop.cache.index.unit(root)
        assert unit is not None
        asyncio.run(self._writer.prepare(unit))
        self._check_told(uid, claim)
        self.preemptions.spend()
        self.evacuated += claim is not None and claim.purpose == PURPOSE_EVACUATION
        if claim is None:
            self.stored.pop(uid, None)
        else:
            self.stored[uid] = claim

    def _binds(self, places: dict[str, str]) -> Iterator[Step]:
        for name, place in places.items():
            world = next(each for each in self.worlds.values() if name in each.pods)
            yield lambda world=world, name=name, place=place: self._bind(world, name, place)

    def _bind(self, world: World, name: str, place: str) -> None:
        self.preemptions.spend()
        world.bind(name, place)
        world.ready(name)

    def uid_of(self, root: Key) -> str | None:
        """The UID of a root, if it is there still."""
        found = self.loop.cache.index.root(root)
        return found.metadata.uid if found is not None else None

    # The operator

    def operate(self, world: World, writes: int | None = None) -> bool:
        """A pass of the operator's over a resource, killed after so many writes; returns whether it had any to make."""
        actions = world.plan().actions
        steps = [*world.questions(actions), *world.steps(actions)]
        for step in islice(steps, writes):
            before = dict(world.pods)
            step()
            check(world.inference.spec, world.claims, before, world.pods)
            world.check()
        if writes is not None:
            world.forget()
        self.tell()
        return bool(steps)

    # The laws

    def _judge_claim(self, root: Key, claim: core.Claim, asked: Gang) -> None:
        """Judge a claim by the planner alone, before anybody is touched: laws L1, L2, L3 and L7."""
        self.made += 1
        assert claim.victims, "a claim of a search names somebody"
        claims = self.loop.reservations.claims
        planning, holds = claims._cache.capacity.planning, claims._holding.snapshot
        with planning() as inventory, holds(root, inventory), overlay(inventory) as changes:
            changes.remove(frozenset(claims._freeing(claims._cache.index.ending())))
            judge = Judge(least_of(asked), inventory, LIMIT, _MANY)
            keys = {victim: set(victim.pods) for victim in claim.victims}
            every = set().union(*keys.values())
            assert isinstance(judge.plan(every), Plan), f"L1: {claim.message}, and there is no plan in their room"
            for victim, own in keys.items() if not claim.unproven else ():
                found = judge.plan(every - own)
                assert found.verdict is Verdict.INFEASIBLE, f"L2: {claim.message}, and {victim} is not needed"
        mine = next(each for each in self.worlds.values() if self._has_root(each, root))
        for victim in claim.victims:
            other = self.worlds[victim.name]
            assert other is not mine, f"L7: {claim.message}, which is of itself"
            assert self._priority(other) < self._priority(mine), f"L7: {claim.message}, which is of no lower priority"
        taken = {(each.name, each.unit) for each in claim.victims if each.kind == "Unit"}
        single = {(each.name, each.unit) for each in claim.victims if each.kind != "Unit"}
        assert not taken & single, f"L3: {claim.message}"

    def _check_told(self, uid: str, claim: core.Claim | None) -> None:
        """L9: the Preemption of a claim is there before the claim is, names all of its victims, and ends before it does."""
        under_way = [each for each in self.preemptions.of(uid) if not each.status.outcome]
        if claim is None or not claim.victims:
            assert not under_way, f"L9: {under_way[0].spec.summary} is under way, and the claim is over"
            return
        (preemption,) = under_way
        told = {victim.uid for victim in preemption.spec.victims}
        assert all(min(victim.pods) in told for victim in claim.victims), (
            f"L9: {claim.message}: {preemption.spec.summary}"
        )

    def lose(self, world: World, name: str) -> None:
        """A pod is gone, and nobody meant it."""
        self.lost.add((world.inference.metadata.name, world.pods[name].metadata.label("covey.dev/unit") or ""))
        world.vanish(name)

    def _priority(self, world: World) -> int:
        return self.classes[world.inference.spec.priority_class_name or ""]

    @staticmethod
    def _has_root(world: World, root: Key) -> bool:
        return (
            any(key == root.name for _, key in world.objects) and world.inference.metadata.namespace == root.namespace
        )

    def _check_arrival(self, places: dict[str, str], standing: dict[str, core.Claim]) -> None:
        """L4: room of a claim goes to its root, or to one that is before it in the order."""
        entries = dict(self.loop.queue.entries())
        gangs = {entry.gang.uid: entry.gang for entry in entries.values() if entry.gang is not None}
        after = {self.uid_of(root): entry.decision.claim for root, entry in entries.items()}
        owner = {
            pod.metadata.name: entry.gang
            for entry in entries.values()
            if entry.gang is not None
            for pod in entry.unit.pods()
            if not self._replaces(entry.unit.key)
        }
        for uid, claim in standing.items():
            now = after.get(uid)
            if uid not in gangs or now is None or not (claim.victims or claim.purpose == PURPOSE_EVACUATION):
                continue
            # The successor of what was lost has the room that is held for it, wherever others find theirs.
            kept = set(claim.nodes) & set(now.nodes)
            names = (name for name, place in places.items() if place in kept and name in owner)
            for name in names if not self.lost else ():
                assert owner[name].order <= gangs[uid].order, f"L4: {name} is placed on {places[name]}: {claim.message}"

    def _replaces(self, root: Key) -> bool:
        """Something of a unit leaves its node, so that its successors may lie wherever they fit."""
        closed = {each.metadata.name for each in self.nodes if each.spec.unschedulable}
        members = self.loop.cache.index.members(root)
        return any(pod.spec.node_name in closed or podstate.is_draining(pod) for pod in members)


def _search(*given: Any, **named: Any) -> Any:
    """L8: no search makes more plans than it may."""
    found = preemption.search(*given, **named)
    assert found.plans <= PLANS, f"L8: {found.plans} plans"
    return found
