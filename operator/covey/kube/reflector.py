"""Keeps a copy of a collection current: LIST, then WATCH, for ever.

client-go's Reflector and shared informer in one: a list replaces the store with synthetic deletions for what is
gone, a closed watch is resumed from the last resourceVersion seen (bookmarks count), 410 and repeated failure
lead to a new list, with jittered exponential back-off.  It differs in that objects are immutable projections,
unchanged objects of a new list are not announced, and there is no periodic resync: level-triggered consumers
have their own.  A resource that the API server does not know (404) is empty until it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol

from covey.kube.client import CHUNK, Client
from covey.kube.clock import Clock
from covey.kube.errors import ApiError, Gone, KubeError, NotFound, Undecodable
from covey.kube.resources import Resource
from covey.kube.store import Change, Key, Store, T
from covey.kube.watch import BOOKMARK, DELETED, EventType
from covey.observability import metrics
from covey.observability.logging import get_logger

_log = get_logger(__name__)

OnEvent = Callable[[EventType, T, T | None], None]

_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 10.0
#: A watch that ends sooner than this, in seconds, counts as a failure: else a broken proxy is asked in a hot loop.
_SHORT: Final = 1.0
#: Changes of one list that are announced before others on the event loop have their turn.
_BREATH: Final = 100
#: Failed watches in a row after which the collection is listed again.
_PATIENCE: Final = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a collection that is watched; None for no bound."""

    namespace: str | None = None
    #: Selectors as the API server reads them.
    labels: str | None = None
    fields: str | None = None
    #: Objects in one answer to a LIST.
    chunk: int = CHUNK


EVERYTHING: Final = Selection()


