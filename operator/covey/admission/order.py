"""Whose turn it is: pure.

By priority, higher first; in a priority every minimum by age, then all surplus. Surplus waits while a minimum of its
priority or a higher one is about to come. The question is asked anew before each step, and what has happened meanwhile
is told first, so whoever ranks highest among those that may get a place now is next, also when it came a moment ago.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

N = TypeVar("N", bound=Hashable)

#: A gang's place among gangs (``Gang.order``): the lowest is first, and its first part is the priority, negated.
Order = tuple[int, str, str, str, int, str]

_NEVER: Final = float("-inf")


class Queue(Generic[N]):
    """Names in the order of their gangs; of each name there is one."""

    def __init__(self) -> None:
        self._sorted: list[tuple[Order, N]] = []
        self._orders: dict[N, Order] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._orders

    def __iter__(self) -> Iterator[N]:
        return (name for _, name in self._sorted)

    def put(self, name: N, order: Order) -> None:
        """Take a name in, or move it."""
        if self._orders.get(name) != order:
            self.drop(name)
            self._orders[name] = order
            insort(self._sorted, (order, name))

    def drop(self, name: N) -> None:
        """Take a name out; unknown ones are ignored."""
        order = self._orders.pop(name, None)
        if order is not None:
            del self._sorted[bisect_left(self._sorted, (order, name))]

    def first(self) -> tuple[Order, N] | None:
        """The first of all."""
        return self._sorted[0] if self._sorted else None


class Line(Generic[N]):
    """Who wants a place now, and whose minimum is about to come."""

    def __init__(self) -> None:
        self._minimums: Queue[N] = Queue()
        self._surplus: Queue[N] = Queue()
        #: Name → priority (None: not known yet) and until when it is waited for.
        self._coming: dict[N, tuple[int | None, float]] = {}

    def __len__(self) -> int:
        return len(self._minimums) + len(self._surplus)

    def __contains__(self, name: object) -> bool:
        return name in self._minimums or name in self._surplus

    def put(self, name: N, order: Order, *, surplus: bool = False) -> None:
        """A gang wants a place now: for what its minimum lacks, or for surplus."""
        self._surplus.drop(name)
        self._minimums.drop(name)
        (self._surplus if surplus else self._minimums).put(name, order)

    def drop(self, name: N) -> None:
        """It does not any more."""
        self._minimums.drop(name)
        self._surplus.drop(name)

    def expect(self, name: N, priority: int | None, until: float) -> None:
        """A minimum is about to come, and surplus leaves it its chance.

        Args:
            name: of the gang.
            priority: of the gang; None while it is not known, which may be any.
            until: the clock's time at which it is waited for no longer.
        """
        self._coming[name] = (priority, until)

    def forget(self, name: N) -> None:
        """A gang is waited for no longer."""
        self._coming.pop(name, None)

    def next(self, now: float = _NEVER) -> N | None:
        """Who is next; None when nobody may get a place now.

        Args:
            now: by the clock of ``expect``.
        """
        minimum, surplus = self._minimums.first(), self._surplus.first()
        if surplus is None or (minimum is not None and minimum[0][0] <= surplus[0][0]):
            return minimum[1] if minimum else None
        if not self._awaited(-surplus[0][0], now):
            return surplus[1]
        # All other surplus waits too: it is of this priority or of a lower one.
        return minimum[1] if minimum else None

    def _awaited(self, priority: int, now: float) -> bool:
        """A minimum of this priority or a higher one is about to come."""
        self._coming = {name: each for name, each in self._coming.items() if now < each[1]}
        return any(other is None or other >= priority for other, _ in self._coming.values())


__all__ = ["Line", "Order", "Queue"]
