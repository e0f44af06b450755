"""The objects a reflector knows, by key and by index, without I/O.

Follows client-go's thread-safe store with indexers, for one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from covey.api.core import Meta
from covey.kube.watch import ADDED, DELETED, MODIFIED, EventType
from covey.observability.logging import get_logger

_log = get_logger(__name__)


class Described(Protocol):
    """Anything with object metadata: every projection of ``covey.api.core``."""

    @property
    def metadata(self) -> Meta:
        """Its ``ObjectMeta``."""


T = TypeVar("T", bound=Described)
Key = tuple[str, str]
#: What has happened to the store: the kind, the new (or, when deleted, the last) object, the one before.
Change = tuple[EventType, T, T | None]


class StoreIndex(Generic[T]):
    """Objects by the keys that a function gives for each, maintained object by object."""

    def __init__(self, name: str, keys_of: Callable[[T], Iterable[Hashable]]) -> None:
        self._name = name
        self._keys_of = keys_of
        self._buckets: dict[Hashable, dict[Key, T]] = {}
        # What an object was filed under; its function may not be asked again of an old object.
        self._filed: dict[Key, tuple[Hashable, ...]] = {}

    def get(self, key: Hashable) -> tuple[T, ...]:
        """The objects under a key, oldest entry first; a copy."""
        bucket = self._buckets.get(key)
        return tuple(bucket.values()) if bucket else ()

    def add(self, key: Key, item: T) -> None:
        """File an object, or its new version."""
        keys = self._keys(item)
        filed = self._filed.get(key, ())
        if keys != filed:
            self._unfile(key, (old for old in filed if old not in keys))
            self._filed[key] = keys
        for name in keys:
            self._buckets.setdefault(name, {})[key] = item

    def drop(self, key: Key) -> None:
        """Take an object out."""
        self._unfile(key, self._filed.pop(key, ()))

    def _unfile(self, key: Key, names: Iterable[Hashable]) -> None:
        for name in names:
            bucket = self._buckets[name]
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[name]

    def _keys(self, item: T) -> tuple[Hashable, ...]:
        try:
            # Each key once: an object filed twice under one would be taken out twice.
            return tuple(dict.fromkeys(self._keys_of(item)))
        except Exception:  # noqa: BLE001 - one odd object must not stop the reflector
            _log.exception("index function failed", index=self._name, key=item.metadata.key)
            return ()


class Store(Generic[T]):
    """Objects by namespace and name; every change is returned for the caller to announce."""

    def __init__(self) -> None:
        self.items: dict[Key, T] = {}
        self._indexes: dict[str, StoreIndex[T]] = {}

    def add_index(self, name: str, keys_of: Callable[[T], Iterable[Hashable]]) -> None:
        """Keep an index from now on; what is stored already is filed at once."""
        if name in self._indexes:
            raise ValueError(f"there is an index {name!r} already")
        index = self._indexes[name] = StoreIndex(name, keys_of)
        for key, item in self.items.items():
            index.add(key, item)

    def by_index(self, name: str, key: Hashable) -> tuple[T, ...]:
        """The objects under a key of an index; empty when there are none."""
        return self._indexes[name].get(key)

    def update(self, item: T) -> Iterator[Change[T]]:
        """Store an object; the change is made before it is yielded.

        An object of the same name but another uid is a deletion and an addition: its watch event was missed.
        """
        key = item.metadata.key
        previous = self.items.get(key)
        if previous is not None and previous.metadata.uid != item.metadata.uid:
            yield from self.drop(previous)
            previous = None
        self.items[key] = item
        for index in self._indexes.values():
            index.add(key, item)
        yield (ADDED if previous is None else MODIFIED), item, previous

    def drop(self, item: T) -> Iterator[Change[T]]:
        """Take out what is stored under the object's name, if anything is."""
        key = item.metadata.key
        previous = self.items.pop(key, None)
        if previous is None:
            return
        for index in self._indexes.values():
            index.drop(key)
        yield DELETED, item, previous

    def replace(self, items: Iterable[T], keep: Collection[Key] = ()) -> Iterator[Change[T]]:
        """Become a list: deletions that were missed first, so that what they held is free for what was added.

        What is to be kept is there, though the list does not show it.

        An object whose resourceVersion is the stored one's has not changed and is passed over.
        """
        listed = {item.metadata.key: item for item in items}
        for key in [key for key in self.items if key not in listed and key not in keep]:
            yield from self.drop(self.items[key])
        for key, item in listed.items():
            stored = self.items.get(key)
            if stored is None or stored.metadata.resource_version != item.metadata.resource_version:
                yield from self.update(item)
