"""Groups, and the classes of their priority.

What a group's spec and status hold is declared here; the two kinds, each with its own policy, are declared in
``covey.api.groups``, and read as one (``GroupSpec``), as those of ``scheduling.k8s.io`` are.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from covey.api.core.meta import Conditions, Meta, Read
from covey.api.model import (
    ATOMIC,
    IMMUTABLE,
    LIVE,
    ONE_MODE,
    REQUIRED,
    SET,
    CelRule,
    Count,
    DnsLabel,
    DomainPath,
    LabelKey,
    ListMap,
    ObjectName,
    OneOf,
    Sentence,
    Timestamp,
    Uid,
    Word,
)


class GangPolicy(Read, frozen=True):
    """The gang of a PodGroup (``minCount``, pods) or of a CompositePodGroup (``minGroupCount``, children)."""

    min_count: int | None = None
    min_group_count: int | None = None


class SchedulingPolicy(Read, frozen=True):
    """``schedulingPolicy``: exactly one of gang and basic."""

    gang: GangPolicy | None = None
    basic: dict[str, Any] | None = None


class TopologyConstraint(Read, frozen=True):
    """A domain that pods share."""

    RULES: ClassVar = (
        CelRule("has(self.level) != has(self.key)", "exactly one of level and key must be set: remove one, or add one"),
    )

    level: Annotated[DnsLabel | None, LIVE] = None
    """A level of the topology, such as rack."""
    key: Annotated[LabelKey | None, LIVE] = None
    """The key of a node label, in place of a level."""
    mode: Annotated[str, ONE_MODE, LIVE] = "Required"
    """Required or Preferred. Default: Required."""
    scope: Annotated[str, OneOf(("Group", "Pod")), LIVE] = "Group"
    """Group: all pods of the group in one domain. Pod: each pod's node has such a domain. Default: Group."""


class ProximityConstraint(Read, frozen=True):
    """Child groups that lie together."""

    roles: Annotated[tuple[DnsLabel, ...], SET, LIVE, Field(min_length=1, max_length=16)]
    """Roles, by name, whose pods all lie together."""
    level: Annotated[DnsLabel, LIVE]
    """The level of the topology whose domain they share."""
    mode: Annotated[str, ONE_MODE, LIVE] = "Preferred"
    """Required or Preferred. Default: Preferred."""


class SpreadConstraint(Read, frozen=True):
    """Keeps the roots of one resource apart."""

    level: Annotated[DnsLabel, LIVE]
    """The level of the topology whose domains the roots are spread over."""
    mode: Annotated[str, ONE_MODE, LIVE] = "Preferred"
    """Required or Preferred. Default: Preferred."""
    max_per_domain: Annotated[int, LIVE, Field(ge=1, le=999)] = 1
    """Roots that may share one domain. 1 to 999. Default: 1."""


class SchedulingConstraints(Read, frozen=True):
    """The domains in which the pods of a group may lie."""

    topology_name: Annotated[ObjectName | None, LIVE] = None
    """On a root: the ClusterTopology that levels come from."""
    topology: Annotated[tuple[TopologyConstraint, ...] | None, ATOMIC, Field(max_length=16)] = None
    """Domains that pods share."""
    proximity: Annotated[tuple[ProximityConstraint, ...] | None, ATOMIC, Field(max_length=8)] = None
    """On a root: roles that lie together."""
    spread: SpreadConstraint | None = None
    """On a root: keeps it apart from the other roots of its owner."""
    follow_unit: Annotated[bool | None, LIVE] = None
    """False: the group need not lie in the domain of its root. Default: true."""


class RootPreemption(Read, frozen=True):
    """The terms on which a root takes capacity from others, and gives its own."""

    delay_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds after the first refusal before capacity is taken from others. Default: 60."""
    min_run_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds for which a replica has served before others may take its capacity. Default: 600."""


class WorkloadReference(Read, frozen=True):
    """The template that a group was made from."""

    workload_name: Annotated[ObjectName, REQUIRED, IMMUTABLE] = ""
    """The Workload, in the same namespace."""
    template_name: Annotated[DnsLabel, REQUIRED, IMMUTABLE] = ""
    """The name of a template in it."""


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


