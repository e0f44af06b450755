"""Sums of what domains offer, one frame for each depth: equal offers are one entry, and each sum is made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from covey.placement.capacity.structure import Structure
from covey.placement.capacity.tables import Budget, Table, Tables

#: Wholly free nodes of a domain that are counted one by one; beyond, in doubling steps.
_ONE_BY_ONE: Final = 32
#: Pairs of answers by groups that are added without being counted, and what another pair costs, in table cells.
_FEW_PAIRS: Final = 256
_PAIR: Final = 100
#: Work that is bounded by it needs no budget.
_ENOUGH: Final = 1 << 60


def only(entry: Entry) -> Table:
    """The table of an entry of nodes."""
    return entry.tables[0]


class Entry:
    """The tables of one domain by the groups (mask bits) that have their domain inside it."""

    __slots__ = ("number", "tables")

    def __init__(self, tables: dict[int, Table], number: int) -> None:
        self.tables = tables
        self.number = number


class Frame:
    """One depth's dimensions, and the sums of entries in them."""

    def __init__(self, structure: Structure, depth: int) -> None:
        self.dimensions = structure.dimensions(depth)
        self.tables = Tables(tuple(structure.cap(dimension) for dimension in self.dimensions))
        self._entries: dict[Hashable, Entry] = {}
        self._sums: dict[tuple[int, int], Entry] = {}
        self._totals: dict[Hashable, Entry] = {}
        self.zero = self.entry({0: self.tables.zero})

    @property
    def size(self) -> int:
        """How much is remembered, in entries."""
        return len(self._entries) + len(self._sums) + len(self._totals) + self.tables.size

    def entry(self, tables: dict[int, Table]) -> Entry:
        """The one entry of these tables."""
        key = tuple(sorted((mask, table.number) for mask, table in tables.items()))
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = Entry(tables, len(self._entries))
        return found

    def total(self, children: Iterable[Entry], budget: Budget) -> Entry:
        """What the children hold together, however they are ordered."""
        by_number: dict[int, Entry] = {}
        numbers = []
        for child in children:
            numbers.append(child.number)
            by_number[child.number] = child
        counts = Counter(numbers)
        counts.pop(self.zero.number, None)
        key = frozenset(counts.items())
        found = self._totals.get(key)
        if found is None:
            parts = [self._times(by_number[number], count, budget) for number, count in sorted(counts.items())]
            while len(parts) > 1:  # pairwise, so that one changed child redoes only a few sums
                pairs = [self.add(one, other, budget) for one, other in zip(parts[::2], parts[1::2], strict=False)]
                parts = pairs + parts[len(pairs) * 2 :]
            found = self._totals[key] = parts[0] if parts else self.zero
        return found

    def growing(self, start: Entry, kinds: Sequence[tuple[Entry, int]], most: int) -> tuple[tuple[int, Entry], ...]:
        """What fits beside ``start`` into any 0, 1, 2 … of further children; in doubling steps when there are many.

        Args:
            start: what is there anyway.
            kinds: the different children, and how many of each there are.
            most: how many of them are of interest.
        """
        budget = Budget(_ENOUGH)
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

    def union(self, entries: Sequence[Entry]) -> Entry:
        """What fits into one or another; of nodes, which host no group."""
        table = only(entries[0])
        for entry in entries[1:]:
            table = self.tables.union(table, only(entry))
        return self.entry({0: table})

    def _times(self, entry: Entry, count: int, budget: Budget) -> Entry:
        total, power = self.zero, entry
        while count:
            if count & 1:
                total = self.add(total, power, budget)
            count >>= 1
            if count:
                power = self.add(power, power, budget)
        return total

    def add(self, one: Entry, other: Entry, budget: Budget) -> Entry:
        """What two children hold together."""
        if one is self.zero:
            return other
        if other is self.zero:
            return one
        key = (one.number, other.number)
        found = self._sums.get(key)
        if found is None:
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
            found = self._sums[key] = self.entry(tables)
        return found
