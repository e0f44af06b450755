"""A tree in the planner's terms: roles whose replicas come whole, and scopes that confine some of them. Pure.

A subtree whose minimum is one set of pods is one *replica*, whatever groups it consists of (``ReplicaPart``). Groups that must
all come are taken apart; of groups of which only some must come, each is a replica of one role. What is beyond a
minimum is a role outside the gang: its pods, or its groups, come one by one *after* what they are surplus of. A level
on a group that is more than one replica is a *scope* over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from covey.admission.nodes import TreeNode, gang_of, levels_of, places, replica_number, role_name, split_by_minimum
from covey.api import core
from covey.api.constants import LABEL_REPLICA, LABEL_ROLE, LABEL_TOGETHER

#: A replica: its role's name and its number.
Member = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReplicaPart:
    """A group inside a replica. ``pods`` are all under it, those of ``parts`` too."""

    group: core.Group
    pods: tuple[core.Pod, ...]
    parts: tuple[ReplicaPart, ...] = ()


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica: ``pods`` are those that exist, by ascending index; it is whole when there are ``size``.

    ``group`` is the one that it is the minimum of, or whose single pod it is. It may be placed only once the replica
    that it is surplus of (``after``) is.
    """

    number: int
    group: core.Group
    size: int
    pods: tuple[core.Pod, ...]
    together: str | None = None
    parts: tuple[ReplicaPart, ...] = ()
    after: Member | None = None

    @property
    def whole(self) -> bool:
        """Every pod of the replica exists."""
        return len(self.pods) >= self.size


@dataclass(frozen=True, slots=True)
class UnitRole:
    """One role; ``minimum`` and ``desired`` count replicas. ``minimum`` 0 is a role outside the gang."""

    name: str
    group: core.Group
    minimum: int
    desired: int
    replicas: tuple[Replica, ...]
    follows: bool = True
    #: Each replica is the minimum of its own group, not one pod of the role's.
    whole: bool = False
    #: Which replicas are the minimum is free: they are not alike, and nobody numbered them.
    free: bool = False


@dataclass(frozen=True, slots=True)
class Scope:
    """A group whose level holds for several replicas, and for ``beside``: pods that are parts of replicas."""

    group: core.Group
    members: tuple[Member, ...]
    beside: tuple[core.Pod, ...] = ()


@dataclass(slots=True)
class _Open:
    """A scope that is still being filled."""

    group: core.Group
    members: list[Member] = field(default_factory=list)
    beside: tuple[core.Pod, ...] = ()


