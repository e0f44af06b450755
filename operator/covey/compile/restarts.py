"""Restarts and failures of the earlier pods of a replica, handed on from pod to successor, and the back-off from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from covey.api import core
from covey.api.roles import Backoff

#: How often the replica that a pod belongs to was recreated, for whatever reason.
ANNOTATION_RESTARTS: Final = "covey.dev/restarts"


#: How often it has failed in a row, and when last (RFC 3339).
ANNOTATION_FAILURES: Final = "covey.dev/failures"


ANNOTATION_FAILED_AT: Final = "covey.dev/failed-at"


#: How often its unit was recreated as a whole.
ANNOTATION_UNIT_RESTARTS: Final = "covey.dev/unit-restarts"


#: Seconds for which failures are remembered at least.
_SHORTEST_MEMORY: Final = 600.0


#: Longest count that Covey has written.
_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Past:
    """``restarts`` of its replica in all, ``failures`` in a row with the time of the last, ``unit`` restarts.

    What others did to a replica (a deletion, an eviction, a node that was lost) is a restart and no failure. Times are
    in seconds since the epoch.
    """

    restarts: int = 0
    failures: int = 0
    failed_at: float = 0.0
    unit: int = 0

    @classmethod
    def read(cls, annotations: Mapping[str, str] | None) -> Past:
        """Read the past from a pod's annotations."""
        if not annotations:
            return NO_PAST
        return cls(
            _count(annotations, ANNOTATION_RESTARTS),
            _count(annotations, ANNOTATION_FAILURES),
            core.seconds(annotations.get(ANNOTATION_FAILED_AT)) or 0.0,
            _count(annotations, ANNOTATION_UNIT_RESTARTS),
        )

    def annotations(self) -> dict[str, str]:
        """Annotations that carry this past; none where nothing has happened."""
        counts = {
            ANNOTATION_RESTARTS: self.restarts,
            ANNOTATION_FAILURES: self.failures,
            ANNOTATION_UNIT_RESTARTS: self.unit,
        }
        annotations = {key: str(count) for key, count in counts.items() if count}
        return annotations | ({ANNOTATION_FAILED_AT: core.rfc3339(self.failed_at)} if self.failures else {})

    def merge(self, other: Past | None) -> Past:
        """Merge two pasts: the one with more restarts, ``other`` if equal, with the higher count of unit restarts."""
        if other is None or other == NO_PAST:
            return self
        more = other if other.restarts >= self.restarts else self
        return Past(more.restarts, more.failures, more.failed_at, max(self.unit, other.unit))

    def starts_at(self, backoff: Backoff) -> float:
        """Time at which a pod with this past may start: at once after the first failure, then later and later."""
        return self.failed_at + delay(self.failures, backoff) if self.failures else 0.0


NO_PAST: Final = Past()


def delay(failures: int, backoff: Backoff) -> float:
    """Seconds from the last of ``failures`` failures in a row until the next start; none after the first."""
    if failures <= 1:
        return 0.0
    # The exponent is bounded: a base of one second passes an hour long before.
    return float(min(backoff.base * 2 ** min(failures - 2, 16), backoff.most))


def memory(backoff: Backoff) -> float:
    """Seconds that a replica has to live after it was first Ready for its failures to be forgotten."""
    return max(2.0 * backoff.most, _SHORTEST_MEMORY)


def _count(annotations: Mapping[str, str], key: str) -> int:
    written = annotations.get(key, "")
    return int(written) if written.isdecimal() and len(written) <= _DIGITS else 0
