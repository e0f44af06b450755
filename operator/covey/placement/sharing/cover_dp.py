"""The cheapest way to share a demand among children: a (min,+) dynamic programme over the demand's box.

A child offers points (vectors it can take), each at a price. Every smaller vector costs no more, so only points that
cannot grow matter, and a demand is met when it is *covered*. One pass over the children prices every vector of the
box at once, which is how a domain's own price list is made for the domain above it.

Prices are words, the more important first (`cost`): arrays of them have the words along their first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Final, Generic, TypeVar

import numpy as np

from covey.placement.capacity.tables import Array, Vector

#: In the first word: no way at all; prices stay below it.
NO_WAY: Final = 1 << 61
#: Prices of one demand that are kept.
_KEPT: Final = 1 << 16
#: Prices that are looked at in one go.
_CELLS: Final = 1 << 15
#: Bits of a word that prices are put together in; sums stay below `NO_WAY`.
_BITS: Final = 61
#: Points that are looked at as they are.
_FEW_ROWS: Final = 4
_MORE_THAN_ANY: Final = np.iinfo(np.int64).max

Child = TypeVar("Child")
Price = tuple[int, ...]


class Points:
    """Vectors of the demand's box, as rows."""

    __slots__ = ("rows",)

    def __init__(self, points: Sequence[Vector] | Array, need: Vector) -> None:
        self.rows: Array = np.array(points, dtype=np.int64).reshape(len(points), len(need))

    def rest(self, vector: Vector) -> Array:
        """Return what each of these points leaves of a vector."""
        return np.maximum(np.array(vector, dtype=np.int64) - self.rows, 0)


@dataclass(frozen=True, slots=True)
class ChildOffer(Generic[Child]):
    """Points that one child can take, and words by points, by the groups (mask) that get their domain inside it."""

    child: Child
    points: dict[int, tuple[Points, Array]]


@dataclass(frozen=True, slots=True)
class ChildShare(Generic[Child]):
    """A child's part of the demand."""

    child: Child
    mask: int
    vector: Vector


class Cover(Generic[Child]):
    """Prices of all vectors up to ``need``, and how each is shared out.

    How a vector is shared out takes the prices without the last child, without the last two …. Where they are many,
    some of them are kept, and those between are computed again when they are asked for.
    """

    def __init__(self, need: Vector, offers: Sequence[ChildOffer[Child]], words: int = 1) -> None:
        self.need = need
        self._word_count = words
        self.offers = offers
        self._strides = _strides(need)
        self.volume = prod(n + 1 for n in need)
        layer: dict[int, Array] = {0: np.zeros((words, self.volume), dtype=np.int64)}
        layer[0][0, 1:] = NO_WAY
        self._step = 1 if self.volume * words * len(offers) <= _KEPT else isqrt(len(offers)) + 1
        #: By how many children they are with: the prices that are kept.
        self._kept = {0: layer}
        for number, offer in enumerate(offers, start=1):
            layer = self._with(layer, offer)
            if number % self._step == 0:
                self._kept[number] = layer
        self._last = layer

    @property
    def masks(self) -> list[int]:
        """The sets of groups that can be hosted."""
        return sorted(self._last)

    def price(self, vector: Sequence[int], mask: int = 0) -> Price:
        """The lowest price of a vector; its first word is `NO_WAY` or more when there is none."""
        layer = self._last.get(mask)
        return (NO_WAY,) if layer is None else _words(layer, self._flat(vector))

    def prices(self, vectors: Array, mask: int) -> Array:
        """The lowest price of each row."""
        layer = self._last.get(mask)
        if layer is None:
            nowhere = np.zeros((self._word_count, len(vectors)), dtype=np.int64)
            nowhere[0] = NO_WAY
            return nowhere
        taken_bits: Array = layer[:, vectors @ np.array(self._strides)]
        return taken_bits

    def shares(self, vector: Sequence[int], mask: int) -> list[ChildShare[Child]]:
        """One cheapest way to share a vector out; among equal ways the one that uses the earlier offers."""
        left, shares = tuple(vector), []
        between: dict[int, dict[int, Array]] = {}
        cell = self._flat(left)
        price = _words(self._last[mask], cell)
        for index in range(len(self.offers) - 1, -1, -1):
            if index not in self._kept and index not in between:
                between = self._prices_between(index)
            before = self._kept.get(index) or between[index]
            if mask in before and _words(before[mask], cell) == price:
                continue
            inner, point = self._choose_point(before, self.offers[index], left, mask, price)
            taken = tuple(map(min, point, left))
            shares.append(ChildShare(self.offers[index].child, inner, taken))
            left = tuple(wanted - n for wanted, n in zip(left, taken, strict=True))
            mask ^= inner
            cell = self._flat(left)
            price = _words(before[mask], cell)
        return shares[::-1]

    def _choose_point(
        self, before: dict[int, Array], offer: ChildOffer[Child], vector: Vector, mask: int, price: Price
    ) -> tuple[int, Vector]:
        """The first point of an offer with which a vector has its price, by the prices without it."""
        asked = np.array(price)[:, None]
        for inner, (points, prices) in sorted(offer.points.items()):
            if inner & ~mask or mask ^ inner not in before:
                continue
            cells = points.rest(vector) @ np.array(self._strides)
            met = (before[mask ^ inner][:, cells] + prices == asked).all(axis=0)
            first = int(met.argmax()) if len(met) else 0
            if len(met) and met[first]:
                return inner, tuple(points.rows[first].tolist())
        raise AssertionError("a price without an offer")

    def _prices_between(self, index: int) -> dict[int, dict[int, Array]]:
        """Return the prices from those that are kept up to those with that many children."""
        first = index - index % self._step
        layer, kept_layer = self._kept[first], {}
        for number in range(first, index):
            layer = kept_layer[number + 1] = self._with(layer, self.offers[number])
        return kept_layer

    def _with(self, before: dict[int, Array], offer: ChildOffer[Child]) -> dict[int, Array]:
        after = dict(before)
        for inner, (points, prices) in sorted(offer.points.items()):
            if not len(points.rows):
                continue
            for mask, layer in before.items():
                if mask & inner:
                    continue
                best = _cheapest(layer, self.need, points.rows, prices)
                present = after.get(mask | inner)
                after[mask | inner] = best if present is None else _smaller(best, present)
        return after

    def _flat(self, vector: Sequence[int]) -> int:
        return sum(n * stride for n, stride in zip(vector, self._strides, strict=True))


