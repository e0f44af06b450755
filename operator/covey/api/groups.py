"""``scheduling.covey.dev/v1alpha1``: the groups that the operator writes and the scheduler process reads.

Field-compatible with Kubernetes' own ``scheduling.k8s.io`` (Workload and PodGroup v1beta1, CompositePodGroup v1alpha3,
Kubernetes 1.37), plus what those lack. Unlike there, ``minCount`` and ``minGroupCount`` may change, and a policy may
turn from gang to basic, because a role's ``minReplicas`` may.

First the common parts of groups and of their templates: policies, constraints on placement, disruption, priority.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from covey.api.model import (
    ATOMIC,
    IMMUTABLE,
    LIVE,
    SET,
    CelRule,
    Conditions,
    Count,
    DnsLabel,
    DomainPath,
    LabelKey,
    ListMap,
    Mode,
    Model,
    ObjectMeta,
    ObjectName,
    Sentence,
    Timestamp,
    Uid,
    Word,
)

_POLICY_RULE: Final = CelRule(
    "has(self.gang) != has(self.basic)",
    "exactly one of gang and basic must be set: gang for members without which nothing starts, basic for others",
)


class Basic(Model):
    """Members are placed one by one; nothing waits for them."""


class PodGang(Model):
    """Pods that are placed together or not at all."""

    min_count: Annotated[int, LIVE, Field(ge=1, le=10_000_000)]
    """Pods without which none may start. At least 1."""


class GroupGang(Model):
    """Child groups that are placed together or not at all."""

    min_group_count: Annotated[int, LIVE, Field(ge=1, le=10_000)]
    """Child groups with a gang policy without which none may start. At least 1."""


class PodPolicy(Model):
    """Exactly one of gang and basic."""

    RULES: ClassVar = (_POLICY_RULE,)

    gang: PodGang | None = None
    """Pods that are placed together or not at all."""
    basic: Basic | None = None
    """Pods are placed one by one."""


class GroupPolicy(Model):
    """Exactly one of gang and basic."""

    RULES: ClassVar = (_POLICY_RULE,)

    gang: GroupGang | None = None
    """Child groups that are placed together or not at all."""
    basic: Basic | None = None
    """Child groups are placed one by one."""


class TopologyConstraint(Model):
    """A domain that pods share."""

    RULES: ClassVar = (
        CelRule("has(self.level) != has(self.key)", "exactly one of level and key must be set: remove one, or add one"),
    )

    level: Annotated[DnsLabel | None, LIVE] = None
    """A level of the topology, such as rack."""
    key: Annotated[LabelKey | None, LIVE] = None
    """The key of a node label, in place of a level."""
    mode: Annotated[Mode, LIVE] = Mode.REQUIRED
    """Required or Preferred. Default: Required."""
    scope: Annotated[Literal["Group", "Pod"], LIVE] = "Group"
    """Group: all pods of the group in one domain. Pod: each pod's node has such a domain. Default: Group."""


class ProximityConstraint(Model):
    """Child groups that lie together."""

    roles: Annotated[tuple[DnsLabel, ...], SET, LIVE, Field(min_length=1, max_length=16)]
    """Roles, by name, whose pods all lie together."""
    level: Annotated[DnsLabel, LIVE]
    """The level of the topology whose domain they share."""
    mode: Annotated[Mode, LIVE] = Mode.PREFERRED
    """Required or Preferred. Default: Preferred."""


class SpreadConstraint(Model):
    """Keeps the roots of one resource apart."""

    level: Annotated[DnsLabel, LIVE]
    """The level of the topology whose domains the roots are spread over."""
    mode: Annotated[Mode, LIVE] = Mode.PREFERRED
    """Required or Preferred. Default: Preferred."""
    max_per_domain: Annotated[int, LIVE, Field(ge=1, le=999)] = 1
    """Roots that may share one domain. 1 to 999. Default: 1."""


class SchedulingConstraints(Model):
    """The domains in which the pods of a group may lie."""

    topology_name: Annotated[ObjectName | None, LIVE] = None
    """On a root: the ClusterTopology that levels come from."""
    topology: Annotated[tuple[TopologyConstraint, ...], ATOMIC, Field(max_length=16)] = ()
    """Domains that pods share."""
    proximity: Annotated[tuple[ProximityConstraint, ...], ATOMIC, Field(max_length=8)] = ()
    """On a root: roles that lie together."""
    spread: SpreadConstraint | None = None
    """On a root: keeps it apart from the other roots of its owner."""
    follow_unit: Annotated[bool | None, LIVE] = None
    """False: the group need not lie in the domain of its root. Default: true."""


class Everything(Model):
    """Preemption takes the whole group."""


class Single(Model):
    """Preemption takes one member."""


