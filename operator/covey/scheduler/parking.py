"""Units whose last attempt failed for a reason that a plan cannot mend, and how long each is left alone.

The planner raised an exception or met its limit, the API server denied a pin, or kube-scheduler refused the places for
something that is not modelled: the same attempt would fail in the same way, as fast as it can be made. So such a unit is
parked, each time twice as long. Kept in memory only: a restart begins with the shortest time again, and what people
have to know is in the root's condition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from covey.admission.tree import Key
from covey.api.constants import REASON_DENIED, REASON_UNKNOWN, REASON_UNSCHEDULABLE

#: Seconds for which a unit is parked after its first failure; doubled at each further one.
FIRST: Final = 2.0
LONGEST: Final = 600.0
#: Seconds after which a node that has come or changed lets a unit be tried again that kube-scheduler refused.
HASTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class Parked:
    """The back-off of a unit: its reason, since when, and until when (seconds of the clock).

    ``times``: failures in a row. ``stirred``: something about the unit, or a node that could take it, has changed since.
    ``tried``: it has got its places again since kube-scheduler refused them.
    """

    reason: str
    message: str
    since: float
    until: float
    times: int
    stirred: bool = False
    tried: bool = False


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
        now = self._clock()
        until = now + min(FIRST * 2.0 ** min(times, 16), LONGEST)
        self._parked[root] = Parked(reason, message, now, until, times + 1)

    def reject(self, root: Key, message: str) -> None:
        """kube-scheduler refused a pod of a unit; all that it refuses of one attempt is one failure."""
        before = self._parked.get(root)
        if before is None or before.reason != REASON_UNSCHEDULABLE or before.tried:
            self.park(root, REASON_UNSCHEDULABLE, message)

    def hasten(self, roots: Iterable[Key] | None = None) -> list[Key]:
        """Something has changed that kube-scheduler may have waited for: a claim of these units, or without them a node.

        Returns the units that may be tried sooner.
        """
        now = self._clock()
        sooner: list[Key] = []
        for root in list(self._parked) if roots is None else roots:
            parked = self._parked.get(root)
            if parked is None or parked.reason != REASON_UNSCHEDULABLE:
                continue
            until = now if roots is not None else max(now, parked.since + HASTE)
            if until < parked.until:
                self._parked[root] = replace(parked, until=until)
                sooner.append(root)
        return sooner

    def holding(self, root: Key) -> Parked | None:
        """The back-off of a unit that must not be tried now; None when it may be."""
        parked = self._parked.get(root)
        return parked if parked is not None and self._clock() < parked.until else None

    def left(self, root: Key) -> float | None:
        """Seconds until a parked unit may be tried again."""
        parked = self.holding(root)
        return parked.until - self._clock() if parked else None

    def denied(self, root: Key) -> bool:
        """The unit's last pins were denied, and none were accepted since."""
        return self._is(root, REASON_DENIED)

    def stir(self, root: Key) -> None:
        """Something has changed that may help a parked unit."""
        if root in self._parked:
            self._parked[root] = replace(self._parked[root], stirred=True)

    def exhausted(self, root: Key) -> bool:
        """The unit met the planner's limit and nothing has changed since: trying again would tell nothing new."""
        return self._is(root, REASON_UNKNOWN) and not self._parked[root].stirred

    def planned(self, root: Key) -> None:
        """The planner gave an answer: only what others refused counts on."""
        if not self.denied(root) and not self._is(root, REASON_UNSCHEDULABLE):
            self.forget(root)

    def accept(self, root: Key) -> None:
        """The unit's pins were accepted. Whether kube-scheduler takes them this time is still to be seen."""
        if self._is(root, REASON_UNSCHEDULABLE):
            self._parked[root] = replace(self._parked[root], tried=True)
        else:
            self.forget(root)

    def settle(self, root: Key) -> None:
        """Nothing of the unit is pinned: if it was tried again, it was not refused again."""
        if root in self._parked and self._parked[root].tried:
            self.forget(root)

    def forget(self, root: Key) -> None:
        """The unit is gone, or has what it wanted."""
        self._parked.pop(root, None)

    def _is(self, root: Key, reason: str) -> bool:
        parked = self._parked.get(root)
        return parked is not None and parked.reason == reason
