"""What happened to every object, in the order of the API server: one watch of each kind, in all namespaces.

Claims about the past are made on this record, not by asking again and again: what stood for a moment is in it, whoever
was busy meanwhile. Versions of all kinds come from one counter, so events of different kinds have an order, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import KubeError
from covey.kube.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str]

SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
#: Kinds that are recorded.
RECORDED: Final = (
    resources.DISAGGREGATED_INFERENCES,
    resources.ROLE_SCALERS,
    resources.CLUSTER_TOPOLOGIES,
    resources.WORKLOADS,
    resources.COMPOSITE_POD_GROUPS,
    resources.POD_GROUPS,
    resources.PREEMPTIONS,
    resources.SERVICES,
    SLICES,
    resources.POD_DISRUPTION_BUDGETS,
    resources.EVICTIONS,
    Resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
    resources.RESOURCE_QUOTAS,
    resources.NODES,
    resources.JOBS,
    resources.PODS,
    resources.EVENTS,
)
KINDS: Final = {each.kind: each for each in RECORDED}


class Event(NamedTuple):
    """A change: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the object as it was then; ``rests`` came before it."""

    version: int
    rests: int
    kind: str
    change: str
    object: Object


class Record:
    """The record of a cluster.

    Args:
        client: the administrator's, of the loop in which it is kept.
        changed: told of each event.
    """

    def __init__(self, client: Client, changed: threading.Condition) -> None:
        self._client = client
        self._changed = changed
        self._events: list[Event] = []
        #: Objects by kind, namespace and name, as of the last event.
        self.objects: dict[str, dict[Key, Object]] = {each.kind: {} for each in RECORDED}
        #: Events of all times.
        self.count = 0
        #: How often the stage has come to rest in this story.
        self.rests = 0

    async def keep(self, resource: Resource, begun: Callable[[], None]) -> None:
        """Record a kind until cancelled; ``begun`` is called when it has been listed."""
        items, version = await self._client.list(resource)
        known = self.objects[resource.kind]
        for item in items:
            known[_key(item)] = item
        begun()
        while True:
            try:
                async for change, item in self._client.watch(resource, resource_version=version):
                    version = item["metadata"]["resourceVersion"]
                    if change != "BOOKMARK":
                        self._take(resource.kind, change, item)
            except KubeError:
                await asyncio.sleep(0.05)

    def begin(self) -> None:
        """Begin anew: what there is now is where the history starts."""
        with self._changed:
            self.rests = 0
            self._events = [
                Event(_version(item), 0, kind, "ADDED", item)
                for kind, items in self.objects.items()
                for item in items.values()
                if kind != "Event"
            ]

    def events(self, *kinds: str, namespace: str | None = None) -> list[Event]:
        """The history of these kinds in the order of the API server, in one namespace or in all."""
        found = [
            event
            for event in list(self._events)
            if (not kinds or event.kind in kinds) and namespace in {None, event.object["metadata"].get("namespace")}
        ]
        return sorted(found, key=lambda event: event.version)

    def _take(self, kind: str, change: str, item: Object) -> None:
        with self._changed:
            known = self.objects[kind]
            if change == "DELETED":
                known.pop(_key(item), None)
            else:
                known[_key(item)] = item
            self._events.append(Event(_version(item), self.rests, kind, change, item))
            self.count += 1
            self._changed.notify_all()


def states(events: Iterable[Event]) -> Iterator[tuple[Event, dict[str, Object]]]:
    """Each event, and all objects by UID after it; the caller must not keep the second."""
    objects: dict[str, Object] = {}
    for event in events:
        uid = event.object["metadata"]["uid"]
        if event.change == "DELETED":
            objects.pop(uid, None)
        else:
            objects[uid] = event.object
        yield event, objects


def as_pairs(events: Sequence[Event]) -> list[tuple[str, Object]]:
    """Type and object of each."""
    return [(event.change, event.object) for event in events]


def _key(item: Object) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _version(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])
