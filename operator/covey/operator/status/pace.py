"""The pace of status writes: at once for a state that lasts, later for one that may pass by itself.

A status write costs the API server more than to create a pod. A resource that is created, admitted and bound within a
second should cost it one, not one for each step; and a thousand pods that become Ready one after the other, one a
second. Rules as for the groups' status (decision 5).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from covey.api import constants as names
from covey.operator.model.phase import Phase
from covey.operator.model.problem import Problem
from covey.operator.status.units import UnitSummary

#: Seconds that a state must last which is expected to pass.
SETTLE: Final = 2.0


#: With more resources than this on their way it is longer in proportion: a busy API server has better to do.
CROWD: Final = 8


#: How many times longer at most.
PATIENCE: Final = 10.0


#: Seconds between two writes of one resource that differ in counts and sentences alone.
COUNTS: Final = 1.0


def is_passing(units: Sequence[UnitSummary], problem: Problem | None, served: Container[int] = ()) -> bool:
    """Tell whether units are on their way, and nothing speaks against any of them: the status may soon be another.

    They have not been looked at yet, or are about to be bound, or to serve.

    Engines that load for minutes have it written that they are bound; one that is Ready at once needs one write for
    both.

    Args:
        units: how far each has come.
        problem: what stands in the way.
        served: numbers of units that have served. One that is on its way again was lost, and that is reported at once.
    """
    if problem is not None:
        return False
    going = [unit for unit in units if not unit.is_available]
    return bool(going) and all(
        (unit.phase in {Phase.ADMITTED, Phase.SCHEDULED} or unit.reason == names.REASON_WAITING)
        and unit.number not in served
        for unit in going
    )


def is_news(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Tell whether a condition has another status or reason, or is about another generation."""
    return _gist(before) != _gist(after)


def _gist(status: Mapping[str, Any]) -> tuple[object, ...]:
    conditions = sorted(
        (condition["type"], condition["status"], condition["reason"]) for condition in status.get("conditions") or ()
    )
    return status.get("observedGeneration"), conditions


class Pace:
    """Keeps since when resources are on their way and when their status was written last, by UID.

    Args:
        clock: monotonic, seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._passing: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def delay(self, uid: str, *, passing: bool, news: bool) -> float:
        """Seconds until a status that differs from the stored one is to be written."""
        now = self._clock()
        rest = self._written.get(uid, float("-inf")) + COUNTS - now
        if passing:
            since = self._passing.setdefault(uid, now)
            rush = min(max(1.0, len(self._passing) / CROWD), PATIENCE)
            return max(since + SETTLE * rush - now, rest, 0.0)
        self._passing.pop(uid, None)
        return 0.0 if news else max(rest, 0.0)

    def note_write(self, uid: str) -> None:
        """Note that the status has been written: it is up to date, and no event will come to say so."""
        self._written[uid] = self._clock()
        self.note_current(uid)

    def note_current(self, uid: str) -> None:
        """Note that the stored status is up to date."""
        self._passing.pop(uid, None)

    def forget(self, uid: str) -> None:
        """Forget a resource that is gone."""
        self._passing.pop(uid, None)
        self._written.pop(uid, None)
