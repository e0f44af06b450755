"""The kinds that people write: reflectors keep their objects, and Kopf's events let these be acted on.

Nothing follows from an object before Kopf has told of its UID; from then on every event of the reflectors is announced,
the deletion included. So it does no harm where Kopf tells of an object twice, late, or not of its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import OnEvent
from covey.kube.resources import Resource
from covey.kube.watch import ADDED, DELETED, EventType
from covey.operator.observe.watched import Key, T, Watched

#: The index of objects by their namespace.
_NAMESPACE: Final = "namespace"
#: Objects in one answer to a LIST: an object may have 1.4 MB, and an answer is in memory as a whole.
_CHUNK: Final = 25


class Triggered(Watched[T]):
    """One kind, of which Kopf has to tell first.

    ``get`` gives what may be acted on; ``of``, ``within`` and ``every`` have what Kopf has not told of yet, too.
    """

    def __init__(
        self, client: Client, resource: Resource, kind: type[T], namespaces: Sequence[str] = (), *, clock: Clock
    ) -> None:
        super().__init__(client, resource, kind, namespaces, clock=clock, chunk=_CHUNK)
        for reflector in self.reflectors:
            reflector.add_index(_NAMESPACE, lambda item: (item.metadata.namespace,))
            reflector.subscribe(self._on_event)
        self._callbacks: list[OnEvent[T]] = []
        #: UIDs of stored objects that Kopf has told of; of those that it has not; and those that it alone knows.
        self._opened: set[str] = set()
        self._untold: dict[str, Key] = {}
        self._early: set[str] = set()
        #: Set once everything is listed that there is, or the kind is not served, and Kopf has told of all of it.
        self.synced = asyncio.Event()

    @property
    def served(self) -> bool:
        """False while the API server does not serve the kind."""
        return all(reflector.served for reflector in self.reflectors)

    @property
    def untold(self) -> Mapping[str, Key]:
        """The stored objects that Kopf has not told of, by UID."""
        return self._untold

    def get(self, key: Key) -> T | None:
        """One object that Kopf has told of, by namespace and name."""
        item = super().get(key)
        return item if item is not None and item.metadata.uid in self._opened else None

    def within(self, namespace: str) -> Iterable[T]:
        """The objects of one namespace."""
        return chain.from_iterable(reflector.by_index(_NAMESPACE, namespace) for reflector in self.reflectors)

    def subscribe(self, on_event: OnEvent[T]) -> None:
        """Call back for every change of what Kopf has told of."""
        self._callbacks.append(on_event)

    def on_served(self, callback: Callable[[], None]) -> None:
        """Call back when the API server begins, or ceases, to serve the kind."""
        for reflector in self.reflectors:
            reflector.on_served(callback)

    async def settle(self) -> None:
        """Wait until it is known what there is."""
        for reflector in self.reflectors:
            await reflector.settled.wait()
        self._note_synced()

    def trigger(self, event: Mapping[str, Any]) -> None:
        """Open the object of an event of Kopf's: ``type``, None for a listed object, and ``object`` with its metadata."""
        metadata = event["object"]["metadata"]
        uid = metadata["uid"]
        if event["type"] == DELETED:
            self._early.discard(uid)
        elif uid in self._untold:
            item = super().get(self._untold.pop(uid))
            self._opened.add(uid)
            if item is not None:
                self._announce(ADDED, item, None)
            self._note_synced()
        elif uid not in self._opened:
            self._early.add(uid)

    def _on_event(self, kind: EventType, item: T, before: T | None) -> None:
        uid = item.metadata.uid
        if kind == DELETED:
            self._untold.pop(uid, None)
            self._note_synced()
            if uid not in self._opened:
                return
            self._opened.discard(uid)
        elif uid in self._early:
            self._early.discard(uid)
            self._opened.add(uid)
        elif uid not in self._opened:
            self._untold[uid] = item.metadata.key
            return
        self._announce(kind, item, before)

    def _announce(self, kind: EventType, item: T, before: T | None) -> None:
        for callback in self._callbacks:
            callback(kind, item, before)

    def _note_synced(self) -> None:
        if not self._untold and all(reflector.settled.is_set() for reflector in self.reflectors):
            self.synced.set()