class GroupPlacement(Read, frozen=True):
    """The domain that holds all placed pods of a group at one level."""

    level: DnsLabel
    """The level."""
    path: DomainPath
    """The domain: label values from the broadest level down, null where a node lacks the level."""


class Victim(Read, frozen=True):
    """A replica above its minimum, a whole unit, or an ordinary pod, that gives way to the root."""

    kind: Annotated[str, OneOf(("Replica", "Unit", "Pod"))]
    """Replica: one replica above the minimum of its role. Unit: all of a unit. Pod: a pod of no gang, which is evicted."""
    namespace: DnsLabel
    """The namespace of its DisaggregatedInference, or of the pod."""
    name: ObjectName
    """The name of its DisaggregatedInference, or of the pod."""
    unit: Annotated[int, Field(ge=0, le=9_999)]
    """The number of the unit; 0 for a pod."""
    role: Annotated[str, Field(max_length=63)] = ""
    """Of a replica: its role."""
    replica: Annotated[int | None, Field(ge=0, le=99_999)] = None
    """Of a replica: its number in the role."""
    pods: Annotated[tuple[Uid, ...], REQUIRED, ATOMIC, Field(min_length=1, max_length=4096)] = ()
    """The UIDs of its pods; others that come in their places are none of it."""


class Claim(Read, frozen=True):
    """Nodes of a domain whose freed capacity is kept for a waiting root, and what gives way to it there."""

    path: DomainPath
    """The domain: label values from the broadest level down, null where a node lacks the level."""
    since: Timestamp
    """Since when."""
    level: Annotated[str, Field(max_length=63)] = ""
    """The level of the domain."""
    resource: Annotated[str, Field(max_length=317)] = ""
    """The resource that is waited for: ordinary pods that ask for it are kept off unless their priority is higher."""
    nodes: Annotated[tuple[ObjectName, ...], ATOMIC, Field(max_length=4096)] = ()
    """The nodes of the domain that are kept: those where the gang would lie once what is in its way has gone; none while
    the root is at the back of the line, or cannot be planned."""
    blocking_pods: Count = 0
    """The fewest pods that were in the way there and whose end nobody knows."""
    last_progress_time: Timestamp = ""
    """Since when they have not become fewer. After three times --reserve-after the root goes to the back of the line.
    With Capacity: when the last of the nodes came."""
    retry_time: Timestamp | None = None
    """Until when the root is at the back of the line, because it came no nearer for long."""
    purpose: Annotated[
        str, OneOf(("", "Preemption", "Reclaim", "Exchange", "Evacuation", "Succession", "Capacity"))
    ] = ""
    """The reason for which others give way: Preemption (a lower priority), Reclaim (they borrow from the root's queue),
    Exchange (replicas of another role of the same unit). Evacuation: nobody does, replicas of the unit itself drain, and
    capacity is kept for their successors. Succession: the same for replicas of the unit that go for their successors in a
    rollout. Capacity: nodes have come for which an autoscaler was asked, but not all of them.
    Empty where the gang waits for what comes free."""
    victims: Annotated[tuple[Victim, ...], ATOMIC, Field(max_length=256)] = ()
    """Those that give way, as the plan needs them. The operator takes down whole what stands here, and nothing else."""
    message: Annotated[str, Field(max_length=32_768)] = ""
    """The victims and what they free, in a sentence."""
    unproven: bool = False
    """Some victim may be needless: the search met its limit before that was settled."""

    @property
    def where(self) -> str:
        """The domain, or the nodes where it names none."""
        domain = "/".join(value or "-" for value in self.path)
        return f"{self.level} {domain}" if self.level else f"nodes {', '.join(self.nodes)}"


class ExcludedNode(Read, frozen=True):
    """A node that failed the group for a reason the planner does not model."""

    node: ObjectName
    """The node."""
    reason: Sentence
    """The reason, in a sentence."""
    until: Timestamp
    """The time from which it is tried again."""


