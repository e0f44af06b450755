"""``Workload``: the templates of the groups that one unit forms, a tree of at most four levels.

A CRD knows no recursion, so each level of composites has a model of its own.
"""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from covey.api.core import Meta, Read, RootPreemption, SchedulingConstraints
from covey.api.groups import GroupPolicy, PodPolicy, Prioritised
from covey.api.model import BY_NAME, IMMUTABLE, LIVE, CelRule, DnsLabel, ObjectName


class PodGroupTemplate(Prioritised, frozen=True, kw_only=True):
    """A template of PodGroups."""

    name: Annotated[DnsLabel, LIVE]
    """The template's name, unique in the whole Workload."""
    scheduling_policy: PodPolicy
    """The policy: a gang of pods, or pods one by one."""
    desired_count: Annotated[int | None, LIVE, Field(ge=0, le=10_000_000)] = None
    """Pods that the controller means to create."""
    scheduling_constraints: SchedulingConstraints | None = None
    """The domains in which the pods may lie."""


class _CompositeTemplate(Prioritised, frozen=True, kw_only=True):
    name: Annotated[DnsLabel, LIVE]
    """The template's name, unique in the whole Workload."""
    scheduling_policy: GroupPolicy
    """The policy: a gang of child groups, or groups one by one."""
    desired_group_count: Annotated[int | None, LIVE, Field(ge=0, le=10_000)] = None
    """Child groups that the controller means to create."""
    scheduling_constraints: SchedulingConstraints | None = None
    """The domains in which the pods may lie."""
    timeout_seconds: Annotated[int | None, LIVE, Field(ge=1, le=3600)] = None
    """On a root: seconds from admission until the minimum is bound."""
    hold_seconds: Annotated[int | None, LIVE, Field(ge=0, le=3600)] = None
    """On a root: seconds for which the capacity of pods that were lost is held for their successors."""
    preemption: RootPreemption | None = None
    """On a root: the terms on which it takes capacity from others, and gives its own."""
    queue: Annotated[ObjectName | None, LIVE] = None
    """On a root: the Queue whose quota it uses."""


_CHILD_RULE: Final = CelRule(
    "(has(self.podGroupTemplates) && size(self.podGroupTemplates) > 0) || "
    "(has(self.compositePodGroupTemplates) && size(self.compositePodGroupTemplates) > 0)",
    "a composite needs at least one child: add podGroupTemplates or compositePodGroupTemplates",
)


class InnermostTemplate(_CompositeTemplate, frozen=True, kw_only=True):
    """A template of CompositePodGroups two levels below a root; only PodGroups may lie below them."""

    pod_group_templates: Annotated[tuple[PodGroupTemplate, ...], BY_NAME, Field(min_length=1, max_length=16)]
    """Templates of child PodGroups. 1 to 16."""


class InnerTemplate(_CompositeTemplate, frozen=True, kw_only=True):
    """A template of CompositePodGroups below a root."""

    RULES: ClassVar = (_CHILD_RULE,)

    pod_group_templates: Annotated[tuple[PodGroupTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of child PodGroups. At most 16."""
    composite_pod_group_templates: Annotated[tuple[InnermostTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of child CompositePodGroups. At most 16."""


class CompositePodGroupTemplate(_CompositeTemplate, frozen=True, kw_only=True):
    """A template of root CompositePodGroups. The tree is at most 4 deep, PodGroups included."""

    RULES: ClassVar = (_CHILD_RULE,)

    pod_group_templates: Annotated[tuple[PodGroupTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of child PodGroups. At most 16."""
    composite_pod_group_templates: Annotated[tuple[InnerTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of child CompositePodGroups. At most 16."""


class ControllerReference(Read, frozen=True, kw_only=True):
    """The object that a Workload belongs to."""

    api_group: Annotated[str, IMMUTABLE, Field(max_length=253)] = ""
    """Its API group; empty for the core group."""
    kind: Annotated[str, IMMUTABLE, Field(min_length=1, max_length=63)]
    """Its kind."""
    name: Annotated[ObjectName, IMMUTABLE]
    """Its name, in the same namespace."""


class WorkloadSpec(Read, frozen=True, kw_only=True):
    """The templates of one unit."""

    RULES: ClassVar = (
        CelRule(
            "(has(self.podGroupTemplates) && size(self.podGroupTemplates) > 0) != "
            "(has(self.compositePodGroupTemplates) && size(self.compositePodGroupTemplates) > 0)",
            "exactly one of podGroupTemplates and compositePodGroupTemplates must have items: "
            "put groups without a parent in the one, trees in the other",
        ),
    )

    controller_ref: Annotated[ControllerReference | None, IMMUTABLE] = None
    """The object that the Workload belongs to."""
    pod_group_templates: Annotated[tuple[PodGroupTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of PodGroups without a parent. At most 16."""
    composite_pod_group_templates: Annotated[tuple[CompositePodGroupTemplate, ...], BY_NAME, Field(max_length=16)] = ()
    """Templates of root CompositePodGroups. At most 16."""


class Workload(Read, frozen=True, kw_only=True):
    """The templates of the groups that one unit of a controller's pods forms."""

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["Workload"] = "Workload"
    metadata: Meta
    spec: WorkloadSpec
    """The templates of one unit."""
