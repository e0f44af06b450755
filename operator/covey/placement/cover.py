"""The cheapest way to share a demand among children: a (min,+) dynamic programme over the demand's box.

A child offers points (vectors it can take), each at a price. Every smaller vector costs no more, so only points that
cannot grow matter, and a demand is met when it is *covered*. One pass over the children prices every vector of the
box at once, which is how a domain's own price list is made for the domain above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np

from covey.placement.tables import Array, Budget, Vector

#: No way at all; prices stay below it.
NO_WAY: Final = 1 << 61

Child = TypeVar("Child")


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
    """What one child can take, by the groups (mask) that get their domain inside it: points and their prices."""

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

    def __init__(self, need: Vector, offers: Sequence[Offer[Child]], budget: Budget) -> None:
        self.need = need
        self.offers = offers
        self._strides = _strides(need)
        self.volume = int(np.prod([n + 1 for n in need], dtype=np.int64))
        start: dict[int, Array] = {0: np.full(self.volume, NO_WAY, dtype=np.int64)}
        start[0][0] = 0
        self.layers = [start]
        for offer in offers:
            self.layers.append(self._with(self.layers[-1], offer, budget))

    @property
    def masks(self) -> list[int]:
        """The sets of groups that can be hosted."""
        return sorted(self.layers[-1])

    def price(self, vector: Sequence[int], mask: int = 0) -> int:
        """The lowest price of a vector, `NO_WAY` when there is none."""
        layer = self.layers[-1].get(mask)
        return NO_WAY if layer is None else int(layer[self._flat(vector)])

    def prices(self, vectors: Array, mask: int) -> Array:
        """The lowest price of each row."""
        layer = self.layers[-1].get(mask)
        if layer is None:
            return np.full(len(vectors), NO_WAY)
        found: Array = layer[vectors @ np.array(self._strides)]
        return found

    def shares(self, vector: Sequence[int], mask: int) -> list[Share[Child]]:
        """One cheapest way to share a vector out; among equal ways the one that uses the earlier offers."""
        left, found = tuple(vector), []
        for index in range(len(self.offers) - 1, -1, -1):
            price, before = self.layers[index + 1][mask][self._flat(left)], self.layers[index]
            if mask in before and before[mask][self._flat(left)] == price:
                continue
            inner, point = self._chosen(index, left, mask, price)
            taken = tuple(min(have, wanted) for have, wanted in zip(point, left, strict=True))
            found.append(Share(self.offers[index].child, inner, taken))
            left = tuple(wanted - n for wanted, n in zip(left, taken, strict=True))
            mask ^= inner
        return found[::-1]

    def _chosen(self, index: int, left: Vector, mask: int, price: int) -> tuple[int, Vector]:
        before = self.layers[index]
        for inner, (points, prices) in sorted(self.offers[index].points.items()):
            if inner & ~mask or mask ^ inner not in before:
                continue
            layer = before[mask ^ inner]
            for point, own in zip(points.rows.tolist(), prices.tolist(), strict=True):
                rest = [max(wanted - n, 0) for wanted, n in zip(left, point, strict=True)]
                if layer[self._flat(rest)] + own == price:
                    return inner, tuple(point)
        raise AssertionError("a price without an offer")

    def _with(self, before: dict[int, Array], offer: Offer[Child], budget: Budget) -> dict[int, Array]:
        after = dict(before)
        for inner, (points, prices) in sorted(offer.points.items()):
            if not len(points.rows):
                continue
            budget.spend(points.rest.size)
            for mask, layer in before.items():
                if mask & inner:
                    continue
                best = (layer[points.rest] + prices[:, None]).min(axis=0)
                present = after.get(mask | inner)
                after[mask | inner] = best if present is None else np.minimum(present, best)
        return after

    def _flat(self, vector: Sequence[int]) -> int:
        return sum(n * stride for n, stride in zip(vector, self._strides, strict=True))


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
