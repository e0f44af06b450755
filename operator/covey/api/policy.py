"""The common parts of groups and of their templates: policies, constraints on placement, disruption, priority."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from covey.api.meta import DnsLabel, LabelKey, Mode, ObjectName
from covey.api.model import ATOMIC, LIVE, SET, Model, Rule

_POLICY_RULE: Final = Rule(
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
        Rule("has(self.level) != has(self.key)", "exactly one of level and key must be set: remove one, or add one"),
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
    """Where the pods of a group may lie."""

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


class DisruptionMode(Model):
    """The pods that preemption may take at a time; exactly one of single and all."""

    RULES: ClassVar = (
        Rule("has(self.single) != has(self.all)", "exactly one of single and all must be set: remove one, or add one"),
    )

    single: Single | None = None
    """One member."""
    all: Everything | None = None
    """The whole group."""


class Prioritised(Model):
    """The fields by which preemption decides."""

    disruption_mode: DisruptionMode | None = None
    """What preemption may take at a time."""
    priority_class_name: Annotated[ObjectName | None, LIVE] = None
    """The PriorityClass of the group's pods."""
    priority: Annotated[int | None, LIVE, Field(ge=-2_147_483_648, le=1_000_000_000)] = None
    """The priority of the group, where it is lower than that of its PriorityClass, which holds otherwise."""


class RootPreemption(Model):
    """The terms on which a root takes room from others, and gives its own."""

    delay_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds after the first refusal before room is taken from others. Default: 60."""
    min_run_seconds: Annotated[int | None, LIVE, Field(ge=0, le=86400)] = None
    """Seconds for which a replica has served before others may take its room. Default: 600."""
