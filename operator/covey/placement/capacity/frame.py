"""Sums of what domains offer, one frame for each depth: equal offers are one entry, and each sum is made once.

Structure of a gang's demand, reduced to what capacity depends on.

Roles disappear here: replicas with the same pods, the same level and the same groups are one *class*, whatever role
they belong to. Pods of one shape are one *stream*. A *group* is a set of classes that must share one domain of a
level (a unit's domain, a proximity rule). Two gangs with equal structures share all that was ever computed for it.

Changes that one gang makes to the inventory that all gangs share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from covey.placement.capacity.tables import Budget, Table, Tables, Vector
from covey.placement.model import Path, Shape

#: Wholly free nodes of a domain that are counted one by one; beyond, in doubling steps.
_ONE_BY_ONE: Final = 32
#: Pairs of answers by groups that are added without being counted, and the work that another pair is.
_FEW_PAIRS: Final = 256
_PAIR: Final = 2_000
_POSITIVE: Final = (1 << 63) - 1
#: Size of an entry of a memory, in bytes, without what it holds.
_ENTRY: Final = 200


def only(entry: Entry) -> Table:
    """Return the one table of an entry of nodes."""
    return entry.tables[0]


class Entry:
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
        self._entries: dict[Hashable, Entry] = {}
        self._sums: dict[tuple[int, int], tuple[Entry, int]] = {}
        self._totals: dict[Hashable, tuple[Entry, int]] = {}
        self.zero = self.entry({0: self.tables.zero})

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        return _ENTRY * (len(self._entries) + len(self._sums) + 4 * len(self._totals)) + self.tables.size

    def entry(self, tables: dict[int, Table]) -> Entry:
        """Return the entry of these tables, the same object for equal tables."""
        key = tuple(sorted((mask, table.number) for mask, table in tables.items()))
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = Entry(tables, len(self._entries))
        return found

    def total(self, children: Sequence[Entry], budget: Budget) -> Entry:
        """Compute what the children hold together; their order does not matter."""
        counts = Counter([child.number for child in children])
        counts.pop(self.zero.number, None)
        key = frozenset(counts.items())
        found = self._totals.get(key)
        if found is not None:
            budget.spend(found[1])
            return found[0]
        before = budget.spent
        by_number = {child.number: child for child in children}
        different = sorted((by_number[number] for number in counts), key=lambda entry: entry.digest)
        parts = [(entry.digest, self._times(entry, counts[entry.number], budget)) for entry in different]
        total = self._join(parts, budget) if parts else self.zero
        self._totals[key] = (total, budget.spent - before)
        return total

    def _join(self, parts: Sequence[tuple[int, Entry]], budget: Budget) -> Entry:
        """The sum of parts in ascending order of digests, halved where the digests' first differing bit changes.

        So the same parts are always added up in the same way, and one changed part redoes only a few sums.
        """
        if len(parts) == 1:
            return parts[0][1]
        bit = (parts[0][0] ^ parts[-1][0]).bit_length() - 1
        middle = next((i for i, (digest, _) in enumerate(parts) if bit >= 0 and digest >> bit & 1), len(parts) // 2)
        return self.add(self._join(parts[:middle], budget), self._join(parts[middle:], budget), budget)

    def growing(
        self, start: Entry, kinds: Sequence[tuple[Entry, int]], most: int, budget: Budget
    ) -> tuple[tuple[int, Entry], ...]:
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

    def union(self, entries: Sequence[Entry]) -> Entry:
        """Compute what fits into at least one of these; of nodes, which host no group."""
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
        """Compute what two children hold together."""
        if one is self.zero:
            return other
        if other is self.zero:
            return one
        key = (one.number, other.number) if one.number <= other.number else (other.number, one.number)
        found = self._sums.get(key)
        if found is not None:
            budget.spend(found[1])
            return found[0]
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
class Stream:
    """Pods of one shape. ``follows`` tells apart pods that a unit's spread rule concerns from those it does not."""

    shape: Shape
    cap: int
    follows: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaClass:
    """Replicas that are interchangeable for capacity.

    ``pods`` counts the pods of each stream in one replica, but for those in ``parts``: classes with levels of their
    own, narrower than this one's, and how many of each are inside (they are ``inner``). A replica does not straddle
    domains of ``depth``; at the structure's scope it may lie anywhere in the scope's domain. ``levels`` are all depths
    that its nodes must carry. ``groups`` are indices into the structure's; ``wide`` tells apart members of groups that
    a whole candidate meets or not. ``cap`` is how many replicas are of interest.
    """

    pods: tuple[int, ...]
    depth: int
    levels: frozenset[int]
    groups: frozenset[int]
    wide: frozenset[int]
    cap: int
    parts: tuple[tuple[int, int], ...] = ()
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Structure:
    """All that capacity tables depend on.

    ``scope`` is the depth of the candidate domains (-1: the whole cluster is the one candidate); ``bottom`` the finest
    depth that matters, below which only nodes are looked at. ``groups`` holds the depth of each group.
    """

    topology: str
    scope: int
    bottom: int
    streams: tuple[Stream, ...]
    classes: tuple[ReplicaClass, ...]
    groups: tuple[int, ...] = ()

    def dimensions(self, depth: int) -> tuple[int, ...]:
        """Return what is counted in a domain of a depth, as seen from above: streams 0, 1 …, then classes.

        A class is counted in whole replicas from its own depth upwards, one that is inside others until all of them
        are; streams are counted as long as some class above still needs single pods. The dimension with the largest
        cap comes last, where it costs least.
        """
        count = len(self.streams)
        if depth > self.bottom:
            streams, whole = list(range(count)), []
        elif depth > self.scope:
            loose = [c for c in self.classes if c.depth < depth]
            streams = [i for i in range(count) if any(c.pods[i] for c in loose)]
            needed = {part for c in loose for part, _ in c.parts}
            whole = [count + i for i, c in enumerate(self.classes) if c.depth >= depth and (not c.inner or i in needed)]
        else:
            streams, whole = [], [count + i for i, c in enumerate(self.classes) if not c.inner]
        return tuple(sorted(streams + whole, key=lambda dimension: (self.cap(dimension), dimension)))

    def cap(self, dimension: int) -> int:
        """Return the number up to which a dimension is counted; more is of no interest."""
        streams = len(self.streams)
        return self.streams[dimension].cap if dimension < streams else self.classes[dimension - streams].cap


@dataclass(frozen=True, slots=True)
class Counted:
    """The pods that the children of a domain hold together; None when a mandatory part does not fit.

    ``alike`` is the same for domains alike (None: nobody knows), ``work`` what it was to work it out from nothing.
    """

    total: Entry | None
    alike: int | None
    work: int


@dataclass(frozen=True, slots=True)
class View:
    """Changes that one gang makes to the inventory. Paths are those of the structure's topology.

    ``closed`` says which streams (bits) a domain is closed to, ``closed_nodes`` which a node; ``mandatory`` which pods
    (by stream) must be placed inside a domain before anything else; ``anchors`` which domain a group lies in already.
    """

    closed: Mapping[Path, int] = field(default_factory=dict)
    closed_nodes: Mapping[str, tuple[Path, int]] = field(default_factory=dict)
    mandatory: Mapping[Path, Vector] = field(default_factory=dict)
    anchors: Mapping[int, Path] = field(default_factory=dict)
    touched: frozenset[Path] = field(init=False)
    anchored: int = field(init=False)
    #: What was worked out for this view alone.
    totals: dict[Path, Counted] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        nodes = (path for path, _ in self.closed_nodes.values())
        paths = (*self.closed, *nodes, *self.mandatory, *self.anchors.values())
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
