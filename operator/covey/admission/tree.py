"""Groups and pods as a tree of one serving unit: pure, built anew whenever something in it changes.

A root is a group without a parent. Below it each child is a *role*; below a composite role each PodGroup is a
*replica*. A PodGroup directly under the root is a role whose every pod is a replica of its own, unless it asks for
one domain for all its pods: then it is one replica. A PodGroup without a parent is a unit of one role.

Only pods that can stand for their place are in the tree: members by label, namespace and controlling owner, not
ended, not being deleted, not released; one for each place, and a bound one before any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from covey.admission import podstate
from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_REPLICA, LABEL_ROLE, LABEL_TOGETHER, LABEL_UNIT


class Key(NamedTuple):
    """A group. Its kind belongs to it: a PodGroup and a CompositePodGroup may have the same name."""

    kind: str
    namespace: str
    name: str


class Template(core.Read, frozen=True):
    """A template of a Workload, as far as the order of roles depends on it."""

    name: str = ""
    composite_pod_group_templates: tuple[Template, ...] | None = None
    pod_group_templates: tuple[Template, ...] | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica: ``pods`` are those that exist, by ascending index; it is whole when there are ``size``."""

    number: int
    group: core.Group
    size: int
    pods: tuple[core.Pod, ...]
    together: str | None = None

    @property
    def whole(self) -> bool:
        """Every pod of the replica exists."""
        return len(self.pods) >= self.size


@dataclass(frozen=True, slots=True)
class Role:
    """One role; ``minimum`` and ``desired`` count replicas. ``minimum`` 0 is a role outside the gang."""

    name: str
    group: core.Group
    minimum: int
    desired: int
    replicas: tuple[Replica, ...]

    @property
    def composite(self) -> bool:
        """Each replica has a group of its own."""
        return self.group.kind == "CompositePodGroup"

    @property
    def follows(self) -> bool:
        """The role lies in its unit's domain."""
        return (self.group.spec.scheduling_constraints or core.SchedulingConstraints()).follow_unit


@dataclass(frozen=True, slots=True)
class Unit:
    """One serving unit. ``roles`` are those whose group exists; ``absent`` counts gang children still to come."""

    root: core.Group
    roles: tuple[Role, ...]
    absent: int = 0
    desired_roles: int = 0
    problem: str | None = None

    @property
    def key(self) -> Key:
        """The root's key."""
        return key_of(self.root)

    @property
    def index(self) -> int:
        """The unit's number in its workload."""
        return number(self.root.metadata.label(LABEL_UNIT))

    @property
    def timeout(self) -> float:
        """Seconds that an admitted gang may take until it is bound."""
        return float(self.root.spec.timeout_seconds or 300)

    def pods(self) -> Iterable[core.Pod]:
        """Every pod that stands for a place."""
        return (pod for role in self.roles for replica in role.replicas for pod in replica.pods)

    def followers(self) -> Iterable[core.Pod]:
        """Every pod of the roles that lie in the unit's domain."""
        return (pod for role in self.roles if role.follows for replica in role.replicas for pod in replica.pods)

    def all_there(self) -> bool:
        """Every role and replica that its controller means to create exists with all its pods."""
        return len(self.roles) >= self.desired_roles and all(
            sum(replica.whole for replica in role.replicas) >= role.desired for role in self.roles
        )

    @property
    def one_by_one(self) -> bool:
        """A PodGroup alone with ``basic`` policy: nothing of it must start together, each pod goes by itself."""
        return self.root.kind == "PodGroup" and self.root.spec.scheduling_policy.gang is None

    def minimum_met(self, present: Callable[[core.Pod], bool]) -> bool:
        """The nested minimum holds when only the pods that ``present`` accepts are counted."""
        return (
            self.absent == 0
            and (self.one_by_one or any(role.minimum for role in self.roles))
            and all(
                sum(replica_met(replica, present) for replica in role.replicas) >= role.minimum for role in self.roles
            )
        )


def key_of(group: core.Group) -> Key:
    """A group's key."""
    return Key(group.kind, group.metadata.namespace, group.metadata.name)


