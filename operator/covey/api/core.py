"""Lean read projections of the objects that Covey watches.

Only the fields that are read are declared, so that 10,000 pods decode in a fraction of a second and
stay small in memory. They are for reading alone: what is written is built as plain dictionaries, so that
nothing that was not declared here can be lost on the way back.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from covey.api import constants as names


class Read(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Base of every projection: camel-case keys, unknown fields dropped, immutable."""


class OwnerReference(Read, frozen=True):
    """``metav1.OwnerReference``."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class Meta(Read, frozen=True):
    """``metav1.ObjectMeta``; times are RFC 3339 strings as the API server sends them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster-scoped objects) and name."""
        return (self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The controlling owner, if there is one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def label(self, name: str) -> str | None:
        """The value of a label; None when it is absent."""
        return self.labels.get(name) if self.labels else None

    def annotation(self, name: str) -> str | None:
        """The value of an annotation; None when it is absent."""
        return self.annotations.get(name) if self.annotations else None


class Condition(Read, frozen=True):
    """``metav1.Condition``, and the conditions of pods and nodes, which have the same keys."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class Resources(Read, frozen=True):
    """``ResourceRequirements``; quantities as written."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerPort(Read, frozen=True):
    """``ContainerPort``."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


class Container(Read, frozen=True):
    """``Container``, as far as scheduling depends on it."""

    name: str = ""
    resources: Resources | None = None
    ports: tuple[ContainerPort, ...] | None = None
    #: ``Always`` on an init container makes it a sidecar.
    restart_policy: str | None = None
    image: str = ""

    def __post_init__(self) -> None:
        """Thousands of pods share a handful of images: each is kept once."""
        msgspec.structs.force_setattr(self, "image", sys.intern(self.image))


