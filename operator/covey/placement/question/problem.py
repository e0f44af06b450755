"""One question to the engine: a gang's demands under chosen levels, as structure, view and candidates.

Levels are *aims*: the required ones always, the preferred ones as far as they are tried. The minimum and the surplus
may aim at different levels, because a preference counts for the minimum alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from covey.placement.capacity.structure import ReplicaClass, Stream, Structure
from covey.placement.capacity.tables import Vector
from covey.placement.capacity.view import View
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, PodRequest, Shape, Topology
from covey.placement.question.demands import (
    Demand,
    common_domain,
    followers,
    minimum_paths,
    placed_paths,
    replica_paths,
)
from covey.placement.sharing.layout import Item


@dataclass(frozen=True, slots=True)
class Aims:
    """Depths that must not be straddled (-1: none): by the unit, by each role's replicas, by proximity rules."""

    unit: int
    roles: tuple[int, ...]
    proximity: frozenset[int]
    spread: bool


def depth_of(topology: Topology, level: str | None) -> int:
    """The depth of a level; -1 for none."""
    return -1 if level is None else topology.depth(level)


def host_depth(topology: Topology) -> int | None:
    """The depth of the hosts' own level, whose domains are not counted; None when the topology has none."""
    last = len(topology.levels) - 1
    is_host = last >= 0 and (
        topology.levels[last].name == "host" or "kubernetes.io/hostname" in topology.levels[last].keys
    )
    return last if is_host else None


def required_aims(gang: Gang, topology: Topology) -> Aims:
    """The levels without which nothing goes.

    Raises:
        KeyError: when the topology lacks one.
    """
    return Aims(
        unit=depth_of(topology, gang.required),
        roles=tuple(depth_of(topology, role.required) for role in gang.roles),
        proximity=frozenset(i for i, rule in enumerate(gang.proximity) if rule.required),
        spread=gang.spread is not None and gang.spread.required,
    )


@dataclass(slots=True)
class Problem:
    """Structure and view of a question, and how its classes lead back to replicas."""

    structure: Structure
    view: View
    #: The one candidate when placed members fix it.
    anchor: Path | None
    #: Groups that a candidate meets as a whole: their depth, and the domain that placed members fix.
    wide: tuple[tuple[int, Path | None], ...]
    #: The class of each demand that is not fixed; fixed ones are missing here.
    kinds: dict[tuple[int, int], int] = field(default_factory=dict)
    items: dict[int, list[Item]] = field(default_factory=dict)
    fixed: dict[Path, list[Item]] = field(default_factory=dict)

    def admits(self, scope: DomainNode) -> bool:
        """Whether a candidate contains all domains that are fixed already."""
        if self.anchor is None and not self.view.mandatory:
            return True
        inside = all(path[: len(scope.path)] == scope.path for path in self.view.mandatory)
        return inside and (self.anchor is None or self.anchor == scope.path)

    def barred(self, scope: DomainNode) -> list[int]:
        """The classes that may not use a candidate, because a group of theirs does not lie there."""
        path = scope.path
        unmet = {
            group
            for group, (depth, anchor) in enumerate(self.wide)
            if (depth >= 0 and path[depth] is None) or (anchor is not None and path[: len(anchor)] != anchor)
        }
        return [i for i, kind in enumerate(self.structure.classes) if kind.wide & unmet] if unmet else []

    def base(self, demands: Collection[Demand]) -> Vector:
        """How many replicas of each class these demands are."""
        counts = [0] * len(self.structure.classes)
        for demand in demands:
            kind = self.kinds.get((demand.role, demand.replica.replica))
            if kind is not None:
                counts[kind] += 1
        return tuple(counts)


@dataclass(slots=True)
class _Group:
    depth: int
    members: set[tuple[int, int]]
    anchor: Path | None


def build(
    gang: Gang,
    inventory: Inventory,
    demands: Sequence[Demand],
    aims: Aims,
    loose: Aims,
    forbidden: Collection[Path] = (),
    within: Path | None = None,
) -> Problem:
    """The question whether, and how, demands fit: the minimum's under ``aims``, the surplus's under ``loose``.

    ``forbidden`` domains (reserved for other gangs) are closed to it; ``within`` names the one candidate to look at.
    """
    surplus = [demand for demand in demands if not demand.minimum]
    follows = all(gang.roles[demand.role].follow_unit for demand in demands)
    unit = loose.unit if surplus else aims.unit
    scope = unit if follows else -1
    groups = _groups(gang, inventory, demands, aims, loose, scope=scope, unit=unit)
    anchor = within if within is not None else _unit_anchor(gang, inventory, scope) if scope >= 0 else None
    wide = [group for group in groups if group.depth <= scope]
    builder = _Builder(gang, inventory, scope, [group for group in groups if group.depth > scope], wide)
    for demand in demands:
        own = aims if demand.minimum else loose
        level = own.roles[demand.role]
        if gang.roles[demand.role].follow_unit and level <= unit:
            level = -1
        builder.add(demand, level, _never_without(gang, inventory.topologies[gang.topology], demand.role))
    return builder.problem(anchor, aims, forbidden)


