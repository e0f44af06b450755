"""Frames: one depth's dimensions, and the sums of what its domains offer.

Equal offers are one entry, and each sum is made once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final

from covey.placement.capacity.tables import (
    ENTRY,
    Budget,
    Structure,
    Table,
    Tables,
)

#: Wholly free nodes of a domain that are counted one by one; beyond, in doubling steps.
_ONE_BY_ONE: Final = 32
#: Pairs of answers by groups that are added without being counted, and the work that another pair is.
_FEW_PAIRS: Final = 256
_PAIR: Final = 2_000
_POSITIVE: Final = (1 << 63) - 1


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
        return ENTRY * (len(self._entries) + len(self._sums) + 4 * len(self._totals)) + self.tables.size

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
