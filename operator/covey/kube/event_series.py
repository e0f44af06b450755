"""Series of Events: one occurrence becomes a new Event, part of a series, or nothing. Without I/O."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

#: Seconds without a repetition that end a series.
GAP: Final = 120.0
#: Token bucket of each object: ``BURST`` writes at once, then one every ``REFILL`` seconds.
BURST: Final = 25
REFILL: Final = 5.0
#: Series and buckets remembered; a forgotten one begins again.
REMEMBERED: Final = 4096
#: Bytes of a note that the API takes.
NOTE: Final = 1024
_ELLIPSIS: Final = "…"
#: A name may have 253 characters; the rest is for the time.
_NAME: Final = 230


class ObjectRef(NamedTuple):
    """The object that an Event is about; ``namespace`` is empty for cluster-scoped ones."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def body(self) -> dict[str, str]:
        """``core/v1`` ObjectReference."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {name: value for name, value in fields.items() if value}


class Occurrence(NamedTuple):
    """An occurrence of an Event; equal ones within two minutes are one series."""

    regarding: ObjectRef
    type: str
    reason: str
    note: str
    action: str


@dataclass(slots=True)
class EventSeries:
    """One Event object: how often it has occurred, and how much of that is written (0: not even the object)."""

    name: str
    first: float
    last: float
    count: int = 1
    written: int = 0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float

    def take(self, now: float) -> bool:
        """Use up one token; tell whether there was one."""
        # A clock that is set back takes nothing away: else an object would have no Events until it has caught up.
        self.tokens = min(self.tokens + max(0.0, now - self.filled) / REFILL, float(BURST))
        self.filled = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


class Book:
    """Remembers series and token buckets; both bounded, the longest unused forgotten first."""

    def __init__(self) -> None:
        self._series: OrderedDict[Occurrence, EventSeries] = OrderedDict()
        self._buckets: OrderedDict[ObjectRef, _Bucket] = OrderedDict()
        self._serial = 0

    def enter(self, occurrence: Occurrence, now: float) -> tuple[EventSeries | None, bool]:
        """Count an occurrence.

        Returns:
            Its series, None when the object has too many Events to begin another; and whether to write it now.
            An unwritten repetition is not lost: the next one that is written carries the count.
        """
        affordable = self._bucket(occurrence.regarding, now).take(now)
        series = self._series.get(occurrence)
        if series is not None and now - series.last < GAP:
            series.count += 1
            series.last = now
            self._series.move_to_end(occurrence)
            return series, affordable
        if not affordable:
            return None, False
        return self.begin(occurrence, now), True

    def begin(self, occurrence: Occurrence, now: float) -> EventSeries:
        """A new Event object for an occurrence."""
        self._serial += 1
        name = f"{occurrence.regarding.name[:_NAME]}.{int(now * 1e6):x}{self._serial & 0xFFF:03x}"
        series = self._series[occurrence] = EventSeries(name, now, now)
        self._series.move_to_end(occurrence)
        if len(self._series) > REMEMBERED:
            self._series.popitem(last=False)
        return series

    def _bucket(self, regarding: ObjectRef, now: float) -> _Bucket:
        bucket = self._buckets.setdefault(regarding, _Bucket(float(BURST), now))
        self._buckets.move_to_end(regarding)
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket


def truncate(note: str) -> str:
    """A note of at most 1,024 bytes, cut between characters."""
    encoded = note.encode()
    if len(encoded) <= NOTE:
        return note
    return encoded[: NOTE - len(_ELLIPSIS.encode())].decode(errors="ignore") + _ELLIPSIS


def body(occurrence: Occurrence, series: EventSeries, component: str, instance: str) -> dict[str, Any]:
    """The Event object; with a series when it has occurred more than once."""
    regarding = occurrence.regarding
    event: dict[str, Any] = {
        # Events about cluster-scoped objects live in the namespace `default`, as the API demands.
        "metadata": {"name": series.name, "namespace": regarding.namespace or "default"},
        "regarding": regarding.body(),
        "type": occurrence.type,
        "reason": occurrence.reason,
        "note": occurrence.note,
        "action": occurrence.action,
        "eventTime": micro_time(series.first),
        "reportingController": component,
        "reportingInstance": instance,
    }
    return event if series.count == 1 else {**event, **patch(series)}


def patch(series: EventSeries) -> dict[str, Any]:
    """The merge patch that brings an Event's series up to date."""
    return {"series": {"count": series.count, "lastObservedTime": micro_time(series.last)}}


def micro_time(seconds: float) -> str:
    """``metav1.MicroTime`` of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
