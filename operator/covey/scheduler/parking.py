"""Units whose last attempt failed for a reason that a plan cannot mend, and how long each is left alone.

The planner raised an exception or met its limit, or the API server denied a pin: the same attempt would fail in the
same way, as fast as it can be made. So such a unit is parked, each time twice as long. Kept in memory only: a restart
begins with the shortest time again, and what people have to know is in the root's condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from covey.admission.tree import Key
from covey.api.constants import REASON_DENIED, REASON_UNKNOWN

#: Seconds for which a unit is parked after its first failure; doubled at each further one.
FIRST: Final = 2.0
LONGEST: Final = 600.0


@dataclass(frozen=True, slots=True)
class Parked:
    """Why a unit is parked, and until when (seconds of the clock).

    ``times``: failures in a row. ``stirred``: something about the unit, or a node that could take it, has changed since.
    """

    reason: str
    message: str
    until: float
    times: int
    stirred: bool = False


class Parking:
    """The parked units.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parked: dict[Key, Parked] = {}

    def park(self, root: Key, reason: str, message: str) -> None:
        """A unit has failed, once more."""
        before = self._parked.get(root)
        times = before.times if before else 0
        until = self._clock() + min(FIRST * 2.0 ** min(times, 16), LONGEST)
        self._parked[root] = Parked(reason, message, until, times + 1)

    def holding(self, root: Key) -> Parked | None:
        """Why a unit must not be tried now; None when it may be."""
        parked = self._parked.get(root)
        return parked if parked is not None and self._clock() < parked.until else None

    def left(self, root: Key) -> float | None:
        """Seconds until a parked unit may be tried again."""
        parked = self.holding(root)
        return parked.until - self._clock() if parked else None

    def denied(self, root: Key) -> bool:
        """The unit's last pins were denied, and none were accepted since."""
        parked = self._parked.get(root)
        return parked is not None and parked.reason == REASON_DENIED

    def stir(self, root: Key) -> None:
        """Something has changed that may help a parked unit."""
        if root in self._parked:
            self._parked[root] = replace(self._parked[root], stirred=True)

    def exhausted(self, root: Key) -> bool:
        """The unit met the planner's limit and nothing has changed since: trying again would tell nothing new."""
        parked = self._parked.get(root)
        return parked is not None and parked.reason == REASON_UNKNOWN and not parked.stirred

    def planned(self, root: Key) -> None:
        """The planner gave an answer: only denied pins count on."""
        if not self.denied(root):
            self.forget(root)

    def forget(self, root: Key) -> None:
        """The unit's pins were accepted, or it is gone."""
        self._parked.pop(root, None)
