"""Groups, and the classes of their priority."""

from __future__ import annotations

from typing import Any, ClassVar

from covey.api.core.meta import Condition, Meta, Read


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
    """The number of units of one resource that may share one domain of a level."""

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


class RootPreemption(Read, frozen=True):
    """The terms on which a root takes capacity from others, and gives its own, in seconds."""

    delay_seconds: int | None = None
    min_run_seconds: int | None = None


class GroupSpec(Read, frozen=True):
    """The spec of a PodGroup or a CompositePodGroup (the other kind's fields stay None)."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    #: Of a PodGroup: the pods that its members are among, those of its own controller (``Owner``) or all (``Namespace``).
    membership: str = "Owner"
    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    desired_count: int | None = None
    desired_group_count: int | None = None
    scheduling_constraints: SchedulingConstraints | None = None
    timeout_seconds: int | None = None
    hold_seconds: int | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption: RootPreemption | None = None
    queue: str | None = None


class ExcludedNode(Read, frozen=True):
    """A node that failed this group for a reason the planner does not model, until a time (RFC 3339)."""

    node: str
    reason: str
    until: str


class GroupPlacement(Read, frozen=True):
    """The domain that holds all placed pods of a group at one level; ``path`` runs from the broadest level down."""

    level: str
    path: tuple[str | None, ...]


class Victim(Read, frozen=True):
    """A replica above its minimum, a whole unit, or an ordinary pod (``kind``), that gives way; ``pods`` are UIDs."""

    kind: str
    namespace: str
    name: str
    unit: int
    role: str = ""
    replica: int | None = None
    pods: tuple[str, ...] = ()


class Claim(Read, frozen=True):
    """Nodes of a domain whose freed capacity is kept for a waiting root, and what gives way to it there."""

    path: tuple[str | None, ...]
    since: str
    level: str = ""
    resource: str = ""
    #: Of the domain, those that are kept; none while the root is at the back of the line, or cannot be planned.
    nodes: tuple[str, ...] = ()
    blocking_pods: int = 0
    last_progress_time: str = ""
    retry_time: str | None = None
    purpose: str = ""
    victims: tuple[Victim, ...] = ()
    message: str = ""
    unproven: bool = False

    @property
    def where(self) -> str:
        """The domain, or the nodes where it names none."""
        domain = "/".join(value or "-" for value in self.path)
        return f"{self.level} {domain}" if self.level else f"nodes {', '.join(self.nodes)}"


class RoleHeadroom(Read, frozen=True):
    """Replicas of a role that could be assigned nodes; none where nobody knows, and then ``message`` says why."""

    name: str
    replicas: int | None = None
    at_least: bool = False
    message: str = ""


class Headroom(Read, frozen=True):
    """The answer to a question for head-room."""

    asked: str
    observed_at: str = ""
    roles: tuple[RoleHeadroom, ...] | None = None


class GroupExchange(Read, frozen=True):
    """The answer to the question whether replicas of some roles can replace those of others."""

    asked: str
    feasible: bool
    observed_at: str = ""
    message: str = ""
    nearest: tuple[str, ...] = ()


class SuccessorStatus(Read, frozen=True):
    """A waiting replica, the first of a set that comes whole, and what would give it its nodes.

    ``victims``: replicas without which it has them; none where it has, or capacity comes free. ``reason``: why it has none
    whatever goes, empty where it has; ``message`` says so in a sentence.
    """

    role: str
    replica: int
    reason: str = ""
    message: str = ""
    victims: tuple[Victim, ...] = ()


class GroupSuccession(Read, frozen=True):
    """The answer to the question which replicas would have to go for others of their unit to have nodes."""

    asked: str
    successors: tuple[SuccessorStatus, ...] = ()


class GroupStatus(Read, frozen=True):
    """The status of a group, written by the scheduler process alone."""

    conditions: tuple[Condition, ...] | None = None
    #: Of a root: the topology in which it is planned, or with which its pods were placed.
    topology: str | None = None
    placement: tuple[GroupPlacement, ...] | None = None
    claim: Claim | None = None
    excluded_nodes: tuple[ExcludedNode, ...] | None = None
    #: Pods (PodGroup) or child groups (CompositePodGroup) that are admitted, and that are bound.
    admitted: int | None = None
    scheduled: int | None = None
    headroom: Headroom | None = None
    exchange: GroupExchange | None = None
    succession: GroupSuccession | None = None


class Group(Read, frozen=True):
    """A PodGroup or a CompositePodGroup of ``scheduling.covey.dev``."""

    #: Whether it is one of ``scheduling.k8s.io``.
    is_native: ClassVar[bool] = False

    metadata: Meta
    kind: str = ""
    api_version: str = ""
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()


class NativeGroup(Group, frozen=True):
    """A PodGroup or a CompositePodGroup of ``scheduling.k8s.io`` as one of Covey's (``admission.native``).

    ``metadata.name`` is one that no group of Covey's can have; ``original`` is its own. ``is_one_of``: its policy is
    ``basic``, below another group. ``is_rest``: of a gang that has run fewer pods than its minimum wait. ``refusal``: what
    Covey cannot carry, in a sentence.
    """

    is_native: ClassVar[bool] = True

    original: str = ""
    is_one_of: bool = False
    is_rest: bool = False
    refusal: str | None = None


class PriorityClass(Read, frozen=True):
    """``scheduling.k8s.io/v1`` PriorityClass."""

    metadata: Meta
    value: int = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
