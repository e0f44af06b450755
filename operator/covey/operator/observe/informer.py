"""The objects of one kind as Kopf's watch shows them: a store, and the proof that it is complete.

Kopf tells of every change that it hears of, but not of what it does not: an object deleted while its watch was broken
is never mentioned again, and of a kind without objects there is no word at all. Three things make that good:

- **Lists.** The session (``kopf_session``) shows each list that Kopf reads. A stored object that a complete list lacks
is
  gone. Nothing counts as synced before one complete list was seen and Kopf's handlers have had all of it.
- **By name.** ``confirm`` asks for one object that somebody has reason to doubt.
- **Audit.** Every ten minutes the metadata of all objects are listed and compared, whatever Kopf says.

What is older than what is known is passed over: Kopf handles the objects of one name side by side where their UIDs
differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic

import msgspec

from covey.api.core import Meta
from covey.kube.client import Client
from covey.kube.errors import KubeError, Undecodable
from covey.kube.json_text import UNREADABLE
from covey.kube.reflector import OnEvent
from covey.kube.resources import Resource
from covey.kube.shallow import Page
from covey.kube.store import Change, Store, T
from covey.kube.watch import DELETED
from covey.observability import metrics
from covey.observability.logging import get_logger
from covey.operator.observe.watched import INDEX, Key, owner_key

_log = get_logger(__name__)

#: Seconds between two audits.
_AUDIT: Final = 600.0
#: Seconds that Kopf has to tell of an object that an audit has found.
_PATIENCE: Final = 10.0
#: The index of objects by their namespace.
_NAMESPACE: Final = "namespace"
#: All namespaces, as a scope.
EVERYWHERE: Final = ""


@dataclass(slots=True)
class _Listing:
    """A list under way: the UIDs found so far, and those that handlers have had since it began."""

    found: dict[Key, str] = field(default_factory=dict)
    handled: set[str] = field(default_factory=set)


class Informer(Generic[T]):
    """A live copy of all objects of a kind, filled by Kopf's handlers.

    Args:
        kind: of the objects.
        read: makes what is stored of a shallow object (``kube.shallow``); raises Undecodable.
        namespaces: where Kopf watches; empty means everywhere.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        kind: Resource,
        read: Callable[[Mapping[str, Any]], T],
        namespaces: Sequence[str] = (),
        *,
        clock: Callable[[], float],
    ) -> None:
        self.kind = kind
        self.scopes = (tuple(namespaces) if kind.namespaced else ()) or (EVERYWHERE,)
        self._read = read
        self._clock = clock
        self._objects: Store[T] = Store()
        self._objects.add_index(INDEX, owner_key)
        self._objects.add_index(_NAMESPACE, lambda item: (item.metadata.namespace,))
        self._callbacks: list[OnEvent[T]] = []
        self._on_served: list[Callable[[], None]] = []
        self._open: dict[str, _Listing] = {}
        #: The last complete list of each scope: the UIDs in it, and its version.
        self._listed: dict[str, tuple[frozenset[str], Meta]] = {}
        self._pending: set[str] = set()
        self._doubted: set[Key] = set()
        #: Set once everything is known that there is: listed and handled, or the API server does not serve the kind.
        self.synced = asyncio.Event()
        #: False while the API server does not serve the kind.
        self.served = True
        self.last_contact = clock()

    @property
    def resource(self) -> str:
        """The kind's plural."""
        return self.kind.plural

    @property
    def store(self) -> Mapping[Key, T]:
        """The objects by (namespace, name)."""
        return self._objects.items

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard of."""
        return self._clock() - self.last_contact

    def get(self, key: Key) -> T | None:
        """One object by namespace and name."""
        return self._objects.items.get(key)

    def of(self, key: Key) -> Iterable[T]:
        """The objects of one DisaggregatedInference, by label."""
        return self._objects.by_index(INDEX, key)

    def within(self, namespace: str) -> Iterable[T]:
        """The objects of one namespace."""
        return self._objects.by_index(_NAMESPACE, namespace)

    def every(self) -> Collection[T]:
        """All objects."""
        return self._objects.items.values()

    def subscribe(self, on_event: OnEvent[T]) -> None:
        """Call ``on_event(kind, new_or_last, previous)`` for every change from now on."""
        self._callbacks.append(on_event)

    def on_served(self, callback: Callable[[], None]) -> None:
        """Call back when the API server begins, or ceases, to serve the kind."""
        self._on_served.append(callback)

    def note_contact(self) -> None:
        """Note that the API server has said something."""
        self.last_contact = self._clock()

    def take(self, event: Mapping[str, Any]) -> None:
        """Store what a handler was given: ``type`` (None for a listed object) and ``object``, a shallow copy."""
        metadata = msgspec.convert(event["object"]["metadata"], Meta)
        self._note_handled(metadata.uid)
        try:
            self._announce(self._change(event["type"], metadata, event["object"]))
        except (Undecodable, *UNREADABLE) as error:
            metrics.UNREADABLE_OBJECTS.labels(self.resource).inc()
            _log.warning("object not read", resource=self.resource, key=metadata.key, error=str(error))
        self._settle()

    def take_page(self, scope: str, page: Page, *, first: bool) -> None:
        """Note one answer to a LIST, which Kopf is about to read; the last one completes the list."""
        self.note_contact()
        if first:
            self._open[scope] = _Listing()
        listing = self._open.setdefault(scope, _Listing())
        listing.found.update(page.found)
        if page.metadata.continue_:
            return
        del self._open[scope]
        version = Meta(resource_version=page.metadata.resource_version)
        self._drop_missing(scope, listing.found, version)
        known = {item.metadata.uid for item in self.every()}
        self._pending |= set(listing.found.values()) - listing.handled - known
        self._listed[scope] = frozenset(listing.found.values()), version
        metrics.WATCH_LISTS.labels(self.resource).inc()
        self._serve(served=True)
        self._settle()

    def lose(self) -> None:
        """Note that the API server does not serve the kind: all its objects have gone."""
        self.note_contact()
        for item in list(self.every()):
            self._announce(self._objects.drop(item))
        self._pending.clear()
        self._listed.clear()
        self._serve(served=False)
        self.synced.set()

    def doubt(self, key: Key) -> None:
        """Have an object asked for by name at the next ``confirm``: something speaks against its being there."""
        self._doubted.add(key)

    async def confirm(self, client: Client, key: Key) -> None:
        """Ask for an object that is doubted, once, and drop it where it has gone or another has its name.

        Raises:
            KubeError: the API server does not say.
        """
        stored = self.get(key)
        if key not in self._doubted:
            return
        if stored is not None:
            # A list of one: it wants no right that the watch does not.
            found, _ = await client.list_metadata(self.kind, key[0] or None, fields=f"metadata.name={key[1]}")
            if found.get(key) != stored.metadata.uid:
                self._drop(key, stored.metadata.uid)
        self._doubted.discard(key)

    async def run(self, client: Client, on_deaf: Callable[[], None]) -> None:
        """Audit every ten minutes, until cancelled; ``on_deaf`` is called where Kopf does not tell of what there is."""
        while True:
            await asyncio.sleep(_AUDIT)
            try:
                for scope in self.scopes if self.served else ():
                    await self._audit(client, scope, on_deaf)
            except KubeError as error:
                _log.warning("not audited", resource=self.resource, error=str(error))

    async def _audit(self, client: Client, scope: str, on_deaf: Callable[[], None]) -> None:
        found, version = await client.list_metadata(self.kind, scope or None)
        self._drop_missing(scope, found, Meta(resource_version=version))
        if self._find_untold(found):
            await asyncio.sleep(_PATIENCE)
            now, _ = await client.list_metadata(self.kind, scope or None)
            untold = self._find_untold({key: uid for key, uid in found.items() if now.get(key) == uid})
            if untold:
                metrics.WATCH_FAILURES.labels(self.resource, "deaf").inc()
                _log.error("objects that Kopf does not tell of", resource=self.resource, objects=untold[:10])
                on_deaf()

    def _find_untold(self, found: Mapping[Key, str]) -> list[Key]:
        return [key for key, uid in found.items() if (item := self.get(key)) is None or item.metadata.uid != uid]

    def _change(self, kind: str | None, metadata: Meta, raw: Mapping[str, Any]) -> Iterator[Change[T]]:
        stored = self.get(metadata.key)
        if kind == DELETED:
            is_stored = stored is not None and stored.metadata.uid == metadata.uid
            return self._objects.drop(stored) if stored is not None and is_stored else iter(())
        if (stored is not None and metadata.is_before(stored.metadata)) or self._is_known_gone(metadata):
            return iter(())
        return self._objects.update(self._read(raw))

    def _is_known_gone(self, metadata: Meta) -> bool:
        """Tell whether a later list lacks the object: its event has been waiting in Kopf since before that list."""
        scope = metadata.namespace if metadata.namespace in self._listed else EVERYWHERE
        uids, version = self._listed.get(scope, (frozenset(), Meta()))
        return metadata.is_before(version) and metadata.uid not in uids

    def _drop_missing(self, scope: str, found: Mapping[Key, str], version: Meta) -> None:
        for item in list(self.every()):
            metadata = item.metadata
            in_scope = scope in {EVERYWHERE, metadata.namespace}
            if in_scope and found.get(metadata.key) != metadata.uid and metadata.is_before(version):
                _log.info("object has gone unseen", resource=self.resource, key=metadata.key)
                self._drop(metadata.key, metadata.uid)

    def _drop(self, key: Key, uid: str) -> None:
        """Drop what is stored under a name, as long as it is that incarnation."""
        stored = self.get(key)
        if stored is not None and stored.metadata.uid == uid:
            self._announce(self._objects.drop(stored))

    def _note_handled(self, uid: str) -> None:
        self._pending.discard(uid)
        for listing in self._open.values():
            listing.handled.add(uid)

    def _settle(self) -> None:
        if not self._pending and all(scope in self._listed for scope in self.scopes):
            self.synced.set()

    def _serve(self, *, served: bool) -> None:
        changed, self.served = served != self.served, served
        for callback in self._on_served if changed else ():
            callback()

    def _announce(self, changes: Iterable[Change[T]]) -> None:
        for change in changes:
            for callback in self._callbacks:
                try:
                    callback(*change)
                except Exception:  # noqa: BLE001 - a consumer's mistake must not stop the others
                    _log.exception("callback failed", resource=self.resource, key=change[1].metadata.key)