class Roles:
    """The roles and scopes of a tree. ``absent`` counts gang groups that do not exist yet."""

    def __init__(self, root: TreeNode) -> None:
        self.roles: list[UnitRole] = []
        self.scopes: list[Scope] = []
        self.absent = 0
        #: Composites inside a replica whose children are not alike: which of them are its minimum was guessed.
        self.guessed: list[str] = []
        self._names: set[str] = set()
        self._root = root
        if root.leaf:
            self._pods(root, follows=True)
        else:
            self._members_below(root, follows=True)

    def _must(self, node: TreeNode, *, follows: bool) -> list[Member]:
        """The replicas of a group that belongs to the unit's minimum as a whole, or is outside the gang."""
        follows = follows and node.follows
        if node.leaf and node.count and node.confined:
            return self._siblings(node, [node], 1, follows=follows, path=())
        members = self._pods(node, follows=follows) if node.leaf else self._members_below(node, follows=follows)
        if node.confined:
            self.scopes.append(Scope(node.group, tuple(members)))
        return members

    def _members_below(self, node: TreeNode, *, follows: bool) -> list[Member]:
        """The replicas of everything under a composite."""
        if not node.count:
            return self._gangs_of_their_own(node, node.children, follows=follows, path=(), after=None)
        gangs = node.gangs
        basic = [child for child in node.children if not child.count]
        members: list[Member] = []
        if node.count < len(gangs) or (node is not self._root and _alike(gangs)):
            members += self._siblings(node, gangs, node.count, follows=follows, path=())
            for child in basic:
                members += self._must(child, follows=follows)
            return members
        self.absent += node.count - len(gangs)
        for child in node.children:
            members += self._must(child, follows=follows)
        return members

    def _pods(
        self, node: TreeNode, *, follows: bool, name: str | None = None, after: Member | None = None
    ) -> list[Member]:
        """A role of single pods: a leaf that must come without a domain of its own, or a basic one."""
        together = node.group.metadata.label(LABEL_TOGETHER)
        replicas = tuple(
            Replica(place, node.group, 1, (pod,), pod.metadata.label(LABEL_TOGETHER) or together, after=after)
            for place, pod in places(node, LABEL_REPLICA)
        )
        desired = _desired_count(node.group.spec.desired_count, node.count, len(replicas))
        return self._add(name or role_name(node.group), node, node.count, desired, replicas, follows=follows)

    def _siblings(
        self,
        owner: TreeNode,
        nodes: Sequence[TreeNode],
        minimum: int,
        *,
        follows: bool,
        path: tuple[_Open, ...],
        name: str | None = None,
        after: Member | None = None,
    ) -> list[Member]:
        """One role: the minimum of each node is a replica; then what is surplus of each."""
        follows = follows and all(node.follows for node in nodes)
        numbered = _are_numbered(nodes)
        free = minimum < len(nodes) and not numbered and not _alike(nodes, pods=True)
        apart = free or (not minimum and not numbered and not _alike(nodes, pods=True))
        ordered = sorted(nodes, key=_place) if numbered else list(nodes)
        replicas = []
        for position, node in enumerate(ordered):
            own = replica_number(node)
            place = position if own is None or not numbered else own
            mark = node.group.metadata.label(LABEL_TOGETHER)
            if mark is None and apart:  # each by itself: one that does not fit keeps none of the others
                mark = f"{node.group.kind}/{node.group.metadata.name}"
            part, size = _need(node)
            self.guessed += _guessed_composites(node)
            replicas.append(Replica(place, node.group, size, part.pods, mark, part.parts, after))
        wanted = 1 if owner.leaf else owner.group.spec.desired_group_count
        if owner is self._root and wanted is not None:
            wanted -= sum(not child.count for child in owner.children)
        desired = _desired_count(wanted if not after else None, minimum, len(replicas))
        members = self._add(
            name or role_name(owner.group),
            owner,
            minimum,
            desired,
            tuple(replicas),
            follows=follows,
            whole=True,
            free=free,
        )
        for member, replica, node in zip(members.copy(), replicas, ordered, strict=True):
            members += self._surplus(node, member, replica.pods, follows=follows, path=path, whole=True)
        return members

    def _surplus(
        self,
        node: TreeNode,
        after: Member,
        pods: tuple[core.Pod, ...],
        *,
        follows: bool,
        path: tuple[_Open, ...],
        whole: bool = False,
    ) -> list[Member]:
        """The members that a node has beyond its minimum, ``pods``; ``whole``: the minimum is the replica ``after`` itself."""
        here = _Open(node.group, [after] if whole else [], () if whole else pods)
        inside = (*path, here) if node.confined else path
        members: list[Member] = []
        name = f"{node.group.metadata.name} (surplus)"
        if node.leaf:
            beyond = gang_of(node)[1] if len(node.pods) > node.count else []
            if beyond:
                replicas = tuple(Replica(place, node.group, 1, (pod,), after=after) for place, pod in enumerate(beyond))
                members = self._add(name, node, 0, len(replicas), replicas, follows=follows)
                for scope in inside:
                    scope.members += members
        else:
            least, others = split_by_minimum(node)
            for child in least:
                members += self._surplus(child, after, _need(child)[0].pods, follows=follows, path=inside)
            basic = [child for child in node.children if not child.count]
            if others or basic:
                members += self._gangs_of_their_own(
                    node, [*others, *basic], follows=follows, path=inside, after=after, name=name
                )
        if len(here.members) > whole and node.confined:
            self.scopes.append(Scope(here.group, tuple(here.members), here.beside))
        return members

    def _gangs_of_their_own(
        self,
        node: TreeNode,
        children: Sequence[TreeNode],
        *,
        follows: bool,
        path: tuple[_Open, ...],
        after: Member | None,
        name: str | None = None,
    ) -> list[Member]:
        """Groups outside the gang: each its own minimum at once, then its surplus."""
        members: list[Member] = []
        gangs = [child for child in children if child.count]
        if gangs:
            members += self._siblings(node, gangs, 0, follows=follows, path=(), name=name, after=after)
        elif not node.children and node is not self._root:
            self._add(role_name(node.group), node, 0, node.group.spec.desired_group_count or 0, (), follows=follows)
        for child in (child for child in children if not child.count):
            own = follows and child.follows
            if child.leaf:
                below = self._pods(child, follows=own, after=after)
            else:
                below = self._gangs_of_their_own(child, child.children, follows=own, path=(), after=after)
            if child.confined:
                self.scopes.append(Scope(child.group, tuple(below)))
            members += below
        for scope in path:
            scope.members += members
        return members

    def _add(
        self,
        name: str,
        node: TreeNode,
        minimum: int,
        desired: int,
        replicas: tuple[Replica, ...],
        *,
        follows: bool,
        whole: bool = False,
        free: bool = False,
    ) -> list[Member]:
        if name in self._names and node.group.metadata.label(LABEL_ROLE) is None:
            name = next(other for other in _others(name, node.group.kind) if other not in self._names)
        self._names.add(name)
        self.roles.append(UnitRole(name, node.group, minimum, desired, replicas, follows, whole, free))
        return [(name, replica.number) for replica in replicas]


