"""Capacity tables: which vectors of counts fit together, in one node or one domain.

What fits is closed downwards (where there is room for three there is room for two), so a set of vectors is stored as
the most of the last dimension next to each choice of the others: for two shapes the classic capacity curve
``F(a)`` = most pods of shape 2 next to ``a`` pods of shape 1, for three a surface, and so on.

Domains add up by Minkowski sums, the (max,+) convolution of curves; replicas that must stay inside a domain are
counted by `project`. Both are exact. Tables are interned: equal tables are one object, so identical racks are worked
out once.

What is counted is said by the structure of a gang's demand. Roles disappear there: replicas with the same pods, the
same level and the same groups are one *class*. Pods of one shape are one *stream*. A *group* is a set of classes that
must share one domain of a level. Gangs with equal structures share all that was ever computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from covey.placement.model import Shape

Vector = tuple[int, ...]
Array = npt.NDArray[Any]

#: Marks a choice that does not fit at all; small enough to stay negative whatever is added.
NEVER: Final = -(1 << 24)
#: Size of an entry of a memory, in bytes, without what it holds.
ENTRY: Final = 200
#: Dimensions of a table that is one line of numbers.
_CURVE: Final = 2
#: Cells that one pass over many moved curves may make.
_CELLS: Final = 1 << 16
#: Points that are added one after another.
_FEW_POINTS: Final = 8
#: What one pass over cells costs in addition to the cells.
PASS: Final = 2_000
#: What a cell costs that is kept.
KEPT: Final = 24


class SearchLimit(Exception):  # noqa: N818 - it is an answer (unknown), not a fault
    """The budget of elementary steps is used up."""


class Budget:
    """A bound on the work of one search: counted, not timed, so that answers do not depend on the machine.

    A unit is a table cell that is looked at once (about a nanosecond), and every pass over cells has `PASS` on top.
    What is remembered costs what it cost when it was computed, so that answers do not depend on what was asked before.
    Memory is bounded with it: each cell that is kept costs `KEPT`.
    """

    __slots__ = ("limit", "spent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, work: int) -> None:
        """Charge this much work, before it is done.

        Raises:
            SearchLimit: there is too little left.
        """
        if self.spent + work > self.limit:
            raise SearchLimit
        self.spent += work


class Table:
    """One interned set of vectors. ``values`` has one axis less than the vectors have dimensions."""

    __slots__ = ("_tops", "digest", "extent", "number", "values")

    def __init__(self, values: Array, number: int, digest: int) -> None:
        self.values = values
        self.number = number
        #: Says the same of equal tables whatever was worked out before them.
        self.digest = digest
        #: The most of each dimension when all others are zero.
        self.extent: Vector = (*(size - 1 for size in values.shape), int(values[(0,) * values.ndim]))
        self._tops: Array | None = None

    @property
    def tops(self) -> Array:
        """The vectors that cannot grow in any dimension, as rows: every other one lies below one of them."""
        if self._tops is None:
            self._tops = _tops(self.values)
        return self._tops

    @property
    def points(self) -> list[Vector]:
        """The same as `tops`, as tuples."""
        return list(map(tuple, self.tops.tolist()))

    def holds(self, vector: Sequence[int]) -> bool:
        """Tell whether the vector fits."""
        return all(n <= most for n, most in zip(vector, self.extent, strict=True)) and bool(
            self.values[tuple(vector[:-1])] >= vector[-1]
        )

    def hold(self, vectors: Array) -> Array:
        """Tell for each row whether it fits."""
        inside: Array = np.asarray((vectors <= np.array(self.extent)).all(axis=1))
        clipped = np.where(inside[:, None], vectors, 0)
        return np.asarray(inside & (self.values[tuple(clipped[:, :-1].T)] >= clipped[:, -1]))


class Tables:
    """All tables of one frame: the same dimensions, the same caps on how much of each is of interest."""

    def __init__(self, caps: Vector) -> None:
        self.caps = caps
        self._interned: dict[tuple[Any, bytes], Table] = {}
        self._sums: dict[tuple[int, int], tuple[Table, int]] = {}
        self._unions: dict[tuple[int, int], Table] = {}
        self._held = 0
        self.zero = self.intern(np.zeros((1,) * (len(caps) - 1), dtype=np.int32))

    @property
    def size(self) -> int:
        """Memory in use, in bytes: an estimate that may be a little low."""
        return self._held + ENTRY * (len(self._interned) + len(self._sums) + len(self._unions))

    def intern(self, values: Array) -> Table:
        """Return the one table of these values (trimmed, closed downwards)."""
        content = values.tobytes()
        key = (values.shape, content)
        table = self._interned.get(key)
        if table is None:
            digest = int.from_bytes(blake2b(repr(values.shape).encode() + content, digest_size=8).digest())
            table = self._interned[key] = Table(values, len(self._interned), digest)
            self._held += 2 * len(content)
        return table

    def add(self, one: Table, other: Table, budget: Budget) -> Table:
        """Compute what fits in two places together (Minkowski sum, cut at the caps)."""
        if one.number > other.number:
            one, other = other, one
        if one is self.zero:
            return other
        key = (one.number, other.number)
        known = self._sums.get(key)
        if known is not None:
            budget.spend(known[1])
            return known[0]
        before = budget.spent
        table = self.intern(_add(one, other, self.caps, budget))
        self._sums[key] = (table, budget.spent - before)
        return table

    def union(self, one: Table, other: Table) -> Table:
        """Compute what fits in one place or in the other."""
        if one is other:
            return one
        key = (min(one.number, other.number), max(one.number, other.number))
        union = self._unions.get(key)
        if union is None:
            union = self._unions[key] = self.intern(_union(one.values, other.values))
        return union

    def without(self, table: Table, dimensions: Iterable[int]) -> Table:
        """Return the part of a table in which these dimensions are zero."""
        values, last = table.values, len(self.caps) - 1
        for dimension in dimensions:
            nothing = (*(slice(None),) * dimension, slice(0, 1))
            values = np.minimum(values, 0) if dimension == last else values[nothing]
        return self.intern(trim(values))

    def minus(self, table: Table, vector: Sequence[int]) -> Table | None:
        """Compute what still fits next to a vector; None when the vector does not fit itself."""
        if not table.holds(vector):
            return None
        values = table.values[tuple(slice(n, None) for n in vector[:-1])] - vector[-1]
        return self.intern(trim(np.where(values < 0, NEVER, values).astype(np.int32)))

    def limit(self, table: Table, weights: Sequence[int], most: int, budget: Budget) -> Table:
        """Return the part of a table in which the sum of what is counted, each so often, is no more than that."""
        *others, last = weights
        if sum(weight * reach for weight, reach in zip(weights, table.extent, strict=True)) <= most:
            return table
        budget.spend(PASS * len(weights) + KEPT * table.values.size)
        axes = np.ix_(*(np.arange(size) for size in table.values.shape))
        left: Any = most - sum(weight * axis for weight, axis in zip(others, axes, strict=True))
        values: Any = np.minimum(table.values, left // last) if last else table.values
        return self.intern(trim(np.where((left < 0) | (values < 0), NEVER, values).astype(np.int32)))


class Projection:
    """Count of what fits in other units, above all in whole replicas instead of pods.

    Exact, because tables are closed downwards: a new vector fits iff the sum of what it takes fits.
    """

    def __init__(self, consumption: Array, caps: Vector) -> None:
        """Take what one of each new dimension (a row) consumes of the old ones, and the caps of the new ones."""
        self._rows: list[list[int]] = consumption.tolist()
        self._caps = caps

    def of(self, table: Table, budget: Budget) -> Array:
        """The values of a table in the new units."""
        extent = table.extent
        sizes = tuple(
            1 + min([cap, *(have // want for have, want in zip(extent, row, strict=True) if want)])
            for cap, row in zip(self._caps, self._rows, strict=True)
        )
        budget.spend(PASS * 5 + prod(sizes) * (4 * len(sizes) * len(extent) + KEPT))
        axes = np.ix_(*(np.arange(size) for size in sizes))
        *takes, last = (
            sum(row[old] * axis for row, axis in zip(self._rows, axes, strict=True) if row[old])
            for old in range(len(extent))
        )
        inside: Any = np.asarray(last <= extent[-1])
        cell: Any = 0
        strides = [prod(table.values.shape[axis + 1 :]) for axis in range(table.values.ndim)]
        for taken, most, stride in zip(takes, extent, strides, strict=False):
            inside = inside & (taken <= most)
            cell = cell + taken * stride
        fits = inside & (table.values.reshape(-1)[np.where(inside, cell, 0)] >= last)
        values = np.asarray(np.broadcast_to(fits, sizes).sum(axis=-1, dtype=np.int32) - 1)
        values[values < 0] = NEVER
        return trim(values)


def trim(values: Array) -> Array:
    """Cut off trailing slices in which nothing fits, so that equal sets have equal arrays."""
    for axis in range(values.ndim):
        line = values[tuple(slice(None) if i == axis else 0 for i in range(values.ndim))]
        fitting = int((line >= 0).sum())
        if fitting < values.shape[axis]:
            values = values[(*(slice(None),) * axis, slice(0, fitting))]
    return np.asarray(values, order="C")


def _add(one: Table, other: Table, caps: Vector, budget: Budget) -> Array:
    if len(caps) == 1:
        return np.array(min(one.extent[0] + other.extent[0], caps[0]), dtype=np.int32)
    extent = tuple(min(a + b, cap) for a, b, cap in zip(one.extent, other.extent, caps, strict=True))
    cells = prod(n + 1 for n in extent[:-1])
    budget.spend(PASS + KEPT * cells)
    few, many = sorted((one, other), key=lambda table: (len(table.tops), table.digest))
    # A point touches the cells of the other table alone.
    budget.spend(len(few.tops) * (PASS + prod(many.values.shape)))
    if len(caps) == _CURVE:
        return _add_curves(few.tops, many.values, extent[0] + 1, caps[-1])
    if len(few.tops) > _FEW_POINTS and (moved := _add_at_once(few.tops, many.values, extent[:-1])) is not None:
        return _close(moved, caps[-1])
    total = np.full(tuple(n + 1 for n in extent[:-1]), NEVER, dtype=np.int32)
    shape = many.values.shape
    for point in few.tops.tolist():
        ends = tuple(min(n + size, top + 1) for n, size, top in zip(point, shape, extent, strict=False))
        target = tuple(slice(n, end) for n, end in zip(point, ends, strict=False))
        source = tuple(slice(0, end - n) for n, end in zip(point, ends, strict=False))
        view = total[target]
        np.maximum(view, many.values[source] + np.int32(point[-1]), out=view)
    return _close(total, caps[-1])


def _add_curves(points: Array, curve: Array, length: int, cap: int) -> Array:
    """Compute the same for two dimensions in a few passes over all points: the highest of the curve moved by each."""
    width = int(points[:, 0].max())
    reach = min(len(curve), length)
    padded = np.full(width + length, NEVER, dtype=np.int32)
    padded[:width] = curve[0]  # what fits next to more fits next to less
    padded[width : width + reach] = curve[:reach]
    step = padded.itemsize
    moved = np.ndarray((width + 1, length), np.int32, padded, 0, (step, step))  # row w: the curve moved by width - w
    total = np.zeros(length, dtype=np.int32)
    rows = max(1, _CELLS // length)
    for start in range(0, len(points), rows):
        some = points[start : start + rows]
        np.maximum(total, (moved[width - some[:, 0]] + some[:, 1:]).max(axis=0), out=total)
    return np.minimum(total, cap, out=total)


def _add_at_once(points: Array, values: Array, extent: Vector) -> Array | None:
    """The highest of a small table moved by each of many points; None when it is not small.

    The table lies in a larger box, so that each move is one stretch of it (as in `sharing.cover_dp`).
    """
    width = points[:, :-1].max(axis=0).tolist()
    sizes = [most + 1 + more for most, more in zip(extent, width, strict=True)]
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    length = sum(most * stride for most, stride in zip(extent, strides, strict=True)) + 1
    if length > PASS + values.size:
        return None
    box = np.full(sizes, NEVER, dtype=np.int32)
    box[tuple(slice(more, more + size) for more, size in zip(width, values.shape, strict=True))] = values
    step = box.itemsize
    stretches = np.ndarray((box.size - length + 1, length), np.int32, box, 0, (step, step))
    starts = (np.array(width) - points[:, :-1]) @ np.array(strides)
    whole = np.full(box.size, NEVER, dtype=np.int32)
    best = whole[:length]
    rows = max(1, _CELLS // length)
    for first in range(0, len(starts), rows):
        moved = stretches[starts[first : first + rows]] + points[first : first + rows, -1:]
        np.maximum(best, moved.max(axis=0), out=best)
    return np.ascontiguousarray(whole.reshape(sizes)[tuple(slice(0, most + 1) for most in extent)])


def _close(values: Array, cap: int) -> Array:
    """Make a table closed downwards, and cut it at the cap of the last dimension."""
    for axis in range(values.ndim):
        values = np.flip(np.maximum.accumulate(np.flip(values, axis), axis=axis), axis)
    values = np.minimum(values, cap)
    values[values < 0] = NEVER
    return np.asarray(values, dtype=np.int32, order="C")


def _union(one: Array, other: Array) -> Array:
    total = np.full(tuple(map(max, one.shape, other.shape)), NEVER, dtype=np.int32)
    for part in (one, other):
        index: tuple[Any, ...] = (*(slice(0, size) for size in part.shape), ...)  # the dots keep one cell a view
        view = total[index]
        np.maximum(view, part, out=view)
    return total


def _tops(values: Array) -> Array:
    if values.ndim == 0:
        return np.array([[int(values)]], dtype=np.int32)
    maximal = values >= 0
    if values.ndim == 1:
        maximal[:-1] &= values[1:] < values[:-1]
        (line,) = np.nonzero(maximal)
        tops = np.empty((len(line), 2), dtype=np.int32)
        tops[:, 0], tops[:, 1] = line, values[line]
        return tops
    for axis in range(values.ndim):
        before = (slice(None),) * axis
        inner = (*before, slice(0, -1))
        maximal[inner] &= values[(*before, slice(1, None))] < values[inner]
    cells = np.argwhere(maximal)
    return np.concatenate([cells, values[maximal][:, None]], axis=1).astype(np.int32)


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
class Limit:
    """The most pods of some streams (bits) in a domain of a depth, where a `View` says nothing else of it."""

    depth: int
    streams: int
    most: int


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
    limits: tuple[Limit, ...] = ()

    def count_pods(self, dimension: int, streams: int) -> int:
        """Count the pods of some streams (bits) in one of a dimension."""
        if dimension < len(self.streams):
            return streams >> dimension & 1
        kind = self.classes[dimension - len(self.streams)]
        own = sum(pods for stream, pods in enumerate(kind.pods) if streams >> stream & 1)
        return own + sum(n * self.count_pods(len(self.streams) + part, streams) for part, n in kind.parts)

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