def _words(layer: Array, cell: int) -> Price:
    return tuple(layer[:, cell].tolist())


def _cheapest(layer: Array, need: Vector, rows: Array, prices: Array) -> Array:
    """The lowest price, for each vector, of what one of the points (rows) leaves of it, with that point's own price.

    Words of a price are put together as far as what is in them here leaves room: fewer words are compared sooner.
    """
    if len(rows) <= _FEW_ROWS:
        return _one_by_one(layer, need, rows, prices)
    squeeze = _Squeeze.of(layer, prices) if len(layer) > 1 else None
    if squeeze is None:
        return _move_prices(layer, need, rows, prices)
    nowhere = layer[0] >= NO_WAY
    packed = squeeze.pack(layer)
    packed[0, nowhere] = NO_WAY
    return squeeze.unpack(_move_prices(packed, need, rows, squeeze.pack(prices)))


def _one_by_one(layer: Array, need: Vector, rows: Array, prices: Array) -> Array:
    """Compute the same for few points, in little memory."""
    grid = layer.reshape(len(layer), *(n + 1 for n in need))
    best: Array | None = None
    for row, price in zip(rows.tolist(), prices.T, strict=True):
        left = np.ix_(*(np.maximum(np.arange(most + 1) - taken, 0) for most, taken in zip(need, row, strict=True)))
        costs = grid[(slice(None), *left)].reshape(len(layer), -1)
        costs += price[:, None]
        best = costs if best is None else _smaller(costs, best)
    assert best is not None
    return best


class _Squeeze:
    """Packing of several words of prices into one: by what is in them, without the bits that all of them lack."""

    def __init__(self, groups: Sequence[Sequence[tuple[int, int, int]]]) -> None:
        """``groups``: by new word the old ones, the more important first, each with its lowest bit and its width."""
        self._groups = groups

    @classmethod
    def of(cls, layer: Array, prices: Array) -> _Squeeze | None:
        """The one for sums of a layer's prices and an offer's; None when no words go together."""
        finite = layer[:, layer[0] < NO_WAY]
        if not finite.size:
            return None
        most = (finite.max(axis=1) + prices.max(axis=1)).tolist()
        bits = (np.bitwise_or.reduce(finite, axis=1) | np.bitwise_or.reduce(prices, axis=1)).tolist()
        groups: list[list[tuple[int, int, int]]] = []
        left = 0
        for word, (highest, used) in enumerate(zip(most, bits, strict=True)):
            lowest = (used & -used).bit_length() - 1 if used else 0
            width = max(0, highest.bit_length() - lowest)
            if not groups or width > left:
                groups.append([])
                left = _BITS
            groups[-1].append((word, lowest, width))
            left -= width
        return cls(groups) if len(groups) < len(layer) else None

    def pack(self, words: Array) -> Array:
        """Prices in fewer words."""
        packed = np.zeros((len(self._groups), words.shape[1]), dtype=np.int64)
        for number, group in enumerate(self._groups):
            for word, lowest, width in group:
                packed[number] <<= width
                packed[number] += words[word] >> lowest
        return packed

    def unpack(self, packed: Array) -> Array:
        """The same prices in all words; what is no way stays none."""
        words = np.zeros((sum(map(len, self._groups)), packed.shape[1]), dtype=np.int64)
        for number, group in enumerate(self._groups):
            rest = packed[number].copy()
            for word, lowest, width in reversed(group):
                words[word] = (rest & ((1 << width) - 1)) << lowest
                rest >>= width
        words[0, packed[0] >= NO_WAY] = NO_WAY
        return words


