"""The order in which gangs are planned, by priority and age: pure.

By priority, higher first; in a priority every minimum by age, then all surplus. Surplus waits while a minimum of its
priority or a higher one is about to come, but not for longer than its own patience, as those that come never end, and
not where it leaves them room whatever it takes (``spare``). The
question is asked anew before each step, and what has happened meanwhile is told first, so whoever ranks highest among
those that may get a place now is next, also when it came a moment ago.

Where there are Queues, their lanes (``entitlement``) come before all that: priority and age decide inside a lane.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Generator, Hashable, Iterator
from typing import Final, Generic, TypeVar

from covey.admission.entitlement import FIRST, Lane

N = TypeVar("N", bound=Hashable)

#: A gang's place among gangs (``Gang.order``): the lowest is first, and its first part is the priority, negated.
Order = tuple[int, str, str, str, int, str]

_NEVER: Final = float("-inf")
#: Lanes that are looked at between two pauses.
_STEP: Final = 32
#: Seconds for which surplus leaves minimums that are about to come their chance.
PATIENCE: Final = 2.0


#: A name's place: its lane, and its gang's place among gangs.
Place = tuple[Lane, Order]


class SortedQueue(Generic[N]):
    """Names in the order of their lanes and gangs; of each name there is one."""

    def __init__(self) -> None:
        self._sorted: list[tuple[Place, N]] = []
        self._places: dict[N, Place] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[N]:
        return (name for _, name in self._sorted)

    def add(self, name: N, order: Order, lane: Lane = FIRST) -> None:
        """Take a name in, or move it."""
        place = (lane, order)
        if self._places.get(name) != place:
            self.drop(name)
            self._places[name] = place
            insort(self._sorted, (place, name))

    def drop(self, name: N) -> None:
        """Take a name out; unknown ones are ignored."""
        place = self._places.pop(name, None)
        if place is not None:
            del self._sorted[bisect_left(self._sorted, (place, name))]

    def defer(self, name: N, lane: Lane) -> bool:
        """Move a name to a lane that is behind its own; returns whether it was moved."""
        known, order = self._places[name]
        if lane > known:
            self.add(name, order, lane)
        return lane > known

    def renew(self) -> None:
        """Forget the lanes."""
        for (_, order), name in [each for each in self._sorted if each[0][0] != FIRST]:
            self.add(name, order)

    def in_order(self) -> Iterator[tuple[Place, N]]:
        """All, with their places."""
        return iter(self._sorted)

    def first(self) -> tuple[Place, N] | None:
        """The first of all."""
        return self._sorted[0] if self._sorted else None


class ActiveQueue(Generic[N]):
    """The queue of gangs that want places now, and of those whose minimum is about to come."""

    def __init__(self) -> None:
        self._minimums: SortedQueue[N] = SortedQueue()
        self._surplus: SortedQueue[N] = SortedQueue()
        #: Name → priority, until when it is waited for, and the resources that it is short of.
        self._coming: dict[N, tuple[int, float, Collection[str]]] = {}
        #: Of surplus, since when it has wanted a place, the resources that it takes, and how many pods it is.
        self._takes: dict[N, tuple[float, Collection[str], int]] = {}
        #: The pods that may take places and keep none of these minimums from its own, counted up to a number.
        self.spare: Callable[[Collection[N], int], int] = lambda _names, _most: 0

    def __len__(self) -> int:
        return len(self._minimums) + len(self._surplus)

    def __contains__(self, name: object) -> bool:
        return name in self._minimums or name in self._surplus

    def add(
        self,
        name: N,
        order: Order,
        *,
        surplus: bool = False,
        since: float = _NEVER,
        takes: Collection[str] = (),
        pods: int = 0,
    ) -> None:
        """Put a gang in line, which wants a place now: for what its minimum lacks, or for surplus.

        Args:
            name: of the gang.
            order: its place among gangs.
            surplus: whether its minimum has its places.
            since: when the surplus was first wanted (clock's time).
            takes: resources that the surplus asks for.
            pods: how many pods the surplus is.
        """
        self.drop(name)
        (self._surplus if surplus else self._minimums).add(name, order)
        if surplus:
            self._takes[name] = (since, takes, pods)

    def drop(self, name: N) -> None:
        """Take a gang out of the line: it wants no place any more."""
        self._minimums.drop(name)
        self._surplus.drop(name)
        self._takes.pop(name, None)

    def expect(self, name: N, priority: int, until: float, short_of: Collection[str]) -> None:
        """A minimum is about to come, and surplus that takes what it is short of leaves it its chance until then."""
        self._coming[name] = (priority, until, short_of)

    def forget(self, name: N) -> None:
        """A gang is waited for no longer."""
        self._coming.pop(name, None)

    def renew(self) -> None:
        """Lanes may have become better: look at each again when its turn comes."""
        self._minimums.renew()
        self._surplus.renew()

    def next(self, now: float = _NEVER, lane: Callable[[N], Lane] = lambda _name: FIRST) -> N | None:
        """The next gang; None when none may get a place now.

        Args:
            now: by the clock of ``expect`` and of ``add``.
            lane: of a gang, as it is now. It is looked at when its turn comes: until then it is taken for the first.
        """
        steps = self.find_next(now, lane)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                name: N | None = done.value
                return name

    def find_next(
        self, now: float = _NEVER, lane: Callable[[N], Lane] = lambda _name: FIRST
    ) -> Generator[None, None, N | None]:
        """The same with pauses, in which names may come and go: after an edit of a queue all lanes are looked at anew."""
        while True:
            for _ in range(_STEP):
                name = self._next(now)
                queue = self._minimums if name in self._minimums else self._surplus
                if name is None or not queue.defer(name, lane(name)):
                    return name
            yield

    def _next(self, now: float) -> N | None:
        minimum, surplus = self._minimums.first(), self._surplus.first()
        before = (minimum[0][0], minimum[0][1][0]) if minimum else None
        if surplus is None or (before is not None and before <= (surplus[0][0], surplus[0][1][0])):
            return minimum[1] if minimum else None
        self._coming = {name: each for name, each in self._coming.items() if now < each[1]}
        awaited: dict[str, int] = {}
        for priority, _, short_of in self._coming.values():
            for resource in short_of:
                awaited[resource] = max(priority, awaited.get(resource, priority))
        left: int | None = None
        for (lane, order), name in self._surplus.in_order():
            if before is not None and before <= (lane, order[0]):
                break
            since, takes, pods = self._takes[name]
            if since + PATIENCE <= now or not any(awaited.get(each, _NEVER) >= -order[0] for each in takes):
                return name
            # Where it is too little for the first of them, it was counted to its end.
            left = (
                self.spare([coming for coming, wait in self._coming.items() if wait[2]], pods) if left is None else left
            )
            if 0 < pods <= left:
                return name
        return minimum[1] if minimum else None