class Reflector(Generic[T]):
    """A live copy of all objects of a resource that match a selector.

    ``store`` maps (namespace, name) to the object; read it freely, never write to it. Callbacks run on the event
    loop, one change at a time, after the store has it; what they raise is logged and stops nothing.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        type: type[T],  # noqa: A002 - as in Client
        *,
        clock: Clock,
        selection: Selection = EVERYTHING,
        on_event: OnEvent[T] | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._type = type
        self._selection = selection
        self._callbacks: list[OnEvent[T]] = [on_event] if on_event else []
        self._clock = clock
        self._objects: Store[T] = Store()
        self._version = ""
        self._failures = 0
        self._on_served: list[Callable[[], None]] = []
        #: Set once the collection has been listed.
        self.synced = asyncio.Event()
        #: Set once it is known what there is: it has been listed, or the API server does not know the resource.
        self.settled = asyncio.Event()
        #: Cleared while callbacks get what a list brought: until then the copy is half one state and half another.
        self.steady = asyncio.Event()
        self.steady.set()
        self._moved = asyncio.Event()
        #: False while the API server does not know the resource. It is asked again, with back-off, for ever.
        self.served = True
        self.last_contact = clock.monotonic()

    @property
    def resource(self) -> str:
        """The resource's plural."""
        return self._resource.plural

    @property
    def type(self) -> type[T]:
        """As what its objects are read."""
        return self._type

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard of."""
        return self._clock.monotonic() - self.last_contact

    @property
    def store(self) -> dict[Key, T]:
        """The objects by (namespace, name)."""
        return self._objects.items

    def put(self, item: T) -> None:
        """Take an object as a watch would bring it; for a copy that nobody keeps current."""
        for change in self._objects.update(item):
            self._announce(change)

    def subscribe(self, on_event: OnEvent[T]) -> None:
        """Call ``on_event(kind, new_or_last, previous)`` for every change from now on."""
        self._callbacks.append(on_event)

    def on_served(self, callback: Callable[[], None]) -> None:
        """Call back when the API server begins, or ceases, to serve the resource."""
        self._on_served.append(callback)

    def add_index(self, name: str, keys_of: Callable[[T], Iterable[Hashable]]) -> None:
        """File every object under the keys that a function gives for it; by now or later."""
        self._objects.add_index(name, keys_of)

    def by_index(self, name: str, key: Hashable) -> tuple[T, ...]:
        """The objects under a key of an index."""
        return self._objects.by_index(name, key)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                self._version = ""
                await self._pause("resource version expired", None, cause="expired")
            except NotFound as error:
                self._lose()
                await self._pause("resource is not served", error, cause="absent")
            except KubeError as error:
                if self._failures >= _PATIENCE:
                    self._version = ""
                await self._pause("contact lost", error, cause="lost")

    async def reach(self, version: str, seconds: float) -> bool:
        """Wait until what happened up to a resourceVersion is known, for a limited time; False when it may not be.

        A version is only known to be reached by an event or a bookmark: where nothing happens it may take a minute.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while int(self._version or 0) < int(version):
                    self._moved.clear()
                    await self._moved.wait()
                return True
        return False

    async def _list(self) -> None:
        unreadable: set[Key] = set()

        def note(error: Undecodable) -> None:
            unreadable.add(error.key)
            self._note_unreadable(error)

        items, version = await self._client.list(
            self._resource,
            self._selection.namespace,
            type=self._type,
            labels=self._selection.labels,
            fields=self._selection.fields,
            chunk=self._selection.chunk,
            on_unreadable=note,
        )
        self.last_contact = self._clock.monotonic()
        self.steady.clear()
        try:
            for count, change in enumerate(self._objects.replace(items, keep=unreadable), 1):
                self._announce(change)
                if count % _BREATH == 0:
                    await asyncio.sleep(0)
        finally:
            self.steady.set()
        self._version = version
        self._moved.set()
        metrics.WATCH_LISTS.labels(self._resource.plural).inc()
        _log.debug("listed", resource=self._resource.plural, objects=len(items), resource_version=version)
        self.synced.set()
        self._serve(served=True)

    def _lose(self) -> None:
        """Drop all objects, and record that the resource is not served."""
        self._version = ""
        self.last_contact = self._clock.monotonic()
        for change in self._objects.replace(()):
            self._announce(change)
        self._serve(served=False)

    def _serve(self, *, served: bool) -> None:
        changed, self.served = served != self.served, served
        self.settled.set()
        if changed:
            for callback in self._on_served:
                callback()

    async def _watch(self) -> None:
        begun, version = self._clock.monotonic(), self._version
        metrics.WATCH_STARTS.labels(self._resource.plural).inc()
        events = self._client.watch(
            self._resource,
            self._selection.namespace,
            resource_version=self._version,
            type=self._type,
            labels=self._selection.labels,
            fields=self._selection.fields,
            on_unreadable=self._note_unreadable,
        )
        async with contextlib.aclosing(events):
            async for kind, item in events:
                self.last_contact = self._clock.monotonic()
                self._failures = 0
                self._take(kind, item)
        # The API server closes a watch that falls behind for a moment; one that brought something is resumed at once.
        if self._version == version and self._clock.monotonic() - begun < _SHORT:
            await self._pause("watch ended at once", None, cause="short")

    def _take(self, kind: EventType, item: T) -> None:
        if kind == DELETED:
            changes = self._objects.drop(item)
        elif kind == BOOKMARK:
            changes = iter(())
        else:
            changes = self._objects.update(item)
        for change in changes:
            self._announce(change)
        # Last: after a failure on the way this event is asked for again.
        self._version = item.metadata.resource_version
        self._moved.set()

    def _note_unreadable(self, error: Undecodable) -> None:
        """Log and count an object that cannot be read: its last known state stays, and no other object is affected."""
        metrics.UNREADABLE_OBJECTS.labels(self._resource.plural).inc()
        _log.warning("object not read", resource=self._resource.plural, key=error.key, error=str(error))

    def _announce(self, change: Change[T]) -> None:
        for callback in self._callbacks:
            try:
                callback(*change)
            except Exception:  # noqa: BLE001 - a consumer's mistake must not stop the reflector
                _log.exception("callback failed", resource=self._resource.plural, key=change[1].metadata.key)

    async def _pause(self, why: str, error: KubeError | None, *, cause: str) -> None:
        """Wait before the next attempt: exponentially longer, between once and twice that at random."""
        # Beyond 2**64 no float is needed: the bound was reached long before.
        delay = min(_FIRST_DELAY * 2.0 ** min(self._failures, 64), _LONGEST_DELAY) * (1.0 + self._clock.random())
        if isinstance(error, ApiError) and error.retry_after:
            delay = max(delay, error.retry_after)
        self._failures += 1
        metrics.WATCH_FAILURES.labels(self._resource.plural, cause).inc()
        known = {"error": str(error)} if error else {}
        # What is not served is asked for as long as the process lives: one line of that is enough.
        again = cause == "absent" and self._failures > 1
        level = logging.DEBUG if again else logging.WARNING if error and cause != "absent" else logging.INFO
        _log.log(
            level, why, resource=self._resource.plural, version=self._resource.version, delay=round(delay, 2), **known
        )
        await asyncio.sleep(delay)


class Exposed(Protocol):
    """A copy of a collection that metrics describe."""

    @property
    def resource(self) -> str:
        """The resource's plural."""

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard of."""

    @property
    def store(self) -> Sized:
        """The objects."""


def expose(copies: Iterable[Exposed]) -> None:
    """Show in metrics, at each scrape, how much these hold and how long they have heard nothing.

    Args:
        copies: all of the process; several of one resource, for several namespaces, are shown as one.
    """
    by_resource: dict[str, list[Exposed]] = {}
    for copied in copies:
        by_resource.setdefault(copied.resource, []).append(copied)
    for resource, same in by_resource.items():
        metrics.CACHE_OBJECTS.labels(resource).set_function(partial(_count_objects, same))
        metrics.WATCH_SILENCE.labels(resource).set_function(partial(_longest_silence, same))


def _count_objects(copies: Sequence[Exposed]) -> float:
    return sum(len(copied.store) for copied in copies)


def _longest_silence(copies: Sequence[Exposed]) -> float:
    return max(copied.silence for copied in copies)