def _move_prices(layer: Array, need: Vector, rows: Array, prices: Array) -> Array:
    """Compute the same, for prices as they are.

    The layer lies in a larger box, so that what a point leaves of all vectors is one stretch of it that begins where
    the point says. Few points are looked at in one go: what they come to stays in the processor's cache.
    """
    words, width = len(layer), rows.max(axis=0).tolist()
    sizes = [n + 1 for n in need]
    box = np.empty((words, *(size + more for size, more in zip(sizes, width, strict=True))), dtype=np.int64)
    inner = tuple(slice(more, None) for more in width)
    box[(slice(None), *inner)] = layer.reshape(words, *sizes)
    for axis, more in enumerate(width):  # of an axis of which a point takes more nothing is left
        after = (slice(None), *(slice(None),) * axis)
        rest = inner[axis + 1 :]
        box[(*after, slice(0, more), *rest)] = box[(*after, slice(more, more + 1), *rest)]
    strides = _strides(tuple(size - 1 for size in box.shape[1:]))
    length = sum(n * stride for n, stride in zip(need, strides, strict=True)) + 1
    flat = box.reshape(words, -1)
    step = flat.itemsize
    stretches = np.ndarray(
        (words, flat.shape[1] - length + 1, length), np.int64, flat, 0, (flat.strides[0], step, step)
    )
    starts = (np.array(width, dtype=np.int64) - rows) @ np.array(strides, dtype=np.int64)
    best: Array | None = None
    some = max(1, _CELLS // (words * length))
    for first in range(0, len(starts), some):
        costs = stretches[:, starts[first : first + some]]
        costs += prices[:, first : first + some, None]
        least = _least(costs)
        best = least if best is None else _smaller(least, best)
    whole = np.empty((words, prod(box.shape[1:])), dtype=np.int64)
    whole[:, :length] = best
    reached = whole.reshape(box.shape)[(slice(None), *(slice(0, size) for size in sizes))]
    return np.ascontiguousarray(reached).reshape(words, -1)


def _least(costs: Array) -> Array:
    """The lowest of several prices (second axis) for each cell."""
    if len(costs) == 1:
        return np.asarray(costs.min(axis=1))
    least = np.empty((len(costs), costs.shape[2]), dtype=np.int64)
    tied: Array | None = None
    for number, word in enumerate(costs):
        shown = word if tied is None else np.where(tied, word, _MORE_THAN_ANY)
        least[number] = shown.min(axis=0)
        tied = shown == least[number]
    return least


def _smaller(one: Array, other: Array) -> Array:
    if len(one) == 1:
        return np.minimum(one, other)
    return np.where(lower(one, other), one, other)


def lower(one: Array, other: Array) -> Array:
    """Cells in which the one price is lower than the other."""
    less, tied = one[0] < other[0], one[0] == other[0]
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        less, tied = less | (tied & (mine < theirs)), tied & (mine == theirs)
    return np.asarray(less)


def _strides(need: Vector) -> tuple[int, ...]:
    """Compute how far apart neighbours along each axis are in the flat box."""
    return tuple(np.cumprod((1, *(n + 1 for n in need[:0:-1])))[::-1].tolist())


def clip(points: Sequence[Vector], need: Vector) -> list[Vector]:
    """The points cut at a need, without those that another covers, in order; the zero point is dropped."""
    cut = sorted({tuple(map(min, point, need)) for point in points}, reverse=True)
    if len(cut) > 1:
        rows = np.array(cut)
        covered: Array = np.asarray((rows[:, None, :] <= rows[None, :, :]).all(axis=2))
        np.fill_diagonal(covered, val=False)
        inside: list[bool] = np.asarray(covered.any(axis=1)).tolist()
        cut = [point for point, dominated in zip(cut, inside, strict=True) if not dominated]
    return [point for point in cut if any(point)]