class GroupDisruptionMode(Model):
    """The pods that preemption may take at a time; exactly one of single and all."""

    RULES: ClassVar = (
        CelRule(
            "has(self.single) != has(self.all)", "exactly one of single and all must be set: remove one, or add one"
        ),
    )

    single: Single | None = None
    """One member."""
    all: Everything | None = None
    """The whole group."""


class Prioritised(Model):
    """The fields by which preemption decides."""

    disruption_mode: GroupDisruptionMode | None = None
    """The members that preemption may take at a time."""
    priority_class_name: Annotated[ObjectName | None, LIVE] = None
    """The PriorityClass of the group's pods."""
    priority: Annotated[int | None, LIVE, Field(ge=-2_147_483_648, le=1_000_000_000)] = None
    """The priority of the group, where it is lower than that of its PriorityClass, which holds otherwise."""


class RootPreemption(Model):
    """The terms on which a root takes capacity from others, and gives its own."""

    delay_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds after the first refusal before capacity is taken from others. Default: 60."""
    min_run_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds for which a replica has served before others may take its capacity. Default: 600."""


class WorkloadReference(Model):
    """The template that a group was made from."""

    workload_name: Annotated[ObjectName, IMMUTABLE]
    """The Workload, in the same namespace."""
    template_name: Annotated[DnsLabel, IMMUTABLE]
    """The name of a template in it."""


class _GroupSpec(Prioritised):
    parent_composite_pod_group_name: Annotated[ObjectName | None, IMMUTABLE] = None
    """The CompositePodGroup above, in the same namespace; absent on a root."""
    workload_ref: Annotated[WorkloadReference | None, IMMUTABLE] = None
    """The template that the group was made from."""
    scheduling_constraints: SchedulingConstraints | None = None
    """The domains in which the pods may lie."""


class PodGroupSpec(_GroupSpec):
    """The desired state of a group of pods."""

    scheduling_policy: PodPolicy
    """The policy: a gang of pods, or pods one by one."""
    desired_count: Annotated[int | None, LIVE, Field(ge=0, le=10_000_000)] = None
    """Pods that the controller means to create; the scheduler waits for them a short while."""
    membership: Annotated[Literal["Owner", "Namespace"], IMMUTABLE] = "Owner"
    """The pods that the label makes members. Owner: those with the same controller as the group. Namespace: those of any
    controller, no more than desiredCount. Default: Owner."""
    timeout_seconds: Annotated[int | None, LIVE, Field(ge=1, le=3600)] = None
    """On a group without a parent: seconds from admission until the minimum is bound. 1 to 3600."""


class CompositePodGroupSpec(_GroupSpec):
    """The desired state of a group of groups."""

    scheduling_policy: GroupPolicy
    """The policy: a gang of child groups, or groups one by one."""
    desired_group_count: Annotated[int | None, LIVE, Field(ge=0, le=10_000)] = None
    """Child groups that the controller means to create; the scheduler waits for them a short while."""
    timeout_seconds: Annotated[int | None, LIVE, Field(ge=1, le=3600)] = None
    """On a root: seconds from admission until the minimum is bound; after that it is released and planned again.
    1 to 3600."""
    hold_seconds: Annotated[int | None, LIVE, Field(ge=0, le=3600)] = None
    """On a root: seconds for which the capacity of pods that were lost is held for their successors. 0 to 3600. Default:
    none."""
    preemption: RootPreemption | None = None
    """On a root: the terms on which it takes capacity from others, and gives its own."""
    queue: Annotated[ObjectName | None, LIVE] = None
    """On a root: the Queue whose quota it uses. Default: the only one that selects its namespace."""


class GroupPlacement(Model):
    """The domain that holds all placed pods of a group at one level."""

    level: DnsLabel
    """The level."""
    path: DomainPath
    """The domain: label values from the broadest level down, null where a node lacks the level."""


class Victim(Model):
    """A replica above its minimum, a whole unit, or an ordinary pod, that gives way to the root."""

    kind: Literal["Replica", "Unit", "Pod"]
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
    pods: Annotated[tuple[Uid, ...], ATOMIC, Field(min_length=1, max_length=4096)]
    """The UIDs of its pods; others that come in their places are none of it."""


