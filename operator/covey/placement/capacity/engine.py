"""Exact capacity of every domain for one structure, bottom up, remembered until something below changes.

Nodes give tables of pods that fit together; a domain adds up its children; at the level that a class may not straddle
its pods are counted in whole replicas. Groups double a domain's answer: with and without the group's one domain inside
(a mask bit each). What a gang brings along (nodes it must avoid, demands of half placed replicas, members that fix a
domain) is a `View`: only the domains it touches are worked out again, all others come from memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from covey.placement.capacity.frame import Frame, TableEntry
from covey.placement.capacity.node_tables import NodeTables, Offered
from covey.placement.capacity.tables import ENTRY, Budget, Projection, SearchLimit, Structure, Table, Vector
from covey.placement.capacity.view import NO_VIEW, Counted, View
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Path

#: Work beyond which nobody looks at how many nodes of a bottom domain are broken into.
_BROKEN_WORK: Final = 5_000_000
#: Size of a cell of a list of points, in bytes.
_CELL: Final = 8
#: Work that is bounded by it needs no budget.
_ENOUGH: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Whole:
    """A candidate's table, if anything fits; ``alike`` is the same for candidates alike, ``work`` what it cost."""

    table: Table | None
    alike: int | None
    work: int


@dataclass(frozen=True, slots=True)
class Steps:
    """Numbers of wholly free nodes broken into, ascending, and what a domain offers with at most that many.

    ``number`` is the same for equal steps.
    """

    offers: tuple[tuple[int, TableEntry], ...]
    number: int