def replica_met(replica: Replica, present: Callable[[core.Pod], bool]) -> bool:
    """Every pod of a replica exists and is accepted."""
    return replica.whole and all(present(pod) for pod in replica.pods)


def minimum_replicas(role: Role, placed: Callable[[core.Pod], bool]) -> tuple[Replica, ...]:
    """The replicas that count as the minimum: those with all their places first, then the lowest numbers."""
    ranked = sorted(role.replicas, key=lambda replica: (not replica_met(replica, placed), replica.number))
    return tuple(ranked[: role.minimum])


def build_unit(
    root: core.Group,
    children: Callable[[core.Group], Sequence[core.Group]],
    pods: Callable[[core.Group], Iterable[core.Pod]],
    declared: Mapping[str, int] | None = None,
) -> Unit:
    """Assemble a unit.

    Args:
        root: a group without a parent.
        children: the groups whose parent a composite group is.
        pods: the pods that carry a PodGroup's label, members or not.
        declared: template name → position in the Workload, which orders the roles; without it names do.
    """
    if root.kind == "PodGroup":
        return Unit(root, (_pod_role(root, pods),), desired_roles=1)
    positions = declared or {}
    groups = sorted(children(root), key=lambda group: (_position(group, positions), group.metadata.name))
    roles = tuple(_role(group, children, pods) for group in groups)
    gang_roles = sum(role.minimum > 0 for role in roles)
    gang = root.spec.scheduling_policy.gang
    wanted = (gang.min_group_count or 0) if gang else 0
    return Unit(
        root,
        roles,
        absent=max(0, wanted - gang_roles),
        desired_roles=root.spec.desired_group_count or len(roles),
        problem=_problem(root, roles, children, wanted, gang_roles),
    )


def positions(template: Template) -> dict[str, int]:
    """Template name → its position when the whole tree is read from top to bottom."""
    found: list[str] = []

    def walk(each: Template) -> None:
        found.append(each.name)
        for child in (*(each.composite_pod_group_templates or ()), *(each.pod_group_templates or ())):
            walk(child)

    walk(template)
    return {name: position for position, name in enumerate(found) if name}


def number(text: str | None, default: int = 0) -> int:
    """A label's value as a number."""
    return int(text) if text is not None and text.isdecimal() else default


def minimum_of(group: core.Group) -> int:
    """``minCount`` or ``minGroupCount``; 0 for a group outside the gang (``basic``)."""
    gang = group.spec.scheduling_policy.gang
    if gang is None:
        return 0
    count = gang.min_group_count if group.kind == "CompositePodGroup" else gang.min_count
    return count or 0


def role_name(group: core.Group) -> str:
    """The role's label; a tree that is not from our operator is named by its groups."""
    return group.metadata.label(LABEL_ROLE) or group.metadata.name


def _position(group: core.Group, declared: Mapping[str, int]) -> int:
    reference = group.spec.workload_ref
    return declared.get(reference.template_name, len(declared)) if reference else len(declared)


def _role(
    group: core.Group,
    children: Callable[[core.Group], Sequence[core.Group]],
    pods: Callable[[core.Group], Iterable[core.Pod]],
) -> Role:
    if group.kind == "PodGroup":
        return _pod_role(group, pods)
    leaves = [leaf for leaf in children(group) if leaf.kind == "PodGroup"]
    numbered = sorted(leaves, key=lambda leaf: (number(leaf.metadata.label(LABEL_REPLICA)), leaf.metadata.name))
    foreign = any(leaf.metadata.label(LABEL_REPLICA) is None for leaf in leaves)
    replicas = tuple(
        _replica(position if foreign else number(leaf.metadata.label(LABEL_REPLICA)), leaf, pods)
        for position, leaf in enumerate(numbered)
    )
    minimum = minimum_of(group)
    desired = group.spec.desired_group_count
    return Role(role_name(group), group, minimum, _desired(desired, minimum, len(replicas)), replicas)


