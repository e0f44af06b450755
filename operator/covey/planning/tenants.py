"""Quota in a plan: Queues as the scheduler process counts them, and what everything that holds nodes is charged.

Without a Queue nothing is counted. Not known here: the room that is held for lost pods, and quota that a claim which stands
has freed for another unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

import msgspec

from covey.admission.charges import Ground, Land, charges
from covey.admission.entitlement import (
    FIRST,
    Entitlement,
    Lane,
    QueueError,
    charged_queue,
    describe,
    lane_of,
    lower_in_queue,
    queue_of,
)
from covey.admission.ledger import Charge, Ledger, Policy
from covey.admission.nodes import Key
from covey.admission.reclaim import Right
from covey.admission.rights import charges_by_flavor
from covey.admission.victims import Candidate
from covey.admission.wishes import confine_gang, count_room, judge_gang, minimum_shapes
from covey.api import core
from covey.api.constants import LABEL_INFERENCE, LABEL_POD_GROUP
from covey.model import podstate
from covey.model.podstate import place_of
from covey.placement.cluster import resources
from covey.placement.model import Gang, Reason, Refusal, Shape, Verdict
from covey.planning.facts import ClusterFacts
from covey.planning.trees import PlannedWorkload

#: A label that the API server gives every namespace.
_NAME: Final = "kubernetes.io/metadata.name"


class Tenants:
    """The charges of all units, and the judge of what is planned.

    Args:
        facts: the cluster, and its Queues.
        units: everything that is charged.
        shape: of a pod.
    """

    def __init__(self, facts: ClusterFacts, units: Mapping[Key, Candidate], shape: Callable[[core.Pod], Shape]) -> None:
        self._units = units
        self._keys = {candidate.unit.root.metadata.uid: key for key, candidate in units.items()}
        self._shape = shape
        policies = {queue.metadata.name: Policy.of(queue) for queue in facts.queues or ()}
        self._ledger = Ledger(policies)
        self._lands = {name: Land(policy.flavors) for name, policy in policies.items()}
        for node in facts.nodes:
            for land in self._lands.values():
                land.file_node(node.metadata.name, node.metadata.labels or {})
        self._queues: dict[Key, str] = {}
        self._problems: dict[Key, QueueError] = {}

    @classmethod
    def of(
        cls,
        facts: ClusterFacts,
        workloads: Iterable[PlannedWorkload],
        planned: Collection[Candidate],
        shape: Callable[[core.Pod], Shape],
    ) -> Self | None:
        """The quota of what is planned; None where nobody has looked for Queues, or there are none and none is named.

        Args:
            facts: the cluster.
            workloads: what is planned.
            planned: its units.
            shape: of a pod.
        """
        if facts.queues is None or not (facts.queues or any(candidate.unit.root.spec.queue for candidate in planned)):
            return None
        stored = facts.units()
        units = {candidate.unit.key: _with_status(candidate, stored.get(candidate.unit.key)) for candidate in planned}
        made = cls(facts, {**stored, **units}, shape)
        others = {unit.key for workload in workloads if not workload.is_counted for unit in workload.units}
        labels = _labels_of(facts)
        for key, candidate in made._units.items():
            if key not in others:
                made._assign(candidate, labels.get(key.namespace, {}))
        return made

    def _assign(self, candidate: Candidate, labels: Mapping[str, str]) -> None:
        root, policies = candidate.unit.root, self._ledger.policies
        labels = {**labels, _NAME: root.metadata.namespace}
        try:
            name = charged = queue_of(root, labels, policies)
        except QueueError as error:
            self._problems[candidate.unit.key], name = error, None
            charged = charged_queue(labels, policies)
        if name is not None:
            self._queues[candidate.unit.key] = name
        if charged is not None:
            self._enter(candidate, charged, {})

    def _enter(self, candidate: Candidate, name: str, placed: Mapping[str, str]) -> None:
        land = self._lands[name]
        ground = Ground(
            self._ledger.policies[name],
            place=lambda pod: place_of(pod, placed),
            flavor=land.flavor.get,
            requests=lambda pod: self._shape(pod).requests,
            priority=candidate.priority,
        )
        self._ledger.enter(candidate.unit.key, charges(candidate.unit, ground))

    def lane(self, gang: Gang, *, surplus: bool) -> Lane:
        """The place of a gang among those of other queues."""
        entitled = self._judge(gang, surplus=surplus)
        if entitled is None:
            return FIRST
        return lane_of(self._ledger, self._queues[self._keys[gang.uid]], entitled, surplus=surplus)

    def confine(self, gang: Gang, *, surplus: bool) -> Gang | Refusal:
        """The part of a gang that may be planned, where it may be; or why nothing of it may."""
        key = self._keys[gang.uid]
        if key in self._problems:
            return _refuse(self._problems[key].message)
        entitled = self._judge(gang, surplus=surplus)
        if entitled is None:
            return gang
        name, short = self._queues[key], entitled.short
        if entitled.taken or short is None:
            return confine_gang(gang, entitled, self._lands[name].nodes, surplus=surplus)
        message, resource = describe(self._ledger, name, short, surplus=surplus), short.pool.resource
        return _refuse(message, resource, resources.text(resource, short.amount))

    def charge(self, gang: Gang) -> None:
        """Charge a gang for the places that it has now."""
        key = self._keys[gang.uid]
        if key in self._queues:
            pods = (pod for role in gang.roles for replica in role.replicas for pod in replica.pods)
            self._enter(
                self._units[key], self._queues[key], {pod.key: pod.node for pod in pods if pod.node is not None}
            )

    def has_queue_of(self, key: Key, gang: Gang) -> bool:
        """Tell whether a unit uses or is charged to the queue that a gang uses, or both none."""
        charged = next((entry.queue for entry in self._ledger.of(key)), None)
        return (self._queues.get(key) or charged) == self._queues.get(self._keys[gang.uid])

    def room_for(self, gang: Gang, shapes: Sequence[Shape]) -> int | None:
        """The most further replicas of these pods that quota leaves to a gang, whatever nodes there are; None for any."""
        key = self._keys[gang.uid]
        name = self._queues.get(key)
        if name is None:
            return 0 if key in self._problems else None
        return count_room(self._ledger, name, shapes, free=bool(self._lands[name].nodes.get(None)))

    def refuse_beside(self, gang: Gang, shapes: Sequence[Shape]) -> Refusal | None:
        """Say why quota leaves no further pods of these shapes, all at once, to a gang; None where it does."""
        if self.room_for(gang, shapes) != 0:
            return None
        name = self._queues.get(self._keys[gang.uid])
        return _refuse(f"queue {name} has no quota left for them" if name else "no queue has quota for them")

    def rights(self, gang: Gang) -> Iterator[Right]:
        """The rights of a minimum by which others must give way, on one flavor after another."""
        entitled = self._judge(gang, surplus=False)
        if entitled is not None and entitled.right:
            yield from self._rights(gang, Right.find_order)

    def rights_inside(self, gang: Gang) -> Iterator[Right]:
        """What may give way to a minimum in its own queue, which is full: what has a lower priority, by flavor."""
        if self._keys[gang.uid] in self._queues:
            rights = self._rights(gang, lambda right: tuple(lower_in_queue(right.ledger, right.mine)))
            yield from (replace(right, is_borrowed=False) for right in rights)

    def _rights(self, gang: Gang, find_order: Callable[[Right], Sequence[Charge]]) -> Iterator[Right]:
        key = self._keys[gang.uid]
        name = self._queues[key]
        own = next((charge for charge in self._ledger.of(key) if charge.member is None), None)
        nodes = self._lands[name].nodes
        for amounts in charges_by_flavor(self._ledger.policies[name], minimum_shapes(gang)):
            mine = Charge(name, key, None, tuple(sorted(amounts.items())), priority=gang.priority)
            right = Right(self._ledger.copy(), mine, minimum_shapes(gang), own, nodes, {})
            if order := find_order(right):
                yield replace(right, order=order)

    def _judge(self, gang: Gang, *, surplus: bool) -> Entitlement | None:
        """The part of a gang that may be planned; None where no queue counts it."""
        key = self._keys[gang.uid]
        name = self._queues.get(key)
        if name is None:
            return None
        free = bool(self._lands[name].nodes.get(None))
        return judge_gang(self._ledger, name, key, gang, surplus=surplus, free=free)


def _with_status(candidate: Candidate, stored: Candidate | None) -> Candidate:
    """A unit of a file with the status of the root in the cluster, which tells since when it is admitted."""
    if stored is None:
        return candidate
    root = msgspec.structs.replace(candidate.unit.root, status=stored.unit.root.status)
    return replace(candidate, unit=replace(candidate.unit, tree=replace(candidate.unit.tree, group=root)))


def uncounted_remarks(workloads: Iterable[PlannedWorkload], facts: ClusterFacts) -> Iterator[str]:
    """Describe what quota does not count."""
    for workload in workloads:
        named = next((unit.root.spec.queue for unit in workload.units if unit.root.spec.queue), None)
        if facts.queues is None:
            if named and workload.is_counted:
                yield f"{workload.title}: quota is not counted, as queue {named} is not given; give it with -f"
        elif facts.queues and not workload.is_counted:
            yield f"{workload.title}: no Queue counts it, as another scheduler assigns its nodes"
    if not facts.queues:
        return
    keys = {key for queue in facts.queues for key in _keys_of(queue)} - {_NAME}
    unknown = {workload.namespace for workload in workloads} - _labels_of(facts).keys()
    for namespace in sorted(unknown) if keys else ():
        yield f"namespace {namespace} is not given, so that it has no label {', '.join(sorted(keys))}; give it with -f"
    known = {pod.metadata.uid for candidate in facts.units().values() for pod in candidate.pods()}
    known |= {uid for workload in workloads for uid in workload.pods}
    members = [pod for pod in facts.pods if pod.metadata.label(LABEL_INFERENCE) or pod.metadata.label(LABEL_POD_GROUP)]
    if count := sum(podstate.holding(pod) is not None and pod.metadata.uid not in known for pod in members):
        yield f"no Queue counts {count} pods whose groups are not given; give those with --pods"


def _labels_of(facts: ClusterFacts) -> dict[str, Mapping[str, str]]:
    return {namespace.metadata.name: namespace.metadata.labels or {} for namespace in facts.namespaces}


def _keys_of(queue: core.Queue) -> Iterator[str]:
    selector = queue.spec.namespaces.selector if queue.spec.namespaces else None
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (expression.key for expression in selector.match_expressions or ())


def _refuse(message: str, resource: str | None = None, short: str | None = None) -> Refusal:
    return Refusal(Verdict.INFEASIBLE, (Reason("", "unit", None, (), 0, 0, resource, None, short, (), message),))
