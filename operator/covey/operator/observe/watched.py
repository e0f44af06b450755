"""One kind in the operator's caches, whatever the namespaces, and the objects of it that belong to a resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol, TypeVar

from covey.api import constants as names
from covey.kube.client import CHUNK, Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector, Selection
from covey.kube.resources import Resource
from covey.kube.store import Described
from covey.kube.watch import EventType

Key = tuple[str, str]
T = TypeVar("T", bound=Described)
T_co = TypeVar("T_co", bound=Described, covariant=True)

#: The index of objects by the DisaggregatedInference that they belong to.
INDEX = "inference"


def _ignore(*_: object) -> None:
    """Nobody has to be told."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """Queues of what has to be looked at again."""

    resource: Callable[[Key], None] = _ignore
    #: A number of seconds later.
    resource_after: Callable[[Key, float], None] = _ignore
    #: A namespace whose budget may be needed no more.
    namespace: Callable[[str], None] = _ignore
    #: A root that claims ordinary pods.
    root: Callable[[Key], None] = _ignore
    #: An Eviction that is to be answered.
    eviction: Callable[[Key], None] = _ignore


class Watched(Generic[T]):
    """One kind, in all namespaces or in some."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[T],
        namespaces: Sequence[str],
        *,
        clock: Clock,
        labels: str | None = None,
        fields: str | None = None,
        chunk: int = CHUNK,
    ) -> None:
        self.resource = resource
        scopes: Sequence[str | None] = namespaces or (None,)
        self.reflectors = [
            Reflector(client, resource, kind, clock=clock, selection=Selection(namespace, labels, fields, chunk))
            for namespace in scopes
        ]
        for reflector in self.reflectors:
            reflector.add_index(INDEX, owner_key)

    def subscribe(self, on_event: Callable[[EventType, T, T | None], None]) -> None:
        """Call back for every change."""
        for reflector in self.reflectors:
            reflector.subscribe(on_event)

    def get(self, key: Key) -> T | None:
        """One object by namespace and name."""
        return next((reflector.store[key] for reflector in self.reflectors if key in reflector.store), None)

    def of(self, key: Key) -> Iterable[T]:
        """The objects of one resource, by label."""
        return chain.from_iterable(reflector.by_index(INDEX, key) for reflector in self.reflectors)

    def every(self) -> Iterable[T]:
        """All objects."""
        return chain.from_iterable(reflector.store.values() for reflector in self.reflectors)


class Lookup(Protocol[T_co]):
    """A store that is asked by namespace and name."""

    def get(self, key: Key) -> T_co | None:
        """One object."""


def shows(watched: Lookup[T], item: T) -> bool:
    """Tell whether the watch shows this incarnation."""
    shown = watched.get(item.metadata.key)
    return shown is not None and shown.metadata.uid == item.metadata.uid


def owner_key(owned: Described) -> tuple[Key, ...]:
    """The resource that an object names in its label, if it does."""
    name = owned.metadata.label(names.LABEL_INFERENCE)
    return ((owned.metadata.namespace, name),) if name else ()
