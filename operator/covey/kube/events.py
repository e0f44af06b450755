"""Events (``events.k8s.io/v1``) on the objects that people look at.

Recording never waits and never fails: a caller says what happened and goes on; a task of its own writes.
Repetitions within two minutes (same object, type, reason, note, action) become one Event with a ``series``, as in
client-go's recorder; each object has a token bucket, as in its spam filter; what waits to be written is
bounded, namespaces take turns, and what is dropped, of the namespace that has most, is counted.

Series of Events: one occurrence becomes a new Event, part of a series, or nothing. Without I/O.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, KubeError, NotFound, Unreachable
from covey.kube.queue import Rounds
from covey.kube.resources import EVENTS
from covey.observability.logging import get_logger
from covey.observability.metrics import EVENTS_DROPPED

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


_log = get_logger(__name__)

#: Events that may wait to be written; beyond it the oldest of the namespace that has most is dropped.
_PENDING: Final = 1000
#: Attempts while the API server cannot be reached, 1, 2, 4 and 8 s apart.
_ATTEMPTS: Final = 5


class EventRecorder:
    """Writes Events in the name of a component.

    Args:
        client: to the API server.
        component: ``reportingController``.
        instance: ``reportingInstance``, the pod's name.
        clock: seconds since the epoch.
    """

    def __init__(self, client: Client, component: str, instance: str, *, clock: Callable[[], float]) -> None:
        self._client = client
        self._component = component
        self._instance = instance[:128]
        self._clock = clock
        self._book = Book()
        self._pending: dict[Occurrence, EventSeries] = {}
        self._turns: Rounds[Occurrence] = Rounds(attrgetter("regarding.namespace"))
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()

    def event(
        self,
        regarding: ObjectRef | Mapping[str, Any],
        type: Literal["Normal", "Warning"],  # noqa: A002 - the field's name
        reason: str,
        note: str,
        action: str,
    ) -> None:
        """Say what happened to an object. Returns at once and never raises.

        Args:
            regarding: the object; a mapping has the keys of an ObjectReference.
            type: ``Normal``, or ``Warning`` for what a person may have to act on.
            reason: CamelCase word that says why.
            note: a sentence; cut at 1,024 bytes.
            action: CamelCase word for what was being done.
        """
        try:
            ref = regarding if isinstance(regarding, ObjectRef) else _ref(regarding)
            self._enter(Occurrence(ref, type, reason, truncate(note), action))
        except Exception:  # noqa: BLE001 - an Event is never worth a failure
            _log.exception("event not recorded", reason=reason)

    async def run(self) -> None:
        """Write what is recorded, until cancelled; ``flush`` afterwards writes the rest."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._drain()

    async def flush(self, seconds: float = 2.0) -> None:
        """Write what still waits, within that many seconds; with or without ``run``."""
        try:
            async with asyncio.timeout(seconds):
                await self._drain()
        except TimeoutError:
            _log.warning("events not written at the end", count=len(self._pending))

    def _enter(self, occurrence: Occurrence) -> None:
        series, write = self._book.enter(occurrence, self._clock())
        if series is None:
            EVENTS_DROPPED.labels("rate").inc()
        elif write:
            self._pending[occurrence] = series
            self._turns.add(occurrence)
            if len(self._pending) > _PENDING:
                self._forget(self._turns.of_longest())
                EVENTS_DROPPED.labels("overflow").inc()
            self._wake.set()

    async def _drain(self) -> None:
        async with self._lock:
            while self._pending:
                # It stays among the pending while it is written, so that a cancelled write is not lost.
                occurrence = self._turns.first()
                series = self._pending[occurrence]
                count = series.count
                await self._write(occurrence, series)
                again = series.count != count and occurrence in self._pending
                self._forget(occurrence)
                if again:
                    self._pending[occurrence] = series
                    self._turns.add(occurrence)

    def _forget(self, occurrence: Occurrence) -> None:
        self._pending.pop(occurrence, None)
        self._turns.discard(occurrence)

    async def _write(self, occurrence: Occurrence, series: EventSeries) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                await self._send(occurrence, series)
            except Unreachable as error:
                _log.debug("event not written yet", reason=occurrence.reason, error=str(error))
                if attempt < _ATTEMPTS - 1:
                    await asyncio.sleep(2.0**attempt)
            except KubeError as error:
                # Refused for good: a namespace that goes away, a rule against it.
                _log.info("event refused", reason=occurrence.reason, error=str(error))
                break
            else:
                return
        EVENTS_DROPPED.labels("failed").inc()

    async def _send(self, occurrence: Occurrence, series: EventSeries) -> None:
        namespace = occurrence.regarding.namespace or "default"
        count = series.count
        if series.written:
            try:
                await self._client.merge_patch(EVENTS, series.name, namespace, patch(series), type=Ignored)
            except NotFound:
                # The API server forgets Events after an hour: begin again under the same name.
                series.written = 0
        if not series.written:
            try:
                content = body(occurrence, series, self._component, self._instance)
                await self._client.create(EVENTS, content, namespace, type=Ignored)
            except AlreadyExists:
                # An earlier attempt arrived and only its answer was lost.
                _log.debug("event written already", reason=occurrence.reason)
        series.written = count


def _ref(reference: Mapping[str, Any]) -> ObjectRef:
    return ObjectRef(
        reference["apiVersion"],
        reference["kind"],
        reference["name"],
        reference.get("namespace") or "",
        reference.get("uid") or "",
    )


__all__ = ["EventRecorder", "ObjectRef"]