def _never_without(gang: Gang, topology: Topology, role: int) -> set[int]:
    """The depths of the levels that a role's nodes must have, whatever finer level is aimed at."""
    asked = gang.roles[role]
    levels = (asked.required, gang.required if asked.follow_unit else None)
    return {topology.depth(level) for level in levels if level is not None}


def _groups(
    gang: Gang,
    inventory: Inventory,
    demands: Sequence[Demand],
    aims: Aims,
    loose: Aims,
    *,
    scope: int,
    unit: int,
) -> list[_Group]:
    groups: list[_Group] = []
    everyone = range(len(gang.roles))

    def group(depth: int, roles: Collection[int], *, everybody: bool, anchor: Path | None) -> None:
        members = {(d.role, d.replica.replica) for d in demands if d.role in roles and (everybody or d.minimum)}
        if members:
            groups.append(_Group(depth, members, anchor))

    if unit > scope:
        group(unit, followers(gang), everybody=True, anchor=_unit_anchor(gang, inventory, unit))
    if aims.unit > unit:
        paths = minimum_paths(gang, inventory, followers(gang))
        group(aims.unit, followers(gang), everybody=False, anchor=common_domain(paths, aims.unit))
    for index in sorted(aims.proximity | loose.proximity):
        rule = gang.proximity[index]
        depth = inventory.topologies[gang.topology].depth(rule.level)
        roles = {i for i in everyone if gang.roles[i].name in rule.roles}
        required = index in loose.proximity
        paths = (placed_paths if required else minimum_paths)(gang, inventory, roles)
        group(depth, roles, everybody=required, anchor=common_domain(paths, depth))
    return groups


def _unit_anchor(gang: Gang, inventory: Inventory, depth: int) -> Path | None:
    return common_domain(placed_paths(gang, inventory, followers(gang)), depth)


#: Levels, groups and wide groups of a class.
_Sets = tuple[frozenset[int], frozenset[int], frozenset[int]]


