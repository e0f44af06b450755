"""Sharing out a demand that is too large to be priced vector by vector: child after child, never into a dead end.

Sums of the children from each one to the last tell what the rest can still take, so every step keeps the demand
feasible. The children come cheapest first, and each takes as much as it can: good, but not proven cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

from covey.placement.capacity.frame import Frame, TableEntry
from covey.placement.capacity.tables import Budget, Vector
from covey.placement.sharing.cover_dp import NO_WAY, Child, ChildShare


class Chain(Generic[Child]):
    """The children in order, and what each tail of them holds."""

    def __init__(
        self, need: Vector, children: Sequence[tuple[Child, TableEntry]], frame: Frame, budget: Budget
    ) -> None:
        self.need = need
        self._places = [child for child, _ in children]
        self._children = [entry for _, entry in children]
        self._tails = [frame.zero]
        for entry in reversed(self._children):
            self._tails.append(frame.add(entry, self._tails[-1], budget))
        self._tails.reverse()

    @property
    def masks(self) -> list[int]:
        """The sets of groups with which the whole need fits."""
        return sorted(mask for mask, table in self._tails[0].tables.items() if table.holds(self.need))

    def price(self, vector: Sequence[int], mask: int = 0) -> tuple[int, ...]:
        """Return zero for all that fits: nothing is priced here."""
        table = self._tails[0].tables.get(mask)
        return (0 if table is not None and table.holds(vector) else NO_WAY,)

    def shares(self, vector: Sequence[int], mask: int) -> list[ChildShare[Child]]:
        """Return one way to share a vector out."""
        left: Vector = tuple(vector)
        shares: list[ChildShare[Child]] = []
        for index, child in enumerate(self._places):
            if not any(left) and not mask:
                break
            inner, taken = self._step(index, left, mask)
            if inner or any(taken):
                shares.append(ChildShare(child, inner, taken))
            left = tuple(wanted - n for wanted, n in zip(left, taken, strict=True))
            mask ^= inner
        return shares

    def _step(self, index: int, left: Vector, mask: int) -> tuple[int, Vector]:
        """The most that a child can take, with which the rest still fits behind it."""
        best: tuple[int, Vector] | None = None
        for inner, table in sorted(self._children[index].tables.items()):
            rest = self._tails[index + 1].tables.get(mask ^ inner)
            if inner & ~mask or rest is None:
                continue
            for point in table.points:
                taken = tuple(map(min, point, left))
                if best is not None and sum(taken) <= sum(best[1]):
                    continue
                if rest.holds([wanted - n for wanted, n in zip(left, taken, strict=True)]):
                    best = (inner, taken)
        assert best is not None, "the tail holds what is left"
        return best
