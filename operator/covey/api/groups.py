"""``scheduling.covey.dev/v1alpha1``: the groups that the operator writes and the scheduler process reads.

Field-compatible with Kubernetes' own ``scheduling.k8s.io`` (Workload and PodGroup v1beta1, CompositePodGroup v1alpha3,
Kubernetes 1.37), plus what those lack. Unlike there, ``minCount`` and ``minGroupCount`` may change, and a policy may
turn from gang to basic, because a role's ``minReplicas`` may.

Nobody reads these: they declare what the CRDs take, and ``covey.api.core.Group`` reads both kinds. First the common parts of groups
and of their templates: policies, disruption, priority.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from covey.api.core import GroupStatus, Meta, Read, RootPreemption, SchedulingConstraints, WorkloadReference
from covey.api.model import IMMUTABLE, LIVE, CelRule, ObjectName

_POLICY_RULE: Final = CelRule(
    "has(self.gang) != has(self.basic)",
    "exactly one of gang and basic must be set: gang for members without which nothing starts, basic for others",
)


class Basic(Read, frozen=True, kw_only=True):
    """Members are placed one by one; nothing waits for them."""


class PodGang(Read, frozen=True, kw_only=True):
    """Pods that are placed together or not at all."""

    min_count: Annotated[int, LIVE, Field(ge=1, le=10_000_000)]
    """Pods without which none may start. At least 1."""


class GroupGang(Read, frozen=True, kw_only=True):
    """Child groups that are placed together or not at all."""

    min_group_count: Annotated[int, LIVE, Field(ge=1, le=10_000)]
    """Child groups with a gang policy without which none may start. At least 1."""


class PodPolicy(Read, frozen=True, kw_only=True):
    """Exactly one of gang and basic."""

    RULES: ClassVar = (_POLICY_RULE,)

    gang: PodGang | None = None
    """Pods that are placed together or not at all."""
    basic: Basic | None = None
    """Pods are placed one by one."""


class GroupPolicy(Read, frozen=True, kw_only=True):
    """Exactly one of gang and basic."""

    RULES: ClassVar = (_POLICY_RULE,)

    gang: GroupGang | None = None
    """Child groups that are placed together or not at all."""
    basic: Basic | None = None
    """Child groups are placed one by one."""


class Everything(Read, frozen=True, kw_only=True):
    """Preemption takes the whole group."""


class Single(Read, frozen=True, kw_only=True):
    """Preemption takes one member."""


class GroupDisruptionMode(Read, frozen=True, kw_only=True):
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


class Prioritised(Read, frozen=True, kw_only=True):
    """The fields by which preemption decides."""

    disruption_mode: GroupDisruptionMode | None = None
    """The members that preemption may take at a time."""
    priority_class_name: Annotated[ObjectName | None, LIVE] = None
    """The PriorityClass of the group's pods."""
    priority: Annotated[int | None, LIVE, Field(ge=-2_147_483_648, le=1_000_000_000)] = None
    """The priority of the group, where it is lower than that of its PriorityClass, which holds otherwise."""


class _GroupSpec(Prioritised, frozen=True, kw_only=True):
    parent_composite_pod_group_name: Annotated[ObjectName | None, IMMUTABLE] = None
    """The CompositePodGroup above, in the same namespace; absent on a root."""
    workload_ref: Annotated[WorkloadReference | None, IMMUTABLE] = None
    """The template that the group was made from."""
    scheduling_constraints: SchedulingConstraints | None = None
    """The domains in which the pods may lie."""


class PodGroupSpec(_GroupSpec, frozen=True, kw_only=True):
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


class CompositePodGroupSpec(_GroupSpec, frozen=True, kw_only=True):
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


class PodGroup(Read, frozen=True, kw_only=True):
    """Pods that are scheduled as one: a leaf of a tree, or a tree of its own."""

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["PodGroup"] = "PodGroup"
    metadata: Meta
    spec: PodGroupSpec
    """The desired state."""
    status: GroupStatus | None = None
    """The observed state, as the scheduler process saw it last."""


class CompositePodGroup(Read, frozen=True, kw_only=True):
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
    metadata: Meta
    spec: CompositePodGroupSpec
    """The desired state."""
    status: GroupStatus | None = None
    """The observed state, as the scheduler process saw it last."""