class Requirement(Read, frozen=True):
    """``NodeSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Read, frozen=True):
    """``NodeSelectorTerm``: its requirements are AND-ed; an empty term matches nothing."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(Read, frozen=True):
    """``NodeSelector``: its terms are OR-ed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Read, frozen=True):
    """``NodeAffinity``; preferences are the scheduler's own business."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class LabelSelector(Read, frozen=True):
    """``metav1.LabelSelector``."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None


class PodAffinityTerm(Read, frozen=True):
    """``PodAffinityTerm``."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(Read, frozen=True):
    """``PodAffinity`` and ``PodAntiAffinity``, their required terms."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Read, frozen=True):
    """``Affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Read, frozen=True):
    """``Toleration``."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    #: Of NoExecute: for how long. None is for ever.
    toleration_seconds: int | None = None


class SchedulingGate(Read, frozen=True):
    """``PodSchedulingGate``."""

    name: str


class ReadinessGate(Read, frozen=True):
    """``PodReadinessGate``."""

    condition_type: str = ""


class TopologySpread(Read, frozen=True):
    """``TopologySpreadConstraint``; Covey does not model it, it only says so."""

    when_unsatisfiable: str = "DoNotSchedule"


class Volume(Read, frozen=True):
    """``Volume``, as far as it can restrict the choice of a node."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class PodSpec(Read, frozen=True):
    """``PodSpec``."""

    node_name: str | None = None
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: dict[str, Any] | None = None
    readiness_gates: tuple[ReadinessGate, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    topology_spread_constraints: tuple[TopologySpread, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    hostname: str | None = None
    subdomain: str | None = None
    active_deadline_seconds: int | None = None


class ContainerStatus(Read, frozen=True):
    """``ContainerStatus``: what the kubelet has set aside for a container, what it runs with, and how often it began."""

    name: str = ""
    restart_count: int = 0
    resources: Resources | None = None
    allocated_resources: dict[str, str | int | float] | None = None
    image_id: str = msgspec.field(name="imageID", default="")


class PodStatus(Read, frozen=True):
    """``PodStatus``."""

    phase: str = "Pending"
    #: Why a pod has failed, where the kubelet says more than that a container has: ``OutOfcpu``, ``Evicted``.
    reason: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    #: The generation of the spec that the kubelet has worked by; None below Kubernetes 1.34.
    observed_generation: int | None = None


class Pod(Read, frozen=True):
    """A pod. Containers' statuses are kept only where they tell something: of a resize, of restarts, of other images.

    Every running pod has them; kept for all, they would take 1 KB each.
    """

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Drop statuses that say what the spec says."""
        if self.status.container_statuses is None and self.status.init_container_statuses is None:
            return
        if self.metadata.annotation(names.ANNOTATION_IN_PLACE) is not None:
            return
        if not any(_tells(container, container_status(self, container.name)) for container in containers(self)):
            msgspec.structs.force_setattr(self.status, "container_statuses", None)
            msgspec.structs.force_setattr(self.status, "init_container_statuses", None)


class Taint(Read, frozen=True):
    """``Taint``."""

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


class NodeSpec(Read, frozen=True):
    """``NodeSpec``."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(Read, frozen=True):
    """``NodeStatus``."""

    allocatable: dict[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Read, frozen=True):
    """A node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class GangPolicy(Read, frozen=True):
    """The gang of a PodGroup (``minCount``, pods) or of a CompositePodGroup (``minGroupCount``, children)."""

    min_count: int | None = None
    min_group_count: int | None = None


class SchedulingPolicy(Read, frozen=True):
    """``schedulingPolicy``: exactly one of gang and basic."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class TopologyConstraint(Read, frozen=True):
    """One level (or raw label key) that a group's pods must, or should, share.

    ``scope`` is ``Group`` (all pods of the group in one domain) or ``Pod`` (each pod's node has such a domain).
    """

    level: str | None = None
    key: str | None = None
    mode: str = "Required"
    scope: str = "Group"


class ProximityConstraint(Read, frozen=True):
    """Children (roles, by name) whose pods share one domain of a level."""

    roles: tuple[str, ...]
    level: str
    mode: str = "Preferred"


class SpreadConstraint(Read, frozen=True):
    """How many units of one resource may share one domain of a level."""

    level: str
    mode: str = "Preferred"
    max_per_domain: int = 1


class SchedulingConstraints(Read, frozen=True):
    """``schedulingConstraints`` of a group."""

    topology: tuple[TopologyConstraint, ...] | None = None
    proximity: tuple[ProximityConstraint, ...] | None = None
    spread: SpreadConstraint | None = None
    #: The ClusterTopology whose levels are meant; only on a root.
    topology_name: str | None = None
    #: False: this role need not lie in the unit's domain.
    follow_unit: bool = True


class WorkloadReference(Read, frozen=True):
    """``workloadRef``."""

    workload_name: str = ""
    template_name: str = ""


class GroupSpec(Read, frozen=True):
    """The spec of a PodGroup or a CompositePodGroup (the other kind's fields stay None)."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    desired_count: int | None = None
    desired_group_count: int | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    timeout_seconds: int | None = None
    hold_seconds: int | None = None
    priority_class_name: str | None = None
    priority: int | None = None


class ExcludedNode(Read, frozen=True):
    """A node that failed this group for a reason the planner does not model, until a time (RFC 3339)."""

    node: str
    reason: str
    until: str


class GroupPlacement(Read, frozen=True):
    """The domain that holds all placed pods of a group at one level; ``path`` runs from the broadest level down."""

    level: str
    path: tuple[str | None, ...]


class Reservation(Read, frozen=True):
    """A domain whose freed capacity is kept for a waiting root."""

    path: tuple[str | None, ...]
    since: str
    level: str = ""
    resource: str = ""


class RoleHeadroom(Read, frozen=True):
    """How many replicas of a role could have places; none where nobody knows, and then ``message`` says why."""

    name: str
    replicas: int | None = None
    at_least: bool = False
    message: str = ""


class Headroom(Read, frozen=True):
    """The answer to a question for head-room."""

    asked: str
    observed_at: str = ""
    roles: tuple[RoleHeadroom, ...] | None = None


class GroupStatus(Read, frozen=True):
    """The status of a group, written by the scheduler process alone."""

    conditions: tuple[Condition, ...] | None = None
    placement: tuple[GroupPlacement, ...] | None = None
    reservation: Reservation | None = None
    excluded_nodes: tuple[ExcludedNode, ...] | None = None
    #: Pods (PodGroup) or child groups (CompositePodGroup) that are admitted, and that are bound.
    admitted: int | None = None
    scheduled: int | None = None
    headroom: Headroom | None = None


class Group(Read, frozen=True):
    """A PodGroup or a CompositePodGroup of ``scheduling.covey.dev``."""

    metadata: Meta
    kind: str = ""
    api_version: str = ""
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()


class PriorityClass(Read, frozen=True):
    """``scheduling.k8s.io/v1`` PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool = False


class TopologyLevelSpec(Read, frozen=True):
    """One level of a ClusterTopology."""

    name: str
    keys: tuple[str, ...]
    optional: bool = False


class ClusterTopologySpec(Read, frozen=True):
    """``spec`` of a ClusterTopology: levels from broad to narrow."""

    levels: tuple[TopologyLevelSpec, ...] = ()


class ClusterTopology(Read, frozen=True):
    """A cluster-scoped ``scheduling.covey.dev`` ClusterTopology."""

    metadata: Meta
    spec: ClusterTopologySpec = ClusterTopologySpec()


class HyperNodeMember(Read, frozen=True):
    """A member of a HyperNode: nodes, or (``type`` ``HyperNode``) another one, which only its exact name selects."""

    type: str = ""
    selector: dict[str, Any] = {}

    @property
    def hyper_node(self) -> str | None:
        """The name of the HyperNode that is meant; None when nodes are."""
        exact = self.selector.get("exactMatch")
        return exact.get("name") if self.type == "HyperNode" and isinstance(exact, dict) else None


class HyperNodeSpec(Read, frozen=True):
    """``spec`` of a HyperNode; a lower tier is closer."""

    tier: int = 0
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()


class HyperNode(Read, frozen=True):
    """A domain of Volcano's network topology (``topology.volcano.sh/v1alpha1``)."""

    metadata: Meta
    spec: HyperNodeSpec = HyperNodeSpec()


def containers(pod: Pod) -> tuple[Container, ...]:
    """All containers, init containers first."""
    return (*(pod.spec.init_containers or ()), *pod.spec.containers)


def container_status(pod: Pod, name: str) -> ContainerStatus | None:
    """The status of a container, if it is there."""
    found = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return next((each for each in found if each.name == name), None)


def _tells(container: Container, status: ContainerStatus | None) -> bool:
    return status is not None and (status.restart_count > 0 or _resized(container, status))


def _resized(container: Container, status: ContainerStatus) -> bool:
    wanted = (container.resources.requests if container.resources else None) or {}
    running = status.resources.requests if status.resources else None
    return any(each is not None and each != wanted for each in (running, status.allocated_resources))


def gates(pod: Pod) -> frozenset[str]:
    """The names of the scheduling gates that still hold a pod."""
    return frozenset(gate.name for gate in pod.spec.scheduling_gates or ())


def pinned_node(pod: Pod) -> str | None:
    """The one node that a pod's required node affinity names by ``metadata.name``, if it does.

    A pin stands in every term (terms are OR-ed): one term without it, or two that disagree, is no pin. An empty term
    matches nothing, so it takes nothing from a pin.
    """
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None:
        return None
    nodes: set[str | None] = set()
    for term in required.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        named = {
            value
            for field in term.match_fields or ()
            if field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1
            for value in field.values or ()
        }
        nodes.add(named.pop() if len(named) == 1 else None)
    return nodes.pop() if len(nodes) == 1 else None


def is_terminal(pod: Pod) -> bool:
    """A pod that has ended holds no capacity any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def condition(conditions: tuple[Condition, ...] | None, kind: str) -> Condition | None:
    """The condition of a type, if it is there."""
    return next((found for found in conditions or () if found.type == kind), None)
