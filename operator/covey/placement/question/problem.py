"""One question to the engine: a gang's demands under chosen levels, as structure, view and candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from covey.placement.anti_affinity import PodSpread
from covey.placement.capacity.tables import Limit, ReplicaClass, Stream, Structure, Vector
from covey.placement.capacity.view import View
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Part, Path, PodRequest, ReplicaRequest, Shape, Topology
from covey.placement.question.demands import Demand, common_domain, followers, placed_paths, replica_paths, unit_anchor
from covey.placement.question.domain_groups import Aims, DomainGroup, groups_of, levels_alone
from covey.placement.question.spreads import SpreadDomains, find_domains, fix_floors
from covey.placement.sharing.layout import Item


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
    """Return the aims that are required.

    Raises:
        KeyError: when the topology lacks one.
    """
    return Aims(
        unit=depth_of(topology, gang.required),
        roles=tuple(depth_of(topology, role.required) for role in gang.roles),
        proximity=frozenset(i for i, rule in enumerate(gang.proximity) if rule.required),
        spread=gang.spread is not None and gang.spread.required,
        rules=tuple(depth_of(topology, rule.required) for rule in gang.rules),
    )


@dataclass(slots=True)
class PlacementProblem:
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
        """Tell whether a candidate contains all domains that are fixed already."""
        if self.anchor is None and not self.view.mandatory:
            return True
        inside = all(path[: len(scope.path)] == scope.path for path in self.view.mandatory)
        return inside and (self.anchor is None or self.anchor == scope.path)

    def barred_classes(self, scope: DomainNode) -> list[int]:
        """The classes that may not use a candidate, because a group of theirs does not lie there."""
        path = scope.path
        unmet = {
            group
            for group, (depth, anchor) in enumerate(self.wide)
            if (depth >= 0 and path[depth] is None) or (anchor is not None and path[: len(anchor)] != anchor)
        }
        return [i for i, kind in enumerate(self.structure.classes) if kind.wide & unmet] if unmet else []

    def base(self, demands: Collection[Demand]) -> Vector:
        """Count these demands by class."""
        counts = [0] * len(self.structure.classes)
        for demand in demands:
            kind = self.kinds.get((demand.role, demand.replica.replica))
            if kind is not None:
                counts[kind] += 1
        return tuple(counts)


def build(
    gang: Gang,
    inventory: Inventory,
    demands: Sequence[Demand],
    aims: Aims,
    loose: Aims,
    within: Path | None = None,
) -> PlacementProblem:
    """Build the question whether demands fit: the minimum's under ``aims``, the surplus's under ``loose``.

    ``within`` names the one candidate to look at.
    """
    surplus = [demand for demand in demands if not demand.minimum]
    follows = all(gang.roles[demand.role].follow_unit for demand in demands)
    unit = loose.unit if surplus else aims.unit
    scope = unit if follows else -1
    all_groups = groups_of(gang, inventory, demands, aims, loose, scope=scope, unit=unit)
    groups = [group for group in all_groups if not group.level(scope)]
    alone = levels_alone(all_groups, scope)
    anchor = within if within is not None else unit_anchor(gang, inventory, scope) if scope >= 0 else None
    wide = [group for group in groups if group.depth <= scope]
    builder = _Builder(gang, inventory, scope, [group for group in groups if group.depth > scope], wide)
    regions = fix_floors(gang, inventory, demands)
    for demand in demands:
        own = aims if demand.minimum else loose
        level = own.roles[demand.role]
        if gang.roles[demand.role].follow_unit and level <= unit:
            level = -1
        also = alone.get((demand.role, demand.replica.replica), set())
        needed = _never_without(gang, inventory.topologies[gang.topology], demand.role)
        region = regions.get((demand.role, demand.replica.replica))
        builder.add(demand, max((level, *also)), needed | also, region)
    return builder.problem(anchor, aims)


def _never_without(gang: Gang, topology: Topology, role: int) -> set[int]:
    """The depths of the levels that a role's nodes must have, whatever finer level is aimed at.

    A role's level that is no finer than its unit's adds nothing, as everywhere else.
    """
    asked = gang.roles[role]
    unit = depth_of(topology, gang.required) if asked.follow_unit else -1
    own = depth_of(topology, asked.required)
    return {depth for depth in (unit, own if own > unit else -1) if depth >= 0}


#: Levels, groups and wide groups of a class.
_Sets = tuple[frozenset[int], frozenset[int], frozenset[int]]
#: What tells classes apart: pods, depth, sets, inner classes, whether they are inside others, whether they are fixed.
_Kind = tuple[Vector, int, _Sets, tuple[tuple[int, int], ...], bool, bool]


class _Builder:
    """Collects streams, classes and fixed demands."""

    def __init__(
        self, gang: Gang, inventory: Inventory, scope: int, groups: list[DomainGroup], wide: Sequence[DomainGroup]
    ) -> None:
        self._gang = gang
        self._inventory = inventory
        self._scope = scope
        self._groups = groups
        self._wide = wide
        self._streams: dict[tuple[Shape, bool], int] = {}
        self._caps: list[int] = []
        self._demands: list[tuple[Demand, int, _Sets, Path | None]] = []
        #: How many replicas there are of each class.
        self._classes: dict[_Kind, int] = {}
        self._numbers: dict[_Kind, int] = {}
        #: What is the same for all replicas of a role that are wholly open: depth and sets, and streams by pod.
        self._open: dict[tuple[int, bool], tuple[int, _Sets]] = {}
        self._streams_of: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        self._tell_apart = gang.spread is not None and not all(role.follow_unit for role in gang.roles)
        #: Domains no narrower than a candidate in which a role's pods must lie for the sake of their spread.
        self._around: dict[int, set[Path]] = {}

    def add(self, demand: Demand, level: int, never_without: Collection[int], spread_to: Path | None = None) -> None:
        """Add a demand whose replica must not straddle domains of depth ``level``, on nodes that have the others.

        ``spread_to`` is the domain to which the spread of its one pod sends it.
        """
        partial = demand.partial
        alone = partial or self._gang.rules or demand.replica.parts or spread_to is not None
        known = None if alone else self._open.get((demand.role, demand.minimum))
        if known is not None:
            self._count(demand)
            self._demands.append((demand, *known, None))
            return
        number = (demand.role, demand.replica.replica)
        level = max(level, self._whole(demand.replica))
        groups = {i for i, group in enumerate(self._groups) if number in group.members}
        depth = max([self._scope, level, *(self._groups[i].depth for i in groups)])
        region = None
        if partial and depth > self._scope:
            region = common_domain(replica_paths(self._gang, self._inventory, demand.replica), depth)
            if region is not None and not demand.minimum:
                groups.add(len(self._groups))
                self._groups.append(DomainGroup(depth, {number}, region))
                region = None
        elif spread_to is not None and len(spread_to) - 1 <= self._scope:
            self._around.setdefault(demand.role, set()).add(spread_to)
        elif spread_to is not None and not groups:
            depth, region = len(spread_to) - 1, spread_to
        self._count(demand)
        wide = frozenset(i for i, group in enumerate(self._wide) if number in group.members)
        levels = frozenset({level, depth, *never_without, *(self._groups[i].depth for i in groups)})
        sets = (levels, frozenset(groups), wide)
        if not alone:
            self._open[demand.role, demand.minimum] = (depth, sets)
        self._demands.append((demand, depth, sets, region))

    def _whole(self, replica: ReplicaRequest) -> int:
        """The depth of a level that a replica of a role without one has for all its pods; -1 for none."""
        parts = replica.parts
        return self._depth(parts[0]) if len(parts) == 1 and len(parts[0].pods) == len(replica.pods) else -1

    def problem(self, anchor: Path | None, aims: Aims) -> PlacementProblem:
        """Return the finished question."""
        kinds: dict[tuple[int, int], int] = {}
        items: dict[int, list[Item]] = {}
        fixed: dict[Path, list[Item]] = {}
        mandatory: dict[Path, Vector] = {}
        ordered = sorted(self._demands, key=lambda d: (not d[0].minimum, d[0].role, d[0].replica.replica))
        for demand, depth, sets, region in ordered:
            parts = () if demand.partial else demand.replica.parts
            item = self._item(demand, demand.missing, parts, depth, sets, fixed=region is not None)
            if region is not None:  # the class has no replicas of its own; it keeps its streams counted up to here
                vector = tuple(map(len, item.pods))
                fixed.setdefault(region, []).append(item)
                mandatory[region] = tuple(map(sum, zip(mandatory.get(region, (0,) * len(vector)), vector, strict=True)))
                continue
            kinds[demand.role, demand.replica.replica] = item.kind
            items.setdefault(item.kind, []).append(item)
        limits, limits_by_path = self._spread_limits()
        structure = Structure(
            topology=self._gang.topology,
            scope=self._scope,
            bottom=max([self._bottom(aims), *(limit.depth for limit in limits)]),
            streams=tuple(Stream(s, cap, f) for (s, f), cap in zip(self._streams, self._caps, strict=True)),
            classes=tuple(
                ReplicaClass(vector, depth, *sets, cap, parts, inner)
                for (vector, depth, sets, parts, inner, _), cap in self._classes.items()
            ),
            groups=tuple(group.depth for group in self._groups),
            limits=limits,
        )
        view = View(
            closed=self._closed_classes(structure, aims),
            closed_nodes=self._closed_nodes(structure),
            mandatory=mandatory,
            anchors={i: group.anchor for i, group in enumerate(self._groups) if group.anchor is not None},
            limits=limits_by_path,
        )
        return PlacementProblem(
            structure, view, anchor, tuple((g.depth, g.anchor) for g in self._wide), kinds, items, fixed
        )

    def _item(
        self,
        demand: Demand,
        pods: Sequence[PodRequest],
        parts: Sequence[Part],
        depth: int,
        sets: _Sets,
        *,
        fixed: bool = False,
        inner: bool = False,
    ) -> Item:
        """A replica, or a part of one with a level of its own, and the class that it is of."""
        if not parts:
            return self._whole_item(demand, self._pods(demand, pods), (), depth, sets, fixed=fixed, inner=inner)
        finer = list(self._finer(parts, depth))
        inside = {key for part in finer for key in part.pods}
        held = [
            self._item(
                demand,
                [pod for pod in pods if pod.key in part.pods],
                part.parts,
                self._depth(part),
                (frozenset({self._depth(part)}), frozenset(), frozenset()),
                inner=True,
            )
            for part in finer
        ]
        own = self._pods(demand, [pod for pod in pods if pod.key not in inside])
        return self._whole_item(demand, own, tuple(held), depth, sets, fixed=fixed, inner=inner)

    def _whole_item(
        self,
        demand: Demand,
        own: tuple[tuple[str, ...], ...],
        held: tuple[Item, ...],
        depth: int,
        sets: _Sets,
        *,
        fixed: bool,
        inner: bool,
    ) -> Item:
        within = tuple(sorted(Counter([shape.kind for shape in held]).items())) if held else ()
        key = (tuple(map(len, own)), depth, sets, within, inner, fixed)
        number = self._numbers.setdefault(key, len(self._numbers))
        self._classes[key] = self._classes.get(key, 0) + (not fixed)
        return Item(demand.role, demand.replica.replica, number, own, held)

    def _depth(self, part: Part) -> int:
        return self._inventory.topologies[self._gang.topology].depth(part.required)

    def _finer(self, parts: Sequence[Part], depth: int) -> Iterator[Part]:
        """Yield the parts whose level is narrower than what holds anyway; of other parts, those inside."""
        for part in parts:
            if self._depth(part) > depth:
                yield part
            else:
                yield from self._finer(part.parts, depth)

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
        shapes = tuple([pod.shape for pod in pods])
        key = (role, tuple(map(id, shapes)))
        streams = self._streams_of.get(key)
        if streams is None:
            streams = self._streams_of[key] = tuple([self._stream(role, shape) for shape in shapes])
        return streams

    def _pods(self, demand: Demand, pods: Sequence[PodRequest]) -> tuple[tuple[str, ...], ...]:
        streams = self._by_pod(demand.role, pods)
        if len(pods) == 1:
            return tuple([(pods[0].key,) if stream == streams[0] else () for stream in range(len(self._streams))])
        keys: list[list[str]] = [[] for _ in self._streams]
        for _, stream, key in sorted([(pod.index, s, pod.key) for pod, s in zip(pods, streams, strict=True)]):
            keys[stream].append(key)
        return tuple(map(tuple, keys))

    def _bottom(self, aims: Aims) -> int:
        topology = self._inventory.topologies[self._gang.topology]
        host = host_depth(topology)
        finest = len(topology.levels) - 1 if host is None else host - 1
        asked = [depth for _, depth, *_ in self._classes] + [group.depth for group in self._groups]
        if aims.spread and self._gang.spread is not None:
            asked.append(topology.depth(self._gang.spread.level))
        return max([self._scope, finest, *asked])

    def _spreads(self) -> dict[PodSpread, int]:
        """The spreads that are kept, and the streams (bits) of their pods."""
        bits_of: dict[PodSpread, int] = {}
        for number, (shape, _) in enumerate(self._streams):
            if shape.pod_spread is not None and shape.pod_spread.floor is not None:
                bits_of[shape.pod_spread] = bits_of.get(shape.pod_spread, 0) | 1 << number
        return bits_of

    def _spread_domains(self, bits: int) -> SpreadDomains:
        shape = next(shape for number, (shape, _) in enumerate(self._streams) if bits >> number & 1)
        domains = find_domains(shape, self._gang.topology, self._inventory)
        assert domains is not None, "a floor was chosen by them"
        return domains

    def _spread_limits(self) -> tuple[tuple[Limit, ...], Mapping[Path, tuple[int, ...]]]:
        """The most pods that a domain may have for the sake of their spread, and what differs as some are there."""
        tree = self._inventory.trees[self._gang.topology]
        limits: list[Limit] = []
        taken: dict[Path, Counter[int]] = {}
        for number, (spread, bits) in enumerate(self._spreads().items()):
            domains = self._spread_domains(bits)
            depth = max(domains.depth, self._scope)
            limits.append(Limit(depth, bits, (spread.floor or 0) + spread.max_skew))
            for path, pods in domains.pods.items():
                for domain in tree.by_path[path].descend(depth - domains.depth) if pods else ():
                    taken.setdefault(domain.path, Counter())[number] += pods
        least = {
            path: tuple(max(limit.most - pods[number], 0) for number, limit in enumerate(limits))
            for path, pods in taken.items()
        }
        return tuple(limits), least

    def _closed_nodes(self, structure: Structure) -> Mapping[str, tuple[Path, int]]:
        """The nodes that this gang must not use, and those that others in broader domains keep free of some streams."""
        off = dict.fromkeys(self._gang.excluded_nodes, (1 << len(structure.streams)) - 1)
        for number, stream in enumerate(structure.streams):
            for name in self._inventory.kept_off(stream.shape):
                off[name] = off.get(name, 0) | 1 << number
        for bits in self._spreads().values():
            for name in self._spread_domains(bits).outside:
                off[name] = off.get(name, 0) | bits
        path = self._inventory.path
        known = self._inventory.nodes
        return {name: (path(self._gang.topology, name), bits) for name, bits in off.items() if name in known}

    def _closed_classes(self, structure: Structure, aims: Aims) -> Mapping[Path, int]:
        closed = Counter(self._closed_by_spread(structure, aims))
        tree = self._inventory.trees[self._gang.topology]
        for role, paths in self._around.items():
            spread = {
                pod.shape.pod_spread for demand, *_ in self._demands if demand.role == role for pod in demand.missing
            }
            bits = sum(bits for other, bits in self._spreads().items() if other in spread)
            for around in paths:
                for domain in tree.root.descend(len(around)):
                    if domain.path != around:
                        closed[domain.path] |= bits
        return closed

    def _closed_by_spread(self, structure: Structure, aims: Aims) -> Mapping[Path, int]:
        spread = self._gang.spread
        if spread is None or not aims.spread:
            return {}
        tree = self._inventory.trees[self._gang.topology]
        depth = tree.topology.depth(spread.level)
        bits = sum(1 << i for i, stream in enumerate(structure.streams) if stream.follows)
        present = {path[: depth + 1] for path in placed_paths(self._gang, self._inventory, followers(self._gang))}
        return {
            domain.path: bits
            for domain in tree.root.descend(depth + 1)
            if domain.path not in present
            and (not domain.real or spread.occupied.get(domain.path, 0) >= spread.max_per_domain)
        }
