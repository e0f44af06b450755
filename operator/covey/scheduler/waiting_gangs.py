"""Counts of waiting gangs by reason, and since when: kept up change by change, so that nothing is counted at a scrape."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from typing import Final

from covey.admission.nodes import Key
from covey.api.constants import REASON_WAITING, REFUSALS
from covey.observability import scheduler_metrics as metrics

#: All that the label ``reason`` can be.
REASONS: Final = (REASON_WAITING, *REFUSALS, OTHER := "Other")


#: Entries of the heap that may be out of date before it is made anew.
_STALE: Final = 64


class Waiting:
    """The gangs whose minimum has no place.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[Key, tuple[str, float]] = {}
        self._heaps: dict[str, list[tuple[float, Key]]] = {reason: [] for reason in REASONS}
        #: By reason, since when the gang that has waited longest has; a scrape reads it from a thread.
        self.oldest: dict[str, float] = {}

    def begin(self) -> None:
        """Begin to lead: from now on this process shows who waits, also that nobody does."""
        for reason in REASONS:
            metrics.GANGS_WAITING.labels(reason).inc(0)
            metrics.GANGS_WAITING_OLDEST.labels(reason).set_function(partial(self.age, reason))

    def age(self, reason: str) -> float:
        """Seconds that the gang that has waited longest has waited, of those that wait for a reason."""
        oldest = self.oldest.get(reason)
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)

    def update(self, root: Key, reason: str | None, since: float | None) -> None:
        """A gang waits, or still does.

        Args:
            root: of the gang.
            reason: why it was not admitted; None when nothing speaks against it yet.
            since: when it began to, seconds since the epoch; None when its status does not tell yet.
        """
        known = self._known.get(root)
        if since is None:
            since = known[1] if known else self._clock()
        new = (_bounded_reason(reason), since)
        if new == known:
            return
        self._count(known, new)
        self._known[root] = new
        heapq.heappush(self._heaps[new[0]], (since, root))
        self._settle(*({known[0], new[0]} if known else {new[0]}))

    def drop(self, root: Key) -> None:
        """A gang waits no more."""
        known = self._known.pop(root, None)
        if known is not None:
            self._count(known, None)
            self._settle(known[0])

    @staticmethod
    def _count(before: tuple[str, float] | None, after: tuple[str, float] | None) -> None:
        for known, step in ((before, -1), (after, 1)):
            if known is not None:
                metrics.GANGS_WAITING.labels(known[0]).inc(step)

    def _settle(self, *reasons: str) -> None:
        for reason in reasons:
            heap = self._heaps[reason]
            if len(heap) > 2 * len(self._known) + _STALE:
                heap[:] = [(since, root) for root, (why, since) in self._known.items() if why == reason]
                heapq.heapify(heap)
            while heap and self._known.get(heap[0][1]) != (reason, heap[0][0]):
                heapq.heappop(heap)
            if heap:
                self.oldest[reason] = heap[0][0]
            else:
                self.oldest.pop(reason, None)


def _bounded_reason(reason: str | None) -> str:
    if reason is None:
        return REASON_WAITING
    return reason if reason in REASONS else OTHER