def _need(node: TreeNode) -> tuple[ReplicaPart, int]:
    """The pods of a node's minimum, as far as they exist, and how many they must be."""
    if node.leaf:
        pods = gang_of(node)[0]
        return ReplicaPart(node.group, tuple(pods)), node.count
    least = [_need(child) for child in split_by_minimum(node)[0]]
    parts = tuple(part for part, _ in least)
    # A group that does not exist has one pod at least.
    size = sum(size for _, size in least) + node.count - len(least)
    return ReplicaPart(node.group, tuple(pod for part in parts for pod in part.pods), parts), size


def _guessed_composites(node: TreeNode) -> list[str]:
    """The composites under a node that need only some of their children, not all alike."""
    open_ = not node.leaf and 0 < node.count < len(node.gangs)
    own = [node.group.metadata.name] if open_ and not _alike(node.gangs, pods=True) else []
    return own + [name for child in node.gangs for name in _guessed_composites(child)]


def _desired_count(desired: int | None, minimum: int, existing: int) -> int:
    return max(minimum, existing) if desired is None else max(minimum, desired)


def _are_numbered(nodes: Iterable[TreeNode]) -> bool:
    """Our operator has numbered them: which come first is said."""
    return all(replica_number(node) is not None for node in nodes)


def _place(node: TreeNode) -> tuple[int, str]:
    return (replica_number(node) or 0, node.group.metadata.name)


def _alike(nodes: Sequence[TreeNode], *, pods: bool = False) -> bool:
    """They ask for the same levels on all depths; with ``pods`` also for the same counts of the same pods."""
    describe: Callable[[TreeNode], object] = _everything if pods else _wishes
    return len({describe(node) for node in nodes}) <= 1


def _wishes(node: TreeNode) -> tuple[object, ...]:
    return (node.group.kind, levels_of(node.group), tuple(map(_wishes, node.children)))


def _everything(node: TreeNode) -> tuple[object, ...]:
    members = sorted(_ask(pod) for pod in (gang_of(node)[0] if node.count else node.pods)) if node.leaf else ()
    return (levels_of(node.group), node.count, tuple(members), tuple(map(_everything, node.children)))


def _ask(pod: core.Pod) -> str:
    """The requests of a pod, in words that are equal for equal pods; its place is no part of that."""
    spec = pod.spec
    amounts = [(container.resources, container.ports) for container in core.containers(pod)]
    return repr((amounts, spec.node_selector, spec.tolerations, spec.overhead, spec.priority_class_name))


def _others(name: str, kind: str) -> Iterable[str]:
    yield f"{name} ({kind})"
    count = 2
    while True:
        yield f"{name} ({kind} {count})"
        count += 1
