"""Groups and pods as one serving unit: pure, built anew whenever something in it changes.

A root is a group without a parent. The tree below it (``nodes``) may have any shape that the API allows; admission,
barrier and planner look at it as roles of replicas (``roles``). In the trees that the operator makes each child of the
root is a *role*; below a composite role each PodGroup is a *replica*. A PodGroup directly under the root is a role
whose every pod is a replica of its own, unless it asks for one domain for all its pods: then its minimum is one
replica. A PodGroup without a parent is a unit of one role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from covey.admission.nodes import (
    MAX_DEPTH,
    Key,
    TreeNode,
    grow,
    key_of,
    levels_of,
    number,
    prefers,
)
from covey.admission.roles import Replica, ReplicaPart, Roles, Scope, UnitRole
from covey.api import core
from covey.api.constants import LABEL_REPLICA, LABEL_ROLE, LABEL_TOGETHER_COUNT, LABEL_UNIT


class WorkloadTemplate(core.Read, frozen=True):
    """A template of a Workload, as far as the order of roles depends on it."""

    name: str = ""
    composite_pod_group_templates: tuple[WorkloadTemplate, ...] | None = None
    pod_group_templates: tuple[WorkloadTemplate, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One serving unit. ``roles`` are those whose group exists; ``absent`` counts gang groups still to come."""

    tree: TreeNode
    roles: tuple[UnitRole, ...]
    scopes: tuple[Scope, ...] = ()
    absent: int = 0
    problem: str | None = None
    #: Composites of which some children must come that are not alike, below a replica: which of them was guessed.
    guessed: tuple[str, ...] = ()

    @property
    def root(self) -> core.Group:
        """The group without a parent."""
        return self.tree.group

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
        children = len(self.tree.children)
        return children >= (self.root.spec.desired_group_count or children) and all(
            sum(replica.whole for replica in role.replicas) >= role.desired for role in self.roles
        )

    @property
    def untried(self) -> tuple[str, ...]:
        """Groups whose preferred level no plan aims at: they are only a part of what comes whole."""
        found: list[str] = []
        for role in self.roles:
            if role.whole and len({levels_of(replica.group) for replica in role.replicas}) > 1:
                found += [r.group.metadata.name for r in role.replicas if prefers(r.group)]
            found += [name for replica in role.replicas for part in replica.parts for name in _preferring(part)]
        return tuple(dict.fromkeys(found))

    @property
    def one_by_one(self) -> bool:
        """A root with ``basic`` policy: nothing of it must start together, each pod or group goes by itself."""
        return self.root.spec.scheduling_policy.gang is None

    def minimum_met(self, present: Callable[[core.Pod], bool]) -> bool:
        """The nested minimum holds when only the pods that ``present`` accepts are counted."""
        return (
            self.absent == 0
            and (self.one_by_one or any(role.minimum for role in self.roles))
            and all(
                sum(replica_met(replica, present) for replica in role.replicas) >= role.minimum for role in self.roles
            )
        )


def replica_met(replica: Replica, present: Callable[[core.Pod], bool]) -> bool:
    """Every pod of a replica exists and is accepted."""
    return replica.whole and all(present(pod) for pod in replica.pods)


def minimum_replicas(role: UnitRole, placed: Callable[[core.Pod], bool]) -> tuple[Replica, ...]:
    """The replicas that count as the minimum: those with all their places first, then the lowest numbers."""
    ranked = sorted(role.replicas, key=lambda replica: (not replica_met(replica, placed), replica.number))
    return tuple(ranked[: role.minimum])


def incomplete_sets(unit: Unit) -> frozenset[str]:
    """The ``together`` marks under which fewer replicas are there than there shall be."""
    there, stated = Counter[str](), dict[str, int]()
    for replica in (replica for role in unit.roles for replica in role.replicas if replica.together is not None):
        mark = replica.together or ""
        there[mark] += replica.whole
        metadata = [replica.group.metadata, *(pod.metadata for pod in replica.pods)]
        stated[mark] = max(stated.get(mark, 0), *(number(each.label(LABEL_TOGETHER_COUNT)) for each in metadata))
    return frozenset(mark for mark, count in stated.items() if there[mark] < count)


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
    tree = grow(root, children, pods, declared or {})
    found = Roles(tree)
    return Unit(
        tree,
        tuple(found.roles),
        tuple(found.scopes),
        found.absent,
        _problem(tree, found.roles, children),
        tuple(found.guessed),
    )


def positions(template: WorkloadTemplate) -> dict[str, int]:
    """Template name → its position when the whole tree is read from top to bottom."""
    found: list[str] = []

    def walk(each: WorkloadTemplate) -> None:
        found.append(each.name)
        for child in (*(each.composite_pod_group_templates or ()), *(each.pod_group_templates or ())):
            walk(child)

    walk(template)
    return {name: position for position, name in enumerate(found) if name}


def _preferring(part: ReplicaPart) -> Iterator[str]:
    if prefers(part.group):
        yield part.group.metadata.name
    for inner in part.parts:
        yield from _preferring(inner)


def _problem(
    tree: TreeNode, roles: Sequence[UnitRole], children: Callable[[core.Group], Sequence[core.Group]]
) -> str | None:
    return (
        _find_native_refusal(tree)
        or _too_deep(tree, children)
        or _find_unnamed_role(tree)
        or _same_role(roles)
        or next(filter(None, map(_same_replica, roles)), None)
    )


def _find_native_refusal(tree: TreeNode) -> str | None:
    native = (node.group for node in tree.walk() if isinstance(node.group, core.NativeGroup))
    return next((group.refusal for group in native if group.refusal), None)


def _too_deep(node: TreeNode, children: Callable[[core.Group], Sequence[core.Group]], depth: int = 1) -> str | None:
    if depth == MAX_DEPTH and not node.leaf and children(node.group):
        return f"group {node.group.metadata.name} has children below the level {MAX_DEPTH}, where a tree ends"
    return next(filter(None, (_too_deep(child, children, depth + 1) for child in node.children)), None)


def _find_unnamed_role(tree: TreeNode) -> str | None:
    """Rules that name roles need all of them: of some, nobody can say which."""
    for node in tree.walk():
        if node.count < len(node.gangs) and len({child.follows for child in node.gangs}) > 1:
            return (
                f"of the groups under {node.group.metadata.name} only {node.count} must come, but followUnit differs"
                " between them: give all of them the same"
            )
    constraints = tree.group.spec.scheduling_constraints
    if constraints and constraints.proximity and not tree.leaf and tree.count < len(tree.gangs):
        return (
            f"minGroupCount is {tree.count}, but {len(tree.gangs)} child groups have a gang policy; Covey needs them"
            " equal where proximity names them"
        )
    return None


def _same_role(roles: Sequence[UnitRole]) -> str | None:
    seen: dict[str, UnitRole] = {}
    for role in roles:
        other = seen.setdefault(role.name, role)
        if other is not role:
            names = f"{other.group.metadata.name} and {role.group.metadata.name}"
            return f"groups {names} are both role {role.name}: give each its own name in the label {LABEL_ROLE}"
    return None


def _same_replica(role: UnitRole) -> str | None:
    seen: dict[int, Replica] = {}
    for replica in role.replicas if role.whole else ():
        other = seen.setdefault(replica.number, replica)
        if other is not replica:
            names = f"{other.group.metadata.name} and {replica.group.metadata.name}"
            return (
                f"groups {names} are both replica {replica.number} of role {role.name}: give each its own number, from"
                f" 0, in the label {LABEL_REPLICA}"
            )
    return None