class Engine:
    """Capacity of all domains of one topology for one structure."""

    def __init__(self, structure: Structure, inventory: Inventory) -> None:
        self.structure = structure
        self.tree = inventory.trees[structure.topology]
        self.budget = Budget(0)
        self.frames = {depth: Frame(structure, depth) for depth in range(structure.scope, structure.bottom + 2)}
        self.nodes = NodeTables(structure.streams, self.frames[structure.bottom + 1])
        self._totals: dict[Path, tuple[int, Counted]] = {}
        self._alike: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, int, bool], tuple[TableEntry, int]] = {}
        self._most_pods = sum(stream.cap for stream in structure.streams)
        self._finals: dict[int, tuple[Table, int]] = {}
        self._tables: dict[Path, tuple[int, Whole]] = {}
        self._consumption = {depth: self._takes(depth) for depth in range(structure.scope, structure.bottom + 1)}
        self._projections = {
            depth: Projection(taken, self.frames[depth].tables.caps) for depth, taken in self._consumption.items()
        }
        self._scopes: tuple[int, tuple[DomainNode, ...]] | None = None
        self._breaking: dict[Path, tuple[int, Steps]] = {}
        self._different: dict[Hashable, Steps] = {}
        self._broken: dict[Hashable, tuple[tuple[int, TableEntry], ...]] = {}
        #: Lists of points of tables, as layouts need them.
        self.points: dict[Hashable, Any] = {}
        self.points_size = 0
        #: How much work it is to share a target out in a candidate domain, and for what.
        self.worked: dict[Path, tuple[Hashable, int]] = {}
        #: What the fullest surplus of a table is, by how roles may grow.
        self.fullest: dict[Hashable, dict[int, Any]] = {}
        #: The last price worked out in a candidate domain, and for what.
        self.priced: dict[Path, tuple[Hashable, tuple[int, ...]]] = {}

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        entries = len(self._steps) + len(self._broken) + len(self._different) + len(self._alike) + len(self._totals)
        frames = sum(frame.size for frame in self.frames.values())
        return frames + ENTRY * entries + self.nodes.size + _CELL * self.points_size

    def candidates(self) -> Sequence[DomainNode]:
        """The domains of the structure's scope."""
        if self._scopes is None or self._scopes[0] != self.tree.changes:
            self._scopes = (self.tree.changes, tuple(self.tree.at(self.structure.scope)))
        return self._scopes[1]

    def finals(self, seen: set[int | None]) -> Iterator[tuple[DomainNode, Table | None]]:
        """Yield what each candidate holds where no view plays a role: as `final`, in less time."""
        tables, spend = self._tables, self.budget.spend
        for scope in self.candidates():
            known = tables.get(scope.path)
            if known is None or known[0] != scope.version:
                known = tables[scope.path] = (scope.version, self._final(scope, NO_VIEW))
            offered = known[1]
            if offered.alike not in seen:
                seen.add(offered.alike)
                spend(offered.work)
            yield scope, offered.table

    def final(self, scope: DomainNode, view: View, seen: set[int | None]) -> Table | None:
        """Compute what a candidate domain holds, in whole replicas by class; None when a mandatory part does not fit.

        ``seen`` says which candidates like this one have been paid for.

        Raises:
            SearchLimit: the look's budget is used up.
        """
        if scope.path in view.touched or view.anchored:
            final = self._final(scope, view)
        else:
            known = self._tables.get(scope.path)
            if known is None or known[0] != scope.version:
                known = self._tables[scope.path] = (scope.version, self._final(scope, view))
            final = known[1]
        self._pay(final.work, final.alike, seen)
        return final.table

    def _final(self, scope: DomainNode, view: View) -> Whole:
        counted = self.count(scope, view)
        total = counted.total
        if total is not None and view.anchored:  # what is outside the view was worked out without it
            total = self._keep_anchored(total, scope, view, self.frames[scope.depth + 1])
        if total is None or not total.tables:
            return Whole(None, counted.alike, counted.work)
        final = self._finals.get(total.number)
        if final is None:
            frame, own, table = self.frames[scope.depth], Budget(self.budget.limit), None
            for each in total.tables.values():
                whole = self._count(each, scope.depth, own)
                table = whole if table is None else frame.tables.union(table, whole)
            final = self._finals[total.number] = (table or frame.tables.zero, own.spent)
        return Whole(final[0], counted.alike, counted.work + final[1])

    def _pay(self, work: int, alike: int | None, seen: set[int | None]) -> None:
        if alike is None or alike not in seen:
            seen.add(alike)
            self.budget.spend(work)

    def entry(self, domain: DomainNode, view: View) -> TableEntry | None:
        """Compute what a domain offers to the one above it; None when a mandatory part does not fit in it."""
        return self._step_counted(domain, view, self.count(domain, view))[0]

    def _step_counted(self, domain: DomainNode, view: View, counted: Counted) -> tuple[TableEntry | None, int]:
        """Compute what a counted domain offers, and the work of it in all."""
        if counted.total is None:
            return None, counted.work
        entry, work = self._step(counted.total, domain.depth, real=domain.real)
        if view.anchored:
            entry = self._keep_anchored(entry, domain, view, self.frames[domain.depth])
        return entry, counted.work + work

    def total(self, domain: DomainNode, view: View) -> TableEntry | None:
        """Compute what the children of a domain hold together, less mandatory pods, before replicas are counted."""
        return self.count(domain, view).total

    def count(self, domain: DomainNode, view: View) -> Counted:
        """Compute the `total` of a domain with the work of computing it; the search's budget is not charged.

        Raises:
            SearchLimit: a part of it alone costs more than a look may.
        """
        off = view.off(domain.path)
        if domain.path not in view.touched and not off:
            known = self._totals.get(domain.path)
            if known is None or known[0] != domain.version:
                known = self._totals[domain.path] = (domain.version, self._sum(domain, NO_VIEW, 0))
            return known[1]
        if domain.path not in view.totals:
            summed = self._sum(domain, view, off)
            demand = view.mandatory.get(domain.path)
            total = summed.total
            if total is not None and demand is not None:
                total = self._minus(total, domain.depth + 1, demand)
            view.totals[domain.path] = Counted(total, None, summed.work)
        return view.totals[domain.path]

    def offers_below(self, domain: DomainNode, view: View) -> list[tuple[DomainNode | NodeState, TableEntry]]:
        """Return a domain's children, or at the bottom its nodes, with what each offers.

        A child whose mandatory part does not fit is left out; `total` is None then.
        """
        if domain.depth < self.structure.bottom:
            offers = [(child, self.entry(child, view)) for child in domain.children.values()]
            return [(child, entry) for child, entry in offers if entry is not None]
        off = view.off(domain.path)
        offered = self._all_offered(domain, view, off)
        return [(node, pair.entry) for node, pair in zip(domain.nodes.values(), offered, strict=True)]

    def paid(self, place: DomainNode | NodeState, view: View, off: int = 0) -> tuple[Hashable, int]:
        """Return a key that equal places share (or None), and the work of computing what the place offers."""
        if isinstance(place, DomainNode):
            counted = self.count(place, view)
            alike = None if counted.alike is None else (place.depth, counted.alike)
            return alike, self._step_counted(place, view, counted)[1]
        offered = self._offer_of(place, view, off)
        return offered.number, offered.work

    def _offer_of(self, node: NodeState, view: View, off: int) -> Offered:
        closed = view.closed_nodes.get(node.name)
        return self.nodes.offer(node, off if closed is None else off | closed[1], self.budget)

    def _all_offered(self, domain: DomainNode, view: View, off: int) -> Iterator[Offered]:
        """Return what each node of a bottom domain offers."""
        if off or view.closed_nodes:
            return (self._offer_of(node, view, off) for node in domain.nodes.values())
        return self.nodes.offers(domain.nodes, self.budget)

    def breaking(self, domain: DomainNode, view: View) -> Steps:
        """Return a bottom domain's offers by how many wholly free nodes may be used; the last counts all nodes."""
        off = view.off(domain.path)
        if domain.path in view.touched or off:
            return self._steps_of(domain, view, off)
        known = self._breaking.get(domain.path)
        if known is None or known[0] != domain.version:
            known = self._breaking[domain.path] = (domain.version, self._steps_of(domain, NO_VIEW, 0))
        return known[1]

    def _steps_of(self, domain: DomainNode, view: View, off: int) -> Steps:
        demand = view.mandatory.get(domain.path)
        raised: list[tuple[int, TableEntry]] = []
        for number, unlimited in self._broken_into(domain, view, off):
            reached = self._keep_limits(unlimited, domain, view, Budget(_ENOUGH))
            total = reached if demand is None else self._minus(reached, domain.depth + 1, demand)
            if total is None:
                continue
            entry, _ = self._step(total, domain.depth, real=domain.real)
            if view.anchored:
                entry = self._keep_anchored(entry, domain, view, self.frames[domain.depth])
            if not raised or entry.number != raised[-1][1].number:
                raised.append((number, entry))
        key = (domain.depth, tuple((number, entry.number) for number, entry in raised))
        steps = self._different.get(key)
        if steps is None:
            steps = self._different[key] = Steps(tuple(raised), len(self._different))
        return steps

    def _broken_into(self, domain: DomainNode, view: View, off: int) -> tuple[tuple[int, TableEntry], ...]:
        """Compute what the nodes in use hold, and then together with one, two … of the wholly free ones."""
        frame = self.frames[self.structure.bottom + 1]
        parts: tuple[list[int], list[int]] = ([], [])
        entries: dict[int, TableEntry] = {}
        for node, offered in zip(domain.nodes.values(), self._all_offered(domain, view, off), strict=True):
            entry = offered.entry
            if entry.number:
                entries[entry.number] = entry
                parts[node.in_use == 0].append(entry.number)
        used, whole = map(Counter, parts)
        key = (frozenset(used.items()), frozenset(whole.items()))
        growth = self._broken.get(key)
        if growth is None:
            total = frame.total([entries[n] for n in (used + whole).elements()], Budget(_ENOUGH))
            try:
                own = Budget(_BROKEN_WORK)
                start = frame.total([entries[n] for n in used.elements()], own)
                kinds = sorted(((entries[n], count) for n, count in whole.items()), key=lambda kind: kind[0].digest)
                growth = frame.growing(start, kinds, min(whole.total(), self._most_pods), own)
                growth = (*growth, (whole.total(), total)) if whole else growth
            except SearchLimit:
                growth = ((0, total),)
            self._broken[key] = growth
        return growth

    def takes(self, depth: int) -> Any:
        """Return, in row j, what one of dimension j of a depth takes of the dimensions one deeper."""
        return self._consumption[depth]

    def _sum(self, domain: DomainNode, view: View, off: int) -> Counted:
        """Compute what the children hold together. Equal children are computed, and paid for, once."""
        frame, own = self.frames[domain.depth + 1], Budget(self.budget.limit)
        if off == (1 << len(self.structure.streams)) - 1:
            return Counted(frame.zero, None, 0)
        entries: list[TableEntry | None] = []
        alike: Counter[int | None] = Counter()
        if domain.depth < self.structure.bottom:
            for child in domain.children.values():
                counted = self.count(child, view)
                entry, work = self._step_counted(child, view, counted)
                if counted.alike is None or counted.alike not in alike:
                    own.spend(work)
                alike[counted.alike] += 1
                entries.append(entry)
        else:
            for offered in self._all_offered(domain, view, off):
                if offered.number not in alike:
                    own.spend(offered.work)
                alike[offered.number] += 1
                entries.append(offered.entry)
        if None in entries:
            return Counted(None, None, own.spent)
        total = frame.total(entries, own)  # type: ignore[arg-type]  # None was ruled out
        total = self._keep_limits(total, domain, view, own)
        key = (domain.depth, domain.real, frozenset(alike.items()))
        number = None if None in alike else self._alike.setdefault(key, len(self._alike))
        return Counted(total, number, own.spent)

    def _keep_limits(self, total: TableEntry, domain: DomainNode, view: View, budget: Budget) -> TableEntry:
        """Cut what the children of a domain hold together at the most pods that it may have."""
        for number, limit in enumerate(self.structure.limits):
            if limit.depth == domain.depth:
                frame, known = self.frames[domain.depth + 1], view.limits.get(domain.path)
                most = limit.most if known is None else known[number]
                weights = [self.structure.count_pods(dimension, limit.streams) for dimension in frame.dimensions]
                tables = total.tables.items()
                total = frame.entry({mask: frame.tables.limit(table, weights, most, budget) for mask, table in tables})
        return total

    def _step(self, total: TableEntry, depth: int, *, real: bool) -> tuple[TableEntry, int]:
        key = (depth, total.number, real)
        steps = self._steps.get(key)
        if steps is None:
            own = Budget(self.budget.limit)
            entry = self._count_entry(total, depth, own, real=real)
            steps = self._steps[key] = (entry, own.spent)
        return steps

    def _count_entry(self, total: TableEntry, depth: int, budget: Budget, *, real: bool) -> TableEntry:
        structure, frame = self.structure, self.frames[depth]
        tables = {mask: self._count(table, depth, budget) for mask, table in total.tables.items()}
        if not real:  # what stands for a missing label is no domain of this level
            counted = {dimension - len(structure.streams) for dimension in frame.dimensions}
            here = [i for i, c in enumerate(structure.classes) if depth in c.levels and i in counted]
            tables = {mask: self._without(frame, table, here) for mask, table in tables.items()}
        for group, group_depth in enumerate(structure.groups):
            if group_depth == depth:
                members = [i for i, c in enumerate(structure.classes) if group in c.groups]
                inside = {mask | 1 << group: table for mask, table in tables.items()} if real else {}
                tables = {mask: self._without(frame, table, members) for mask, table in tables.items()} | inside
        return frame.entry(tables)

    def _without(self, frame: Frame, table: Table, classes: list[int]) -> Table:
        streams = len(self.structure.streams)
        return frame.tables.without(table, [frame.dimensions.index(streams + i) for i in classes])

    def _count(self, table: Table, depth: int, budget: Budget) -> Table:
        if self.frames[depth].dimensions == self.frames[depth + 1].dimensions:
            return self.frames[depth].tables.intern(table.values)
        frame = self.frames[depth]
        return frame.tables.intern(self._projections[depth].of(table, budget))

    def _takes(self, depth: int) -> Any:
        above, below = self.frames[depth].dimensions, self.frames[depth + 1].dimensions
        streams = len(self.structure.streams)
        matrix = np.zeros((len(above), len(below)), dtype=np.int32)
        for row, dimension in enumerate(above):
            if dimension in below:
                matrix[row, below.index(dimension)] = 1
            else:
                kind = self.structure.classes[dimension - streams]
                for stream, pods in enumerate(kind.pods):
                    if pods:
                        matrix[row, below.index(stream)] = pods
                for part, number in kind.parts:
                    matrix[row, below.index(streams + part)] = number
        return matrix

    def _minus(self, total: TableEntry, depth: int, demand: Vector) -> TableEntry | None:
        frame = self.frames[depth]
        vector = self.demand(depth, demand)
        tables = {mask: frame.tables.minus(table, vector) for mask, table in total.tables.items()}
        left = {mask: table for mask, table in tables.items() if table is not None}
        return frame.entry(left) if left else None

    def demand(self, depth: int, pods: Vector) -> Vector:
        """Return pods by stream as a vector of a depth's frame."""
        streams = len(self.structure.streams)
        return tuple(pods[d] if d < streams else 0 for d in self.frames[depth].dimensions)

    def _keep_anchored(self, entry: TableEntry, domain: DomainNode, view: View, frame: Frame) -> TableEntry:
        """Drop the answers in which an anchored group has its domain elsewhere."""
        allowed = 0
        for group, path in view.anchors.items():
            if path[: len(domain.path)] == domain.path:
                allowed |= 1 << group
        wrong = view.anchored & ~allowed
        tables = {mask: table for mask, table in entry.tables.items() if not mask & wrong}
        return entry if len(tables) == len(entry.tables) else frame.entry(tables)


#: Structures whose tables are kept between plans.
_ENGINES: Final = 24


#: Bytes that all of them together may take.
_REMEMBERED: Final = 48 << 20


def engine_for(inventory: Inventory, structure: Structure) -> Engine:
    """The engine of a structure, kept with the inventory as long as it is among those used last and all are small."""
    engines: OrderedDict[Any, Engine] = inventory.memo.setdefault("engines", OrderedDict())
    engine = engines.pop(structure, None)
    if engine is None or engine.size > _REMEMBERED:
        engine = Engine(structure, inventory)
    engines[structure] = engine
    while len(engines) > _ENGINES or (len(engines) > 1 and sum(other.size for other in engines.values()) > _REMEMBERED):
        engines.popitem(last=False)
    return engine
