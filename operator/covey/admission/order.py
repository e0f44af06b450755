"""The order in which gangs are planned: pure.

By priority, higher first; in a priority every minimum by age, then all surplus. Surplus waits while a minimum of its
priority or a higher one is about to come, but not for longer than its own patience: those that come never end. The question is asked anew before each step, and what has happened meanwhile
is told first, so whoever ranks highest among those that may get a place now is next, also when it came a moment ago.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator
from typing import Final, Generic, TypeVar

N = TypeVar("N", bound=Hashable)

#: A gang's place among gangs (``Gang.order``): the lowest is first, and its first part is the priority, negated.
Order = tuple[int, str, str, str, int, str]

_NEVER: Final = float("-inf")
#: Seconds for which surplus leaves minimums that are about to come their chance.
PATIENCE: Final = 2.0


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

    def sorted(self) -> Iterator[tuple[Order, N]]:
        """All, with their orders."""
        return iter(self._sorted)

    def first(self) -> tuple[Order, N] | None:
        """The first of all."""
        return self._sorted[0] if self._sorted else None


class Line(Generic[N]):
    """The queue of gangs that want places now, and of those whose minimum is about to come."""

    def __init__(self) -> None:
        self._minimums: Queue[N] = Queue()
        self._surplus: Queue[N] = Queue()
        #: Name → priority, until when it is waited for, and the resources that it is short of.
        self._coming: dict[N, tuple[int, float, Collection[str]]] = {}
        #: Of surplus, since when it has wanted a place, and the resources that it takes.
        self._takes: dict[N, tuple[float, Collection[str]]] = {}

    def __len__(self) -> int:
        return len(self._minimums) + len(self._surplus)

    def __contains__(self, name: object) -> bool:
        return name in self._minimums or name in self._surplus

    def put(
        self, name: N, order: Order, *, surplus: bool = False, since: float = _NEVER, takes: Collection[str] = ()
    ) -> None:
        """A gang wants a place now: for what its minimum lacks, or for surplus.

        Args:
            name: of the gang.
            order: its place among gangs.
            surplus: whether its minimum has its places.
            since: when the surplus was first wanted (clock's time).
            takes: resources that the surplus asks for.
        """
        self.drop(name)
        (self._surplus if surplus else self._minimums).put(name, order)
        if surplus:
            self._takes[name] = (since, takes)

    def drop(self, name: N) -> None:
        """It does not any more."""
        self._minimums.drop(name)
        self._surplus.drop(name)
        self._takes.pop(name, None)

    def expect(self, name: N, priority: int, until: float, short_of: Collection[str]) -> None:
        """A minimum is about to come, and surplus that takes what it is short of leaves it its chance until then."""
        self._coming[name] = (priority, until, short_of)

    def forget(self, name: N) -> None:
        """A gang is waited for no longer."""
        self._coming.pop(name, None)

    def next(self, now: float = _NEVER) -> N | None:
        """The next gang; None when none may get a place now.

        Args:
            now: by the clock of ``expect`` and of ``put``.
        """
        minimum, surplus = self._minimums.first(), self._surplus.first()
        if surplus is None or (minimum is not None and minimum[0][0] <= surplus[0][0]):
            return minimum[1] if minimum else None
        self._coming = {name: each for name, each in self._coming.items() if now < each[1]}
        awaited: dict[str, int] = {}
        for priority, _, short_of in self._coming.values():
            for resource in short_of:
                awaited[resource] = max(priority, awaited.get(resource, priority))
        for order, name in self._surplus.sorted():
            if minimum is not None and minimum[0][0] <= order[0]:
                break
            since, takes = self._takes[name]
            if since + PATIENCE <= now or not any(awaited.get(each, _NEVER) >= -order[0] for each in takes):
                return name
        return minimum[1] if minimum else None


__all__ = ["PATIENCE", "Line", "Order", "Queue"]
