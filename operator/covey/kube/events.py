"""Events (``events.k8s.io/v1``) on the objects that people look at.

Recording never waits and never fails: a caller says what happened and goes on; a task of its own writes.
Repetitions within two minutes (same object, type, reason, note, action) become one Event with a ``series``, as in
client-go's recorder; each object has a token bucket, as in its spam filter; what waits to be written is
bounded, namespaces take turns, and what is dropped, of the namespace that has most, is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, Literal

from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, KubeError, NotFound, Unreachable
from covey.kube.event_series import Book, EventSeries, ObjectRef, Occurrence, body, patch, truncate
from covey.kube.resources import EVENTS
from covey.kube.rounds import Rounds
from covey.observability.logging import get_logger
from covey.observability.metrics import EVENTS_DROPPED

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
