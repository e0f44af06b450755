"""Exact capacity of every domain for one structure, bottom up, remembered until something below changes.

Nodes give tables of pods that fit together; a domain adds up its children; at the level that a class may not straddle
its pods are counted in whole replicas. Groups double a domain's answer: with and without the group's one domain inside
(a mask bit each). What a gang brings along (nodes it must avoid, demands of half placed replicas, members that fix a
domain) is a `View`: only the domains it touches are worked out again, all others come from memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from covey.placement.capacity.frame import Entry, Frame, only
from covey.placement.capacity.nodes import NodeTables
from covey.placement.capacity.structure import Structure
from covey.placement.capacity.tables import Budget, Table, Vector, project
from covey.placement.capacity.view import NO_VIEW, View
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Path

#: Vectors of a bottom domain beyond which nobody looks at how many of its nodes are broken into.
_BROKEN_CELLS: Final = 1 << 16
#: Work that is bounded by it needs no budget.
_ENOUGH: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Steps:
    """Numbers of wholly free nodes broken into, ascending, and what a domain offers with at most so many.

    ``number`` is the same for equal steps.
    """

    offers: tuple[tuple[int, Entry], ...]
    number: int


class Engine:
    """Capacity of all domains of one topology for one structure."""

    def __init__(self, structure: Structure, inventory: Inventory) -> None:
        self.structure = structure
        self.tree = inventory.trees[structure.topology]
        self.budget = Budget(0)
        self.frames = {depth: Frame(structure, depth) for depth in range(structure.scope, structure.bottom + 2)}
        self.nodes = NodeTables(structure.streams, self.frames[structure.bottom + 1])
        self._totals: dict[Path, tuple[int, Entry]] = {}
        self._steps: dict[tuple[int, int, bool], Entry] = {}
        self._most_pods = sum(stream.cap for stream in structure.streams)
        self._finals: dict[int, Table] = {}
        self._tables: dict[Path, tuple[int, Table]] = {}
        self._consumption = {depth: self._takes(depth) for depth in range(structure.scope, structure.bottom + 1)}
        self._breaking: dict[Path, tuple[int, Steps]] = {}
        self._different: dict[Hashable, Steps] = {}
        self._broken: dict[Hashable, tuple[tuple[int, Entry], ...]] = {}
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
        """How much is remembered, in entries."""
        return (
            sum(frame.size for frame in self.frames.values())
            + len(self._steps)
            + len(self._broken)
            + len(self._different)
            + self.nodes.size
        )

    def candidates(self) -> Iterable[DomainNode]:
        """The domains of the structure's scope."""
        return self.tree.at(self.structure.scope)

    def final(self, scope: DomainNode, view: View) -> Table | None:
        """What a candidate domain holds, in whole replicas of each class; None when a mandatory part does not fit."""
        if not view.touched:
            known = self._tables.get(scope.path)
            if known is not None and known[0] == scope.version:
                return known[1]
        total = self.total(scope, view)
        if total is None:
            return None
        found = self._finals.get(total.number)
        if found is None:
            depth = self.structure.scope
            frame = self.frames[depth]
            found = frame.tables.zero
            for table in total.tables.values():
                counted = self._count(table, depth)
                found = frame.tables.union(found, counted)
            self._finals[total.number] = found
        if not view.touched:
            self._tables[scope.path] = (scope.version, found)
        return found

    def entry(self, domain: DomainNode, view: View) -> Entry | None:
        """What a domain offers to the one above it; None when a mandatory part does not fit in it."""
        total = self.total(domain, view)
        if total is None:
            return None
        entry = self._step(total, domain.depth, real=domain.real)
        if view.anchored:
            return self._anchored(entry, domain, view)
        return entry

    def total(self, domain: DomainNode, view: View) -> Entry | None:
        """What the children of a domain hold together, mandatory pods taken out, before replicas are counted."""
        off = view.off(domain.path)
        if domain.path not in view.touched and not off:
            known = self._totals.get(domain.path)
            if known is None or known[0] != domain.version:
                total = self._sum(domain, NO_VIEW, 0)
                assert total is not None, "nothing is mandatory"
                known = self._totals[domain.path] = (domain.version, total)
            return known[1]
        if domain.path not in view.totals:
            total = self._sum(domain, view, off)
            demand = view.mandatory.get(domain.path)
            if total is not None and demand is not None:
                total = self._minus(total, domain.depth + 1, demand)
            view.totals[domain.path] = total
        return view.totals[domain.path]

    def children(self, domain: DomainNode, view: View) -> list[tuple[DomainNode | NodeState, Entry]]:
        """A domain's children, or at the bottom its nodes, with what each offers.

        A child whose mandatory part does not fit is left out; `total` is None then.
        """
        if domain.depth < self.structure.bottom:
            offers = [(child, self.entry(child, view)) for child in domain.children.values()]
            return [(child, entry) for child, entry in offers if entry is not None]
        off = view.off(domain.path)
        return [(node, self.node_entry(node, view, off)) for node in domain.nodes.values()]

    def node_entry(self, node: NodeState, view: View, off: int) -> Entry:
        """What one node offers."""
        closed = view.closed_nodes.get(node.name)
        return self.nodes.entry(node, off if closed is None else off | closed[1], self.budget)

    def breaking(self, domain: DomainNode, view: View) -> Steps:
        """What a bottom domain offers with at most so many of its wholly free nodes broken into; the last is all."""
        off = view.off(domain.path)
        if domain.path in view.touched or off:
            return self._steps_of(domain, view, off)
        known = self._breaking.get(domain.path)
        if known is None or known[0] != domain.version:
            known = self._breaking[domain.path] = (domain.version, self._steps_of(domain, NO_VIEW, 0))
        return known[1]

    def _steps_of(self, domain: DomainNode, view: View, off: int) -> Steps:
        demand = view.mandatory.get(domain.path)
        found: list[tuple[int, Entry]] = []
        for number, reached in self._broken_into(domain, view, off):
            total = reached if demand is None else self._minus(reached, domain.depth + 1, demand)
            if total is None:
                continue
            entry = self._step(total, domain.depth, real=domain.real)
            if view.anchored:
                entry = self._anchored(entry, domain, view)
            if not found or entry.number != found[-1][1].number:
                found.append((number, entry))
        key = (domain.depth, tuple((number, entry.number) for number, entry in found))
        steps = self._different.get(key)
        if steps is None:
            steps = self._different[key] = Steps(tuple(found), len(self._different))
        return steps

    def _broken_into(self, domain: DomainNode, view: View, off: int) -> tuple[tuple[int, Entry], ...]:
        """What the nodes that are in use hold, and beside them one, two … of the wholly free ones."""
        frame = self.frames[self.structure.bottom + 1]
        used: Counter[int] = Counter()
        whole: Counter[int] = Counter()
        entries: dict[int, Entry] = {}
        for node in domain.nodes.values():
            entry = self.node_entry(node, view, off)
            if entry.number:
                entries[entry.number] = entry
                (whole if node.in_use == 0 else used)[entry.number] += 1
        key = (frozenset(used.items()), frozenset(whole.items()))
        found = self._broken.get(key)
        if found is None:
            total = frame.total([entries[n] for n in (used + whole).elements()], self.budget)
            if prod(extent + 1 for extent in only(total).extent) > _BROKEN_CELLS:
                found = ((0, total),)
            else:
                start = frame.total([entries[n] for n in used.elements()], Budget(_ENOUGH))
                kinds = [(entries[n], count) for n, count in sorted(whole.items())]
                found = frame.growing(start, kinds, min(whole.total(), self._most_pods))
                found = (*found, (whole.total(), total)) if whole else found
            self._broken[key] = found
        return found

    def takes(self, depth: int) -> Any:
        """Row j: what one of dimension j of a depth takes of the dimensions one deeper."""
        return self._consumption[depth]

    def _sum(self, domain: DomainNode, view: View, off: int) -> Entry | None:
        frame = self.frames[domain.depth + 1]
        if off == (1 << len(self.structure.streams)) - 1:
            return frame.zero
        if domain.depth < self.structure.bottom:
            entries = [self.entry(child, view) for child in domain.children.values()]
            if None in entries:
                return None
            return frame.total(entries, self.budget)  # type: ignore[arg-type]  # None was ruled out
        return frame.total((self.node_entry(node, view, off) for node in domain.nodes.values()), self.budget)

    def _step(self, total: Entry, depth: int, *, real: bool) -> Entry:
        key = (depth, total.number, real)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._count_entry(total, depth, real=real)
        return found

    def _count_entry(self, total: Entry, depth: int, *, real: bool) -> Entry:
        structure, frame = self.structure, self.frames[depth]
        tables = {mask: self._count(table, depth) for mask, table in total.tables.items()}
        if not real:  # what stands for a missing label is no domain of this level
            here = [i for i, c in enumerate(structure.classes) if depth in c.levels]
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

    def _count(self, table: Table, depth: int) -> Table:
        if self.frames[depth].dimensions == self.frames[depth + 1].dimensions:
            return self.frames[depth].tables.intern(table.values)
        frame = self.frames[depth]
        return frame.tables.intern(project(table, self._consumption[depth], frame.tables.caps, self.budget))

    def _takes(self, depth: int) -> Any:
        above, below = self.frames[depth].dimensions, self.frames[depth + 1].dimensions
        streams = len(self.structure.streams)
        matrix = np.zeros((len(above), len(below)), dtype=np.int32)
        for row, dimension in enumerate(above):
            if dimension in below:
                matrix[row, below.index(dimension)] = 1
            else:
                for stream, pods in enumerate(self.structure.classes[dimension - streams].pods):
                    if pods:
                        matrix[row, below.index(stream)] = pods
        return matrix

    def _minus(self, total: Entry, depth: int, demand: Vector) -> Entry | None:
        frame = self.frames[depth]
        vector = self.demand(depth, demand)
        tables = {mask: frame.tables.minus(table, vector) for mask, table in total.tables.items()}
        left = {mask: table for mask, table in tables.items() if table is not None}
        return frame.entry(left) if left else None

    def demand(self, depth: int, pods: Vector) -> Vector:
        """Pods by stream as a vector of a depth's frame."""
        streams = len(self.structure.streams)
        return tuple(pods[d] if d < streams else 0 for d in self.frames[depth].dimensions)

    def _anchored(self, entry: Entry, domain: DomainNode, view: View) -> Entry:
        """Drop the answers in which an anchored group has its domain elsewhere."""
        allowed = 0
        for group, path in view.anchors.items():
            if path[: len(domain.path)] == domain.path:
                allowed |= 1 << group
        wrong = view.anchored & ~allowed
        tables = {mask: table for mask, table in entry.tables.items() if not mask & wrong}
        return entry if len(tables) == len(entry.tables) else self.frames[domain.depth].entry(tables)