class _Builder:
    """Collects streams, classes and fixed demands."""

    def __init__(
        self, gang: Gang, inventory: Inventory, scope: int, groups: list[_Group], wide: Sequence[_Group]
    ) -> None:
        self._gang = gang
        self._inventory = inventory
        self._scope = scope
        self._groups = groups
        self._wide = wide
        self._streams: dict[tuple[Shape, bool], int] = {}
        self._caps: list[int] = []
        self._demands: list[tuple[Demand, int, _Sets, Path | None]] = []
        #: What is the same for all replicas of a role that are wholly open: depth and sets, and streams by pod.
        self._open: dict[tuple[int, bool], tuple[int, _Sets]] = {}
        self._streams_of: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self._tell_apart = gang.spread is not None and not all(role.follow_unit for role in gang.roles)

    def add(self, demand: Demand, level: int, never_without: Collection[int]) -> None:
        """Take in a demand whose replica must not straddle domains of depth ``level``, on nodes that have the others."""
        partial = demand.partial
        known = None if partial else self._open.get((demand.role, demand.minimum))
        if known is not None:
            self._count(demand)
            self._demands.append((demand, *known, None))
            return
        number = (demand.role, demand.replica.replica)
        groups = {i for i, group in enumerate(self._groups) if number in group.members}
        depth = max([self._scope, level, *(self._groups[i].depth for i in groups)])
        region = None
        if partial and depth > self._scope:
            region = common_domain(replica_paths(self._gang, self._inventory, demand.replica), depth)
            if region is not None and not demand.minimum:
                groups.add(len(self._groups))
                self._groups.append(_Group(depth, {number}, region))
                region = None
        self._count(demand)
        wide = frozenset(i for i, group in enumerate(self._wide) if number in group.members)
        levels = frozenset({level, depth, *never_without, *(self._groups[i].depth for i in groups)})
        sets = (levels, frozenset(groups), wide)
        if not partial:
            self._open[demand.role, demand.minimum] = (depth, sets)
        self._demands.append((demand, depth, sets, region))

    def problem(self, anchor: Path | None, aims: Aims, forbidden: Collection[Path]) -> Problem:
        """The finished question."""
        classes: dict[tuple[Vector, int, _Sets, bool], int] = {}
        caps: list[int] = []
        kinds: dict[tuple[int, int], int] = {}
        items: dict[int, list[Item]] = {}
        fixed: dict[Path, list[Item]] = {}
        mandatory: dict[Path, Vector] = {}
        ordered = sorted(self._demands, key=lambda d: (not d[0].minimum, d[0].role, d[0].replica.replica))
        for demand, depth, sets, region in ordered:
            pods = self._pods(demand)
            vector = tuple(map(len, pods))
            kind = classes.setdefault((vector, depth, sets, region is not None), len(classes))
            if kind == len(caps):
                caps.append(0)
            item = Item(demand.role, demand.replica.replica, kind, pods)
            if region is not None:  # the class has no replicas of its own; it keeps its streams counted up to here
                fixed.setdefault(region, []).append(item)
                mandatory[region] = tuple(map(sum, zip(mandatory.get(region, (0,) * len(vector)), vector, strict=True)))
                continue
            caps[kind] += 1
            kinds[demand.role, demand.replica.replica] = kind
            items.setdefault(kind, []).append(item)
        structure = Structure(
            topology=self._gang.topology,
            scope=self._scope,
            bottom=self._bottom(aims),
            streams=tuple(Stream(s, cap, f) for (s, f), cap in zip(self._streams, self._caps, strict=True)),
            classes=tuple(
                ReplicaClass(vector, depth, *sets, cap)
                for (vector, depth, sets, _), cap in zip(classes, caps, strict=True)
            ),
            groups=tuple(group.depth for group in self._groups),
        )
        view = View(
            closed=self._closed(structure, aims, forbidden),
            closed_nodes=self._closed_nodes(structure),
            mandatory=mandatory,
            anchors={i: group.anchor for i, group in enumerate(self._groups) if group.anchor is not None},
        )
        return Problem(structure, view, anchor, tuple((g.depth, g.anchor) for g in self._wide), kinds, items, fixed)

    def _stream(self, role: int, shape: Shape) -> int:
        key = (shape, self._gang.roles[role].follow_unit if self._tell_apart else True)
        stream = self._streams.setdefault(key, len(self._streams))
        if stream == len(self._caps):
            self._caps.append(0)
        return stream

    def _count(self, demand: Demand) -> None:
        for stream in self._by_pod(demand.role, demand.missing):
            self._caps[stream] += 1

    def _by_pod(self, role: int, pods: Sequence[PodRequest]) -> tuple[int, ...]:
        """The stream of each of a role's pods."""
        shapes = tuple([pod.shape for pod in pods])
        key = (role, tuple(map(id, shapes)))
        found = self._streams_of.get(key)
        if found is None:
            found = self._streams_of[key] = tuple([self._stream(role, shape) for shape in shapes])
        return found

    def _pods(self, demand: Demand) -> tuple[tuple[str, ...], ...]:
        pods: list[list[str]] = [[] for _ in self._streams]
        missing = demand.missing
        streams = self._by_pod(demand.role, missing)
        for _, stream, key in sorted([(pod.index, s, pod.key) for pod, s in zip(missing, streams, strict=True)]):
            pods[stream].append(key)
        return tuple(map(tuple, pods))

    def _bottom(self, aims: Aims) -> int:
        topology = self._inventory.topologies[self._gang.topology]
        host = host_depth(topology)
        finest = len(topology.levels) - 1 if host is None else host - 1
        asked = [depth for _, depth, _, _ in self._demands] + [group.depth for group in self._groups]
        if aims.spread and self._gang.spread is not None:
            asked.append(topology.depth(self._gang.spread.level))
        return max([self._scope, finest, *asked])

    def _closed_nodes(self, structure: Structure) -> Mapping[str, tuple[Path, int]]:
        """The nodes that this gang must not use, and those that anti-affinity of others keeps free of some streams."""
        off = dict.fromkeys(self._gang.excluded_nodes, (1 << len(structure.streams)) - 1)
        for number, stream in enumerate(structure.streams):
            for name in self._inventory.kept_off(stream.shape) if stream.shape.matched else ():
                off[name] = off.get(name, 0) | 1 << number
        path = self._inventory.path
        known = self._inventory.nodes
        return {name: (path(self._gang.topology, name), bits) for name, bits in off.items() if name in known}

    def _closed(self, structure: Structure, aims: Aims, forbidden: Collection[Path]) -> Mapping[Path, int]:
        everything = (1 << len(structure.streams)) - 1
        closed = dict.fromkeys(forbidden, everything)
        spread = self._gang.spread
        if spread is None or not aims.spread:
            return closed
        tree = self._inventory.trees[self._gang.topology]
        depth = tree.topology.depth(spread.level)
        bits = sum(1 << i for i, stream in enumerate(structure.streams) if stream.follows)
        present = {path[: depth + 1] for path in placed_paths(self._gang, self._inventory, followers(self._gang))}
        for domain in tree.root.descend(depth + 1):
            full = spread.occupied.get(domain.path, 0) >= spread.max_per_domain
            if (full or not domain.real) and domain.path not in present:
                closed[domain.path] = closed.get(domain.path, 0) | bits
        return closed


__all__ = ["Aims", "Problem", "build", "depth_of", "host_depth", "required_aims"]
