"""The cheapest way to share a demand among children: a (min,+) dynamic programme over the demand's box.

A child offers points (vectors it can take), each at a price. Every smaller vector costs no more, so only points that
cannot grow matter, and a demand is met when it is *covered*. One pass over the children prices every vector of the
box at once, which is how a domain's own price list is made for the domain above it.

Prices are words, the more important first (`prices`): arrays of them have the words along their first axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Generic, TypeVar

import numpy as np

from covey.placement.capacity.tables import Array, Vector

#: In the first word: no way at all; prices stay below it.
NO_WAY: Final = 1 << 61
_MORE_THAN_ANY: Final = np.iinfo(np.int64).max

Child = TypeVar("Child")
Price = tuple[int, ...]


class Points:
    """Vectors of the demand's box, and for each where what it leaves of every vector lies in the flat box."""

    __slots__ = ("rest", "rows")

    def __init__(self, points: Sequence[Vector] | Array, need: Vector) -> None:
        self.rows: Array = np.array(points, dtype=np.int64).reshape(len(points), len(need))
        total: Any = np.zeros((len(points), *(1,) * len(need)), dtype=np.int64)
        for axis, (most, stride) in enumerate(zip(need, _strides(need), strict=True)):
            left = np.maximum(np.arange(most + 1)[None, :] - self.rows[:, axis, None], 0) * stride
            total = total + left.reshape(len(points), *(1 if i != axis else most + 1 for i in range(len(need))))
        self.rest: Array = total.reshape(len(points), int(np.prod([n + 1 for n in need])))


@dataclass(frozen=True, slots=True)
class Offer(Generic[Child]):
    """What one child can take, by the groups (mask) that get their domain inside it: points, and words by points."""

    child: Child
    points: dict[int, tuple[Points, Array]]


@dataclass(frozen=True, slots=True)
class Share(Generic[Child]):
    """A child's part of the demand."""

    child: Child
    mask: int
    vector: Vector


class Cover(Generic[Child]):
    """Prices of all vectors up to ``need``, and how each is shared out."""

    def __init__(self, need: Vector, offers: Sequence[Offer[Child]], words: int = 1) -> None:
        self.need = need
        self.offers = offers
        self._strides = _strides(need)
        self.volume = prod(n + 1 for n in need)
        start: dict[int, Array] = {0: np.zeros((words, self.volume), dtype=np.int64)}
        start[0][0, 1:] = NO_WAY
        self.layers = [start]
        for offer in offers:
            self.layers.append(self._with(self.layers[-1], offer))

    @property
    def masks(self) -> list[int]:
        """The sets of groups that can be hosted."""
        return sorted(self.layers[-1])

    def price(self, vector: Sequence[int], mask: int = 0) -> Price:
        """The lowest price of a vector; its first word is `NO_WAY` or more when there is none."""
        layer = self.layers[-1].get(mask)
        return (NO_WAY,) if layer is None else _words(layer, self._flat(vector))

    def prices(self, vectors: Array, mask: int) -> Array:
        """The lowest price of each row."""
        layer = self.layers[-1].get(mask)
        if layer is None:
            nowhere = np.zeros((len(self.layers[0][0]), len(vectors)), dtype=np.int64)
            nowhere[0] = NO_WAY
            return nowhere
        found: Array = layer[:, vectors @ np.array(self._strides)]
        return found

    def shares(self, vector: Sequence[int], mask: int) -> list[Share[Child]]:
        """One cheapest way to share a vector out; among equal ways the one that uses the earlier offers."""
        left, found = tuple(vector), []
        cell = self._flat(left)
        price = _words(self.layers[-1][mask], cell)
        for index in range(len(self.offers) - 1, -1, -1):
            before = self.layers[index]
            if mask in before and _words(before[mask], cell) == price:
                continue
            inner, point = self._chosen(index, cell, mask, price)
            taken = tuple(map(min, point, left))
            found.append(Share(self.offers[index].child, inner, taken))
            left = tuple(wanted - n for wanted, n in zip(left, taken, strict=True))
            mask ^= inner
            cell = self._flat(left)
            price = _words(before[mask], cell)
        return found[::-1]

    def _chosen(self, index: int, cell: int, mask: int, price: Price) -> tuple[int, Vector]:
        """The first point of an offer with which a cell has its price."""
        before, asked = self.layers[index], np.array(price)[:, None]
        for inner, (points, prices) in sorted(self.offers[index].points.items()):
            if inner & ~mask or mask ^ inner not in before:
                continue
            met = (before[mask ^ inner][:, points.rest[:, cell]] + prices == asked).all(axis=0)
            first = int(met.argmax()) if len(met) else 0
            if len(met) and met[first]:
                return inner, tuple(points.rows[first].tolist())
        raise AssertionError("a price without an offer")

    def _with(self, before: dict[int, Array], offer: Offer[Child]) -> dict[int, Array]:
        after = dict(before)
        for inner, (points, prices) in sorted(offer.points.items()):
            if not len(points.rows):
                continue
            for mask, layer in before.items():
                if mask & inner:
                    continue
                costs = layer.take(points.rest, axis=1)
                costs += prices[:, :, None]
                best = _least(costs)
                present = after.get(mask | inner)
                after[mask | inner] = best if present is None else _smaller(best, present)
        return after

    def _flat(self, vector: Sequence[int]) -> int:
        return sum(n * stride for n, stride in zip(vector, self._strides, strict=True))


def _words(layer: Array, cell: int) -> Price:
    return tuple(layer[:, cell].tolist())


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
    """The lower of two prices for each cell."""
    if len(one) == 1:
        return np.minimum(one, other)
    return np.where(lower(one, other), one, other)


def lower(one: Array, other: Array) -> Array:
    """For each cell whether the one price is lower than the other."""
    less, tied = one[0] < other[0], one[0] == other[0]
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        less, tied = less | (tied & (mine < theirs)), tied & (mine == theirs)
    return np.asarray(less)


def _strides(need: Vector) -> tuple[int, ...]:
    """How far apart neighbours along each axis are in the flat box."""
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
