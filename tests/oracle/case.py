"""A planning problem as plain data: one gang, the raw nodes, and what every other pod holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Assignment, Gang, PodRequest, ReplicaRequest, RoleRequest, Shape, Topology


@dataclass(frozen=True)
class Body:
    """What a pod is: its shape as the planner sees it, and the pod itself where the case started from one."""

    shape: Shape
    pod: core.Pod | None = None


@dataclass(frozen=True)
class Hold:
    """Capacity held on a node, by a stranger or by a bound member of the gang (then under the member's key)."""

    key: str
    node: str
    shape: Shape
    pod: core.Pod | None = None

    @property
    def body(self) -> Body:
        return Body(self.shape, self.pod)


@dataclass(frozen=True)
class Case:
    """One gang in one cluster. Bound members of the gang appear in ``holds`` too.

    ``pods`` are the members as they were written, by key; cases built by hand from shapes have none.
    """

    gang: Gang
    topology: Topology
    nodes: tuple[core.Node, ...]
    holds: tuple[Hold, ...] = ()
    pods: Mapping[str, core.Pod] = field(default_factory=dict)

    def body(self, pod: PodRequest) -> Body:
        """What a member is."""
        return Body(pod.shape, self.pods.get(pod.key))

    @cached_property
    def node(self) -> Mapping[str, core.Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def asked_for(self) -> frozenset[str]:
        """The label keys that some pod's anti-affinity asks for."""
        found: set[str] = set()
        for pod in (*self.pods.values(), *(hold.pod for hold in self.holds if hold.pod)):
            anti = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
            for term in (anti.required or ()) if anti else ():
                selector = term.label_selector or core.LabelSelector()
                found |= set(selector.match_labels or ()) | {each.key for each in selector.match_expressions or ()}
                found |= {*(term.match_label_keys or ()), *(term.mismatch_label_keys or ())}
        return frozenset(found)

    @cached_property
    def held(self) -> Mapping[str, tuple[Hold, ...]]:
        """What is held, by node."""
        found: dict[str, list[Hold]] = {}
        for hold in self.holds:
            found.setdefault(hold.node, []).append(hold)
        return {name: tuple(holds) for name, holds in found.items()}

    def after(self, assignments: Iterable[Assignment]) -> Case:
        """The same case when the assignments are facts."""
        return self.placed({assignment.pod: assignment.node for assignment in assignments})

    def placed(self, nodes: Mapping[str, str]) -> Case:
        """The same case when these pods (by key) are bound to these nodes."""
        holds = tuple(
            Hold(pod.key, nodes[pod.key], pod.shape, self.pods.get(pod.key))
            for role in self.gang.roles
            for replica in role.replicas
            for pod in replica.pods
            if pod.key in nodes
        )
        return replace(self, gang=bound(self.gang, nodes), holds=self.holds + holds)

    def inventory(self) -> Inventory:
        """The planner's view of this cluster, built by its public interface."""
        inventory = Inventory([self.topology])
        for node in self.nodes:
            inventory.set_node(node)
        for hold in self.holds:
            inventory.hold(hold.key, hold.node, hold.shape, hold.pod.metadata if hold.pod else None)
        return inventory


def bound(gang: Gang, nodes: Mapping[str, str | None]) -> Gang:
    """The gang with these pods (by key) bound to these nodes."""

    def pod_of(pod: PodRequest) -> PodRequest:
        return replace(pod, node=nodes[pod.key]) if pod.key in nodes else pod

    def replica_of(replica: ReplicaRequest) -> ReplicaRequest:
        return replace(replica, pods=tuple(map(pod_of, replica.pods)))

    def role_of(role: RoleRequest) -> RoleRequest:
        return replace(role, replicas=tuple(map(replica_of, role.replicas)))

    return replace(gang, roles=tuple(map(role_of, gang.roles)))