class RoleHeadroom(Read, frozen=True):
    """Replicas of one role that could be assigned nodes."""

    name: DnsLabel
    """The role."""
    replicas: Count | None = None
    """Replicas that could be assigned nodes over all units of the resource, those that have some included; absent where nobody
    knows."""
    at_least: bool = False
    """There may be capacity for more, which nobody has looked for."""
    message: Sentence = ""
    """The reason for which there is no number, or for which it is not greater where that is not for want of capacity."""


class GroupHeadroom(Read, frozen=True):
    """The answer to the question in the annotation scheduling.covey.dev/headroom."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    observed_at: Annotated[Timestamp, REQUIRED] = ""
    """The time at which it was so."""
    roles: Annotated[tuple[RoleHeadroom, ...] | None, ListMap(("name",)), Field(max_length=16)] = None
    """The roles that were asked for."""


class GroupExchange(Read, frozen=True):
    """The answer to the question in the annotation scheduling.covey.dev/exchange."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    feasible: bool
    """All replicas that are to come have nodes once those that are to go have gone."""
    observed_at: Annotated[Timestamp, REQUIRED] = ""
    """The time at which it was so."""
    message: Annotated[str, Field(max_length=32_768)] = ""
    """The reason for a no."""
    nearest: Annotated[tuple[Word, ...], ATOMIC, Field(max_length=8)] = ()
    """The nearest numbers of replicas of this unit that would do: decode=2,prefill=5."""


class SuccessorStatus(Read, frozen=True):
    """A replica that waits, the first of a set that comes whole, and what would give it its nodes."""

    role: DnsLabel
    """Its role."""
    replica: Annotated[int, Field(ge=0, le=99_999)]
    """Its number in the role."""
    reason: Word = ""
    """The reason for which it has no nodes, whatever goes; empty where it would have them."""
    message: Annotated[str, Field(max_length=32_768)] = ""
    """The same in a sentence; or what it waits for."""
    victims: Annotated[tuple[Victim, ...], ATOMIC, Field(max_length=256)] = ()
    """The replicas of the same unit whose nodes it, and those before it in this list, need: without them it is placed."""


class GroupSuccession(Read, frozen=True):
    """The answer to the question in the annotation scheduling.covey.dev/succession."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    successors: Annotated[tuple[SuccessorStatus, ...], ATOMIC, Field(max_length=64)] = ()
    """The replicas that were asked for, or the first of each set."""


class GroupStatus(Read, frozen=True):
    """The observed state of a group, written by the scheduler process alone."""

    conditions: Conditions | None = None
    """Admitted, Scheduled; on a root with preferred levels TopologySatisfied, on one that was refused Movable, where it
    would fit if it could be moved, and on one whose surplus was refused SurplusAdmitted, which says why."""
    admitted: Count | None = None
    """Members (pods, or child groups) that have their nodes reserved."""
    scheduled: Count | None = None
    """Members (pods, or child groups) that are bound."""
    topology: ObjectName | None = None
    """On a root: the topology that levels come from, a ClusterTopology or a preset. It stays as it is as long as pods of the
    root have nodes, unless spec.schedulingConstraints.topologyName names another."""
    placement: Annotated[tuple[GroupPlacement, ...] | None, ListMap(("level",)), Field(max_length=10)] = None
    """The domain reached at each level."""
    claim: Claim | None = None
    """On a root that has waited for long: where freed capacity is kept for it."""
    excluded_nodes: Annotated[tuple[ExcludedNode, ...] | None, ListMap(("node",)), Field(max_length=1000)] = None
    """Nodes that are not tried for a while."""
    headroom: GroupHeadroom | None = None
    """On a root that was asked: how many replicas of each role of its resource could be assigned nodes."""
    exchange: GroupExchange | None = None
    """On a root that was asked: whether replicas of some roles can replace those of others."""
    succession: GroupSuccession | None = None
    """On a root that was asked: which replicas would have to go for their successors to have nodes."""


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
