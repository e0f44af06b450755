"""Capacity of one node, and the sums of what domains offer.

Nodes with equal free capacity (in the resources that matter) and equal masks have equal tables, so each table is worked
out once. Rules between pods on one host (host ports, anti-affinity, of a shape to itself or to another) are exact here,
as they never reach beyond the node.

One frame for each depth: equal offers are one entry, and each sum is made once. A `View` is what one gang changes about
the inventory that all gangs share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np

from covey.placement.capacity.tables import (
    KEPT,
    NEVER,
    PASS,
    Array,
    Budget,
    Stream,
    Structure,
    Table,
    Tables,
    Vector,
    trim,
)
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.shape import conflict, exclusive
from covey.placement.model import Path

#: Sums below it are exact in 64 bits.
_SAFE: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Offered:
    """The offer of a node, a number that equal nodes share, and the work of computing it."""

    entry: TableEntry
    number: int
    work: int


class NodeTables:
    """The tables of all nodes for one list of streams."""

    def __init__(self, streams: tuple[Stream, ...], frame: Frame) -> None:
        self._frame = frame
        #: The frame's dimensions are exactly the streams, in the frame's order.
        self._streams = [streams[dimension] for dimension in frame.dimensions]
        self._bits = [1 << dimension for dimension in frame.dimensions]
        self._shapes = [stream.shape for stream in self._streams]
        self._resources = sorted({name for shape in self._shapes for name, _ in shape.requests})
        requests = [dict(shape.requests) for shape in self._shapes]
        self._requests = [[request.get(name, 0) for name in self._resources] for request in requests]
        #: Beyond what all pods ask for together nothing of a resource matters.
        self._most = [
            sum(s.cap * dict(s.shape.requests).get(name, 0) for s in self._streams) for name in self._resources
        ]
        self._asked = list(zip(self._resources, self._most, strict=True))
        self._caps = [1 if exclusive(s.shape) else s.cap for s in self._streams]
        count = len(self._shapes)
        self._terms = any(shape.anti_affinity for shape in self._shapes)
        self._clashes = [(i, j) for i in range(count) for j in range(i) if conflict(self._shapes[i], self._shapes[j])]
        #: By name: the node's version and that of its facts, the streams (bits) that it admits, and what it offers.
        self._known: dict[str, tuple[int, int, int, Offered]] = {}
        self._by_key: dict[tuple[tuple[int, ...], int], Offered] = {}
        self._nothing = Offered(frame.zero, -1, 0)

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        return _ENTRY * len(self._known) + 2 * _ENTRY * len(self._by_key)

    def offer(self, node: NodeState, off: int, budget: Budget) -> Offered:
        """Compute what the node offers, with some streams (bits) switched off; the budget is not charged."""
        name = node.node.metadata.name
        known = self._known.get(name)
        if known is not None and known[1] == node.facts:
            if known[0] == node.version and not off:
                return known[3]
            usable = known[2]
        else:
            usable = sum(bit for bit, s in zip(self._bits, self._shapes, strict=True) if node.static_cause(s) is None)
        offered = self._offer(node, usable & ~off, budget)
        if not off:
            self._known[name] = (node.version, node.facts, usable, offered)
        return offered

    def offers(self, nodes: Mapping[str, NodeState], budget: Budget) -> Iterator[Offered]:
        """Yield what each of these nodes (by name) offers with no stream switched off: as `offer`, in less time."""
        known = self._known
        for name, node in nodes.items():
            last = known.get(name)
            yield last[3] if last is not None and last[0] == node.version else self.offer(node, 0, budget)

    def _offer(self, node: NodeState, usable: int, budget: Budget) -> Offered:
        if not usable:
            return self._nothing
        if node.guards or self._terms:
            for bit, shape in zip(self._bits, self._shapes, strict=True):
                if usable & bit and node.conflict(shape):
                    usable &= ~bit
        have = node.free.get
        key = (tuple([min(max(have(name, 0), 0), most) for name, most in self._asked]), usable)
        offered = self._by_key.get(key)
        if offered is None:
            own = Budget(budget.limit)
            entry = self._frame.entry({0: self._table(*key, own)})
            offered = self._by_key[key] = Offered(entry, len(self._by_key), own.spent)
        return offered

    def _table(self, free: tuple[int, ...], usable: int, budget: Budget) -> Table:
        alone = [
            min([cap, *(have // want for have, want in zip(free, wanted, strict=True) if want)]) if usable & bit else 0
            for cap, wanted, bit in zip(self._caps, self._requests, self._bits, strict=True)
        ]
        tables = self._frame.tables
        if len(alone) == 1:
            return tables.intern(np.array(alone[0], dtype=np.int32))
        budget.spend((PASS + KEPT * prod(n + 1 for n in alone[:-1])) * (len(alone) + len(free) + len(self._clashes)))
        grid = np.indices([n + 1 for n in alone[:-1]], dtype=np.int64)
        most = np.full(grid.shape[1:], alone[-1], dtype=np.int64)
        for resource, have in enumerate(free):
            # One stream after another may take all there is, so the sum is at most that, times the number of streams.
            safe = have * len(alone) < _SAFE
            counts = grid if safe else grid.astype(object)
            left = have - sum(counts[i] * self._requests[i][resource] for i in range(len(grid)))
            want = self._requests[-1][resource]
            most = np.minimum(most, left // want) if want else np.where(left < 0, NEVER, most)
        most = np.where(most < 0, NEVER, most)
        return tables.intern(trim(self._without_exclusive_pairs(grid, most).astype(np.int32)))

    def _without_exclusive_pairs(self, grid: Array, most: Array) -> Array:
        """Take out vectors with two streams that may not share a host."""
        last = len(self._shapes) - 1
        for one, other in self._clashes:
            if one == last:
                most = np.where((grid[other] > 0) & (most > 0), 0, most)
            else:
                most = np.where((grid[one] > 0) & (grid[other] > 0), NEVER, most)
        return most


#: Wholly free nodes of a domain that are counted one by one; beyond, in doubling steps.
_ONE_BY_ONE: Final = 32
#: Pairs of answers by groups that are added without being counted, and the work that another pair is.
_FEW_PAIRS: Final = 256
_PAIR: Final = 2_000
_POSITIVE: Final = (1 << 63) - 1
#: Size of an entry of a memory, in bytes, without what it holds.
_ENTRY: Final = 200


def only(entry: TableEntry) -> Table:
    """Return the one table of an entry of nodes."""
    return entry.tables[0]


class TableEntry:
    """The tables of one domain by the groups (mask bits) that have their domain inside it."""

    __slots__ = ("digest", "number", "tables")

    def __init__(self, tables: dict[int, Table], number: int) -> None:
        self.tables = tables
        self.number = number
        #: Says the same of equal entries whatever was worked out before them.
        self.digest = hash(tuple(sorted((mask, table.digest) for mask, table in tables.items()))) & _POSITIVE


class Frame:
    """One depth's dimensions, and the sums of entries in them."""

    def __init__(self, structure: Structure, depth: int) -> None:
        self.dimensions = structure.dimensions(depth)
        self.tables = Tables(tuple(structure.cap(dimension) for dimension in self.dimensions))
        self._entries: dict[Hashable, TableEntry] = {}
        self._sums: dict[tuple[int, int], tuple[TableEntry, int]] = {}
        self._totals: dict[Hashable, tuple[TableEntry, int]] = {}
        self.zero = self.entry({0: self.tables.zero})

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        return _ENTRY * (len(self._entries) + len(self._sums) + 4 * len(self._totals)) + self.tables.size

    def entry(self, tables: dict[int, Table]) -> TableEntry:
        """Return the entry of these tables, the same object for equal tables."""
        key = tuple(sorted((mask, table.number) for mask, table in tables.items()))
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = TableEntry(tables, len(self._entries))
        return entry

    def total(self, children: Sequence[TableEntry], budget: Budget) -> TableEntry:
        """Compute what the children hold together; their order does not matter."""
        counts = Counter([child.number for child in children])
        counts.pop(self.zero.number, None)
        key = frozenset(counts.items())
        known = self._totals.get(key)
        if known is not None:
            budget.spend(known[1])
            return known[0]
        before = budget.spent
        by_number = {child.number: child for child in children}
        different = sorted((by_number[number] for number in counts), key=lambda entry: entry.digest)
        parts = [(entry.digest, self._times(entry, counts[entry.number], budget)) for entry in different]
        total = self._join(parts, budget) if parts else self.zero
        self._totals[key] = (total, budget.spent - before)
        return total

    def _join(self, parts: Sequence[tuple[int, TableEntry]], budget: Budget) -> TableEntry:
        """The sum of parts in ascending order of digests, halved where the digests' first differing bit changes.

        So the same parts are always added up in the same way, and one changed part redoes only a few sums.
        """
        if len(parts) == 1:
            return parts[0][1]
        bit = (parts[0][0] ^ parts[-1][0]).bit_length() - 1
        middle = next((i for i, (digest, _) in enumerate(parts) if bit >= 0 and digest >> bit & 1), len(parts) // 2)
        return self.add(self._join(parts[:middle], budget), self._join(parts[middle:], budget), budget)

    def growing(
        self, start: TableEntry, kinds: Sequence[tuple[TableEntry, int]], most: int, budget: Budget
    ) -> tuple[tuple[int, TableEntry], ...]:
        """Compute what fits next to ``start`` into any 0, 1, 2 … more children; in doubling steps when there are many.

        Args:
            start: what is there anyway.
            kinds: the different children, and how many of each there are.
            most: how many of them are of interest.
            budget: what it may cost.
        """
        steps = [(0, start)]
        reached = [start]
        if len(kinds) == 1:
            entry, number, every = kinds[0][0], 0, 1
            while number < most:
                every = every if number < _ONE_BY_ONE else number
                step = min(every, most - number)
                number += step
                reached.append(self.add(reached[-1], self._times(entry, step, budget), budget))
                steps.append((number, reached[-1]))
            return tuple(steps)
        for entry, count in kinds:
            times = [self._times(entry, n, budget) for n in range(min(count, most, _ONE_BY_ONE) + 1)]
            reached = [
                self.union(
                    [self.add(reached[n - k], times[k], budget) for k in range(len(times)) if 0 <= n - k < len(reached)]
                )
                for n in range(min(len(reached) + len(times) - 2, most, _ONE_BY_ONE) + 1)
            ]
        return tuple(enumerate(reached))

    def union(self, entries: Sequence[TableEntry]) -> TableEntry:
        """Compute what fits into at least one of these; of nodes, which host no group."""
        table = only(entries[0])
        for entry in entries[1:]:
            table = self.tables.union(table, only(entry))
        return self.entry({0: table})

    def _times(self, entry: TableEntry, count: int, budget: Budget) -> TableEntry:
        total, power = self.zero, entry
        while count:
            if count & 1:
                total = self.add(total, power, budget)
            count >>= 1
            if count:
                power = self.add(power, power, budget)
        return total

    def add(self, one: TableEntry, other: TableEntry, budget: Budget) -> TableEntry:
        """Compute what two children hold together."""
        if one is self.zero:
            return other
        if other is self.zero:
            return one
        key = (one.number, other.number) if one.number <= other.number else (other.number, one.number)
        known = self._sums.get(key)
        if known is not None:
            budget.spend(known[1])
            return known[0]
        before = budget.spent
        pairs = len(one.tables) * len(other.tables)
        if pairs > _FEW_PAIRS:
            budget.spend(pairs * _PAIR)
        tables: dict[int, Table] = {}
        for mask, table in one.tables.items():
            for other_mask, other_table in other.tables.items():
                if not mask & other_mask:
                    total = self.tables.add(table, other_table, budget)
                    present = tables.get(mask | other_mask)
                    tables[mask | other_mask] = self.tables.union(present, total) if present else total
        entry = self.entry(tables)
        self._sums[key] = (entry, budget.spent - before)
        return entry


@dataclass(frozen=True, slots=True)
class Counted:
    """The pods that the children of a domain hold together; None when a mandatory part does not fit.

    ``alike`` is the same for domains alike (None: nobody knows), ``work`` what it was to work it out from nothing.
    """

    total: TableEntry | None
    alike: int | None
    work: int


@dataclass(frozen=True, slots=True)
class View:
    """Changes that one gang makes to the inventory. Paths are those of the structure's topology.

    ``closed`` says which streams (bits) a domain is closed to, ``closed_nodes`` which a node; ``mandatory`` which pods
    (by stream) must be placed inside a domain before anything else; ``anchors`` which domain a group lies in already;
    ``limits`` the most of each of the structure's limits in a domain.
    """

    closed: Mapping[Path, int] = field(default_factory=dict)
    closed_nodes: Mapping[str, tuple[Path, int]] = field(default_factory=dict)
    mandatory: Mapping[Path, Vector] = field(default_factory=dict)
    anchors: Mapping[int, Path] = field(default_factory=dict)
    limits: Mapping[Path, tuple[int, ...]] = field(default_factory=dict)
    touched: frozenset[Path] = field(init=False)
    anchored: int = field(init=False)
    #: What was worked out for this view alone.
    totals: dict[Path, Counted] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        nodes = (path for path, _ in self.closed_nodes.values())
        paths = (*self.closed, *nodes, *self.mandatory, *self.anchors.values(), *self.limits)
        touched = frozenset(path[:end] for path in paths for end in range(len(path) + 1))
        object.__setattr__(self, "touched", touched)
        object.__setattr__(self, "anchored", sum(1 << group for group in self.anchors))

    @property
    def plain(self) -> bool:
        """Tell whether the gang changes nothing."""
        return not self.touched and not self.anchored

    def off(self, path: Path) -> int:
        """The streams that a domain is closed to, by itself or by one above it."""
        bits = 0
        if self.closed:
            for end in range(len(path) + 1):
                bits |= self.closed.get(path[:end], 0)
        return bits


NO_VIEW = View()