class Claim(Model):
    """Nodes of a domain whose freed capacity is kept for a waiting root, and what gives way to it there."""

    path: DomainPath
    """The domain: label values from the broadest level down, null where a node lacks the level."""
    level: Annotated[str, Field(max_length=63)] = ""
    """The level of the domain."""
    resource: Annotated[str, Field(max_length=317)] = ""
    """The resource that is waited for: ordinary pods that ask for it are kept off unless their priority is higher."""
    nodes: Annotated[tuple[ObjectName, ...], ATOMIC, Field(max_length=4096)] = ()
    """The nodes of the domain that are kept: those where the gang would lie once what is in its way has gone; none while
    the root is at the back of the line, or cannot be planned."""
    since: Timestamp
    """Since when."""
    blocking_pods: Count = 0
    """The fewest pods that were in the way there and whose end nobody knows."""
    last_progress_time: Timestamp | None = None
    """Since when they have not become fewer. After three times --reserve-after the root goes to the back of the line.
    With Capacity: when the last of the nodes came."""
    retry_time: Timestamp | None = None
    """Until when the root is at the back of the line, because it came no nearer for long."""
    purpose: Literal["", "Preemption", "Reclaim", "Exchange", "Evacuation", "Succession", "Capacity"] = ""
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


class ExcludedNode(Model):
    """A node that failed the group for a reason the planner does not model."""

    node: ObjectName
    """The node."""
    reason: Sentence
    """The reason, in a sentence."""
    until: Timestamp
    """The time from which it is tried again."""


class RoleHeadroom(Model):
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


class GroupHeadroom(Model):
    """The answer to the question in the annotation scheduling.covey.dev/headroom."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    observed_at: Timestamp
    """The time at which it was so."""
    roles: Annotated[tuple[RoleHeadroom, ...], ListMap(("name",)), Field(max_length=16)] = ()
    """The roles that were asked for."""


class GroupExchange(Model):
    """The answer to the question in the annotation scheduling.covey.dev/exchange."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    observed_at: Timestamp
    """The time at which it was so."""
    feasible: bool
    """All replicas that are to come have nodes once those that are to go have gone."""
    message: Annotated[str, Field(max_length=32_768)] = ""
    """The reason for a no."""
    nearest: Annotated[tuple[Word, ...], ATOMIC, Field(max_length=8)] = ()
    """The nearest numbers of replicas of this unit that would do: decode=2,prefill=5."""


class SuccessorStatus(Model):
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


class GroupSuccession(Model):
    """The answer to the question in the annotation scheduling.covey.dev/succession."""

    asked: Annotated[str, Field(min_length=1, max_length=253)]
    """The question that it answers."""
    successors: Annotated[tuple[SuccessorStatus, ...], ATOMIC, Field(max_length=64)] = ()
    """The replicas that were asked for, or the first of each set."""


class GroupStatus(Model):
    """The observed state, as the scheduler process saw it last."""

    conditions: Conditions = ()
    """Admitted, Scheduled; on a root with preferred levels TopologySatisfied, on one that was refused Movable, where it
    would fit if it could be moved, and on one whose surplus was refused SurplusAdmitted, which says why."""
    admitted: Count | None = None
    """Members (pods, or child groups) that have their nodes reserved."""
    scheduled: Count | None = None
    """Members (pods, or child groups) that are bound."""
    topology: ObjectName | None = None
    """On a root: the topology that levels come from, a ClusterTopology or a preset. It stays as it is as long as pods of the
    root have nodes, unless spec.schedulingConstraints.topologyName names another."""
    placement: Annotated[tuple[GroupPlacement, ...], ListMap(("level",)), Field(max_length=10)] = ()
    """The domain reached at each level."""
    claim: Claim | None = None
    """On a root that has waited for long: where freed capacity is kept for it."""
    excluded_nodes: Annotated[tuple[ExcludedNode, ...], ListMap(("node",)), Field(max_length=1000)] = ()
    """Nodes that are not tried for a while."""
    headroom: GroupHeadroom | None = None
    """On a root that was asked: how many replicas of each role of its resource could be assigned nodes."""
    exchange: GroupExchange | None = None
    """On a root that was asked: whether replicas of some roles can replace those of others."""
    succession: GroupSuccession | None = None
    """On a root that was asked: which replicas would have to go for their successors to have nodes."""


class PodGroup(Model):
    """Pods that are scheduled as one: a leaf of a tree, or a tree of its own."""

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["PodGroup"] = "PodGroup"
    metadata: ObjectMeta
    spec: PodGroupSpec
    """The desired state."""
    status: GroupStatus | None = None
    """The observed state, as the scheduler process saw it last."""


class CompositePodGroup(Model):
    """Groups that are scheduled as one."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.spec.parentCompositePodGroupName) || "
            "self.spec.parentCompositePodGroupName != self.metadata.name",
            "a group cannot lie below itself: name another group, or none for a root",
            at=".spec.parentCompositePodGroupName",
        ),
    )

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["CompositePodGroup"] = "CompositePodGroup"
    metadata: ObjectMeta
    spec: CompositePodGroupSpec
    """The desired state."""
    status: GroupStatus | None = None
    """The observed state, as the scheduler process saw it last."""
