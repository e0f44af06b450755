"""The order in which gangs are planned, by priority and age, and pins that have outlived their reason: pure.

By priority, higher first; in a priority every minimum by age, then all surplus. Surplus waits while a minimum of its
priority or a higher one is about to come, but not for longer than its own patience, as those that come never end, and
not where it leaves them room whatever it takes (``spare``). The
question is asked anew before each step, and what has happened meanwhile is told first, so whoever ranks highest among
those that may get a place now is next, also when it came a moment ago.

Where there are Queues, their lanes (``entitlement``) come before all that: priority and age decide inside a lane.

An admitted gang must be bound ``timeoutSeconds`` after ``Admitted=True`` on its root. A pin made later (surplus, a
replacement) has the same time from when it was seen, and one that waited for others to start from when it may; a
restart gives it that time again. And a unit that keeps pins while pods of its minimum do not even exist is given up
after a short while: the pods that were let go are recreated gated, with the rest.

Times are of the process's monotonic clock: when it saw what. Only a process that starts has nothing but the stamp of
the condition, another machine's, perhaps another year's; so whatever it says, pins that are found have a while left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from covey.admission.entitlement import FIRST, Lane
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ADMITTED, RELEASE_CONFLICT, RELEASE_TIMEOUT
from covey.model import podstate

#: Priorities that every cluster has.
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priority_of(written: int | None, name: str | None, classes: Mapping[str, core.PriorityClass]) -> int | None:
    """The priority of its class, else the global default, else 0, or less where less is written; None for an unknown class.

    Whoever may create groups may write any number; a class is an administrator's, as for pods
    (``plugin/pkg/admission/priority``).

    Args:
        written: ``spec.priority``.
        name: ``spec.priorityClassName``.
        classes: the cluster's classes by name.
    """
    if name:
        value = classes[name].value if name in classes else _SYSTEM.get(name)
    else:
        value = next((each.value for each in classes.values() if each.global_default), 0)
    return value if written is None or value is None else min(written, value)


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


#: Seconds that pins wait for missing pods of their minimum to be created.
GRACE: Final = 10.0
#: Seconds that pins have at least when a process finds them: by then kube-scheduler has made its calls again.
AT_START: Final = 15.0


@dataclass(frozen=True, slots=True)
class Due:
    """A pin, when it must be undone (monotonic seconds), and why."""

    pod: core.Pod
    when: float
    reason: str


def due(
    unit: Unit,
    pinned_at: Mapping[str, float],
    admitted_at: float | None,
    torn_since: float | None,
    back_at: float | None = None,
) -> Iterator[Due]:
    """Times at which the unbound pins of a unit run out.

    Args:
        unit: the unit.
        pinned_at: UID → when the pin was first seen.
        admitted_at: when it was first seen that the unit is admitted.
        torn_since: when it was first seen that pods of the minimum do not exist.
        back_at: when kube-scheduler was first heard of after it had been away.
    """
    for pod in unit.pods():
        if podstate.pinned_node(pod) is None:
            continue
        # Who may not start yet is late for nothing.
        waits = podstate.waits_for_start(pod)
        starts = [start for start in (admitted_at, pinned_at.get(pod.metadata.uid)) if start is not None]
        if starts and not waits:
            yield Due(pod, max(*starts, back_at or starts[0]) + unit.timeout, RELEASE_TIMEOUT)
        if torn_since is not None:
            yield Due(pod, torn_since + GRACE, RELEASE_CONFLICT)


def admitted_since(unit: Unit) -> float | None:
    """Since when the root says that the unit is admitted, seconds since the epoch."""
    found = core.condition(unit.root.status.conditions, ADMITTED)
    return core.seconds(found.last_transition_time) if found is not None and found.status == "True" else None


def found_admitted(unit: Unit, now: float, wall: float) -> float | None:
    """Time from which the admission that a starting process finds counts; None for a unit that is not admitted.

    Args:
        unit: the unit.
        now: monotonic seconds.
        wall: seconds since the epoch.
    """
    admitted = admitted_since(unit)
    if admitted is None:
        return None
    return now - min(max(0.0, wall - admitted), max(0.0, unit.timeout - AT_START))


def found_pinned(unit: Unit, now: float, wall: float) -> dict[str, float]:
    """Times from which the pins that a starting process finds count.

    Those of a minimum that is not bound yet count from the unit's admission, which its status has kept. Others, and
    those whose admission was not written any more, count from now.
    """
    admitted = found_admitted(unit, now, wall)
    since = now if admitted is None or unit.minimum_met(podstate.occupies_node) else admitted
    found = (pod for pod in unit.pods() if podstate.pinned_node(pod) and not podstate.waits_for_start(pod))
    return {pod.metadata.uid: since for pod in found}


def torn(unit: Unit) -> bool:
    """The unit has unbound pins, but its minimum lacks pods altogether."""
    return any(podstate.pinned_node(pod) for pod in unit.pods()) and not unit.minimum_met(lambda _pod: True)


__all__ = ["PATIENCE", "ActiveQueue", "Order", "SortedQueue"]