def _pod_role(group: core.Group, pods: Callable[[core.Group], Iterable[core.Pod]]) -> Role:
    if _one_domain(group) and group.spec.parent_composite_pod_group_name:
        return Role(role_name(group), group, min(1, minimum_of(group)), 1, (_replica(0, group, pods),))
    places = _places(pods(group), group, LABEL_REPLICA)
    together = group.metadata.label(LABEL_TOGETHER)
    replicas = tuple(
        Replica(place, group, 1, (pod,), pod.metadata.label(LABEL_TOGETHER) or together) for place, pod in places
    )
    minimum = minimum_of(group)
    return Role(role_name(group), group, minimum, _desired(group.spec.desired_count, minimum, len(replicas)), replicas)


def _replica(place: int, group: core.Group, pods: Callable[[core.Group], Iterable[core.Pod]]) -> Replica:
    size = minimum_of(group) or group.spec.desired_count or 1
    members = tuple(pod for _, pod in _places(pods(group), group, LABEL_INDEX))[:size]
    return Replica(place, group, size, members, group.metadata.label(LABEL_TOGETHER))


def _desired(desired: int | None, minimum: int, existing: int) -> int:
    return max(minimum, existing) if desired is None else max(minimum, desired)


def _one_domain(group: core.Group) -> bool:
    constraints = group.spec.scheduling_constraints
    return any(each.scope == "Group" for each in (constraints.topology or ())) if constraints else False


def _places(pods: Iterable[core.Pod], group: core.Group, label: str) -> list[tuple[int, core.Pod]]:
    """One pod for each value of the label, by that number; pods without it follow by name."""
    best: dict[int, core.Pod] = {}
    unnumbered: list[core.Pod] = []
    for pod in pods:
        if not (podstate.counts(pod) and podstate.is_member(pod, group)):
            continue
        place = number(pod.metadata.label(label), -1)
        if place < 0:
            unnumbered.append(pod)
        elif place not in best or _rank(pod) < _rank(best[place]):
            best[place] = pod
    after = max(best, default=-1) + 1
    unnumbered.sort(key=lambda pod: pod.metadata.name)
    return [*sorted(best.items()), *enumerate(unnumbered, start=after)]


def _rank(pod: core.Pod) -> tuple[int, str, str]:
    """Bound before pinned before gated before what somebody else let go, then the older."""
    state = 0 if podstate.bound(pod) else 1 if podstate.pinned(pod) else 2 if podstate.gated(pod) else 3
    return (state, pod.metadata.creation_timestamp, pod.metadata.uid)


def _problem(
    root: core.Group,
    roles: Sequence[Role],
    children: Callable[[core.Group], Sequence[core.Group]],
    wanted: int,
    gang_roles: int,
) -> str | None:
    if root.spec.scheduling_policy.gang is None:
        return "the root group has no gang policy"
    if wanted < gang_roles:
        return f"minGroupCount is {wanted}, but {gang_roles} child groups have a gang policy; Covey needs them equal"
    for group in (role.group for role in roles):
        if any(leaf.kind != "PodGroup" for leaf in children(group)):
            return f"group {group.metadata.name} has composite children; Covey plans root, role and replica"
    return _same_role(roles) or next(filter(None, map(_same_replica, roles)), None)


def _same_role(roles: Sequence[Role]) -> str | None:
    seen: dict[str, Role] = {}
    for role in roles:
        other = seen.setdefault(role.name, role)
        if other is not role:
            names = f"{other.group.metadata.name} and {role.group.metadata.name}"
            return f"groups {names} are both role {role.name}: give each its own name in the label {LABEL_ROLE}"
    return None


def _same_replica(role: Role) -> str | None:
    seen: dict[int, Replica] = {}
    for replica in role.replicas if role.composite else ():
        other = seen.setdefault(replica.number, replica)
        if other is not replica:
            names = f"{other.group.metadata.name} and {replica.group.metadata.name}"
            return (
                f"groups {names} are both replica {replica.number} of role {role.name}: give each its own number, from"
                f" 0, in the label {LABEL_REPLICA}"
            )
    return None
