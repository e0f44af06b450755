"""Live copies of everything that a reconcile reads, and which resource an event concerns.

Every object carries the name of its resource in a label, so an event finds its key at once, and one index finds all
objects of a key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

from covey.api import constants as names
from covey.api import core
from covey.compile import Owner, Slot
from covey.compile.identity import slot_of
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.reflector import Reflector, expose
from covey.kube.resources import Resource
from covey.kube.store import Described
from covey.kube.watch import DELETED, EventType
from covey.operator import podstate
from covey.operator.accepted import Record, read_record
from covey.operator.newborn import Newborns
from covey.operator.objects import APPLIED, CONTROLLER_REVISIONS, ControllerRevision, Inference, Owned
from covey.operator.observe import (
    Grave,
    Observed,
    is_ours,
    place_pods,
    read_revisions,
)
from covey.operator.status import differ
from covey.operator.topologies import Topologies

Key = tuple[str, str]
T = TypeVar("T", bound=Described)

_INDEX = "inference"
#: Seconds that bursts of events are gathered before the resource is looked at.
_GATHER = 0.03
#: Seconds of silence after which a watch no longer counts as alive: a bookmark is due every minute.
_SILENCE = 240.0


class Watched(Generic[T]):
    """One kind, in all namespaces or in some."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[T],
        namespaces: Sequence[str],
        *,
        labels: str | None = None,
    ) -> None:
        scopes: Sequence[str | None] = namespaces or (None,)
        self.reflectors = [
            Reflector(client, resource, kind, namespace=namespace, labels=labels) for namespace in scopes
        ]
        for reflector in self.reflectors:
            reflector.add_index(_INDEX, _owner_key)

    def subscribe(self, on_event: Callable[[EventType, T, T | None], None]) -> None:
        """Call back for every change."""
        for reflector in self.reflectors:
            reflector.subscribe(on_event)

    def get(self, key: Key) -> T | None:
        """One object by namespace and name."""
        return next((reflector.store[key] for reflector in self.reflectors if key in reflector.store), None)

    def of(self, key: Key) -> Iterable[T]:
        """The objects of one resource, by label."""
        return chain.from_iterable(reflector.by_index(_INDEX, key) for reflector in self.reflectors)

    def every(self) -> Iterable[T]:
        """All objects."""
        return chain.from_iterable(reflector.store.values() for reflector in self.reflectors)


class Caches:
    """All kinds that the operator watches.

    Args:
        client: to the API server.
        namespaces: where to look; empty means everywhere.
        enqueue: called with the key of a resource that has to be looked at.
        enqueue_after: likewise, so many seconds later.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        enqueue: Callable[[Key], None],
        enqueue_after: Callable[[Key, float], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        ours = names.LABEL_INFERENCE
        self._enqueue = enqueue
        self._enqueue_after = enqueue_after
        self.inferences = Watched(client, resources.DISAGGREGATED_INFERENCES, Inference, namespaces)
        self.pods = Watched(client, resources.PODS, core.Pod, namespaces, labels=ours)
        self.objects = {
            resource.kind: Watched(client, resource, Owned, namespaces, labels=ours) for resource in APPLIED
        }
        self.revisions = Watched(client, CONTROLLER_REVISIONS, ControllerRevision, namespaces, labels=ours)
        self.topologies = Topologies(client, self._look_at_all)
        self._graves: dict[Key, dict[Slot, Grave]] = {}
        self._condemned: dict[Key, set[str]] = {}
        self._retired: dict[Key, set[str]] = {}
        self._statuses: dict[str, Mapping[str, Any]] = {}
        self._newborns: Newborns[core.Pod] = Newborns(clock)
        self._new_objects: dict[str, Newborns[Owned]] = {kind: Newborns(clock) for kind in self.objects}
        self._new_revisions: Newborns[ControllerRevision] = Newborns(clock)
        self._records: dict[str, Record | None] = {}
        self._subscribe()

    async def run(self) -> None:
        """Keep everything current until cancelled."""
        expose(self._reflectors())
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors():
                group.create_task(reflector.run())
            group.create_task(self.topologies.run())

    async def synced(self) -> None:
        """Wait until everything has been listed once."""
        for reflector in self._reflectors():
            await reflector.synced.wait()

    @property
    def is_synced(self) -> bool:
        """Everything has been listed once."""
        return all(reflector.synced.is_set() for reflector in self._reflectors())

    def is_alive(self, clock: Callable[[], float] = time.monotonic) -> bool:
        """Every watch has been heard of lately."""
        return all(clock() - reflector.last_contact < _SILENCE for reflector in self._reflectors())

    def observe(
        self,
        owner: Owner,
        now: float,
    ) -> Observed:
        """The snapshot of one resource."""
        key = (owner.namespace, owner.name)
        pods = [pod for pod in chain(self.pods.of(key), self._newborns.of(key)) if is_ours(pod.metadata, owner)]
        for newborns in self._every_newborns():
            if (patience := newborns.patience(key)) is not None:
                # Should the watch never show them, nothing else would bring this resource back.
                self._enqueue_after(key, patience)
        placed, strays = place_pods(pods)
        objects = {
            (kind, owned.metadata.name): owned
            for kind, watched in self.objects.items()
            for owned in chain(self._new_objects[kind].of(key), watched.of(key))
            if is_ours(owned.metadata, owner)
        }
        retired = frozenset(self._retired.get(key, ()))
        stored = chain(self.revisions.of(key), self._new_revisions.of(key))
        revisions = read_revisions((item for item in stored if is_ours(item.metadata, owner)), self._read)
        return Observed(placed, strays, objects, revisions, dict(self._graves.get(key, {})), retired, now)

    def _read(self, item: ControllerRevision) -> Record | None:
        """What a ControllerRevision says, read once: its data never change."""
        uid = item.metadata.uid
        if uid not in self._records:
            self._records[uid] = read_record(item.data)
        return self._records[uid]

    def welcome(self, key: Key, pod: core.Pod) -> None:
        """A pod that this process has just created: it counts as seen, unless the watch was faster."""
        uid = pod.metadata.uid
        buried = {grave.uid for grave in self._graves.get(key, {}).values()}
        if not self._is_shown(pod) and uid not in buried:
            self._newborns.add(key, pod)

    def welcome_object(self, key: Key, kind: str, item: Owned | ControllerRevision) -> None:
        """Likewise an object of another kind."""
        if isinstance(item, ControllerRevision):
            if not _shows(self.revisions, item):
                self._new_revisions.add(key, item)
        elif not _shows(self.objects[kind], item):
            self._new_objects[kind].add(key, item)

    def tell(self, uid: str, status: Mapping[str, Any]) -> None:
        """This status is about to be written: the watch will show it, and it is no reason to look again."""
        self._statuses[uid] = status

    def look_again(self, key: Key, delay: float) -> None:
        """Time alone will change something about a resource: it has to be looked at so many seconds from now."""
        self._enqueue_after(key, delay)

    def condemn(self, key: Key, pods: Iterable[core.Pod]) -> None:
        """Pods that are about to be deleted: when they are no longer seen, they are gone."""
        shown = {pod.metadata.uid for pod in pods if self._is_shown(pod)}
        if shown:
            self._condemned.setdefault(key, set()).update(shown)

    def confirm(self, key: Key, slots: Iterable[Slot]) -> None:
        """The pods that were last seen in these places are gone."""
        graves = self._graves.get(key, {})
        for slot in graves.keys() & set(slots):
            graves[slot] = replace(graves[slot], confirmed=True)

    def retire(self, key: Key, observed: Observed, wanted: Iterable[Slot]) -> None:
        """Places that there shall not be: whoever is buried there, or goes from there, was not lost.

        Args:
            key: of the resource.
            observed: the snapshot that was planned from.
            wanted: the places that there shall be.
        """
        places, known = set(wanted), self._retired.pop(key, set())
        graves = self._graves.get(key, {})
        for slot in graves.keys() - places:
            graves[slot] = replace(graves[slot], retired=True)
        retired = {pod.metadata.uid for slot, pods in observed.pods.items() if slot not in places for pod in pods}
        if known:
            # A place may be wanted again while the pod that had to leave it still terminates.
            retired |= {pod.metadata.uid for pod in observed.every_pod() if self._goes(key, pod)} & known
        if retired:
            self._retired[key] = retired

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._graves.pop(key, None)
        self._condemned.pop(key, None)
        self._retired.pop(key, None)
        for newborns in self._every_newborns():
            newborns.forget(key)

    def _look_at_all(self) -> None:
        for inference in self.inferences.every():
            self._enqueue_soon(inference.metadata.key)

    def _is_shown(self, pod: core.Pod) -> bool:
        """The watch has told of this incarnation, and so will tell of its end."""
        return _shows(self.pods, pod)

    def _every_newborns(self) -> Iterable[Newborns[Any]]:
        return (self._newborns, self._new_revisions, *self._new_objects.values())

    def _goes(self, key: Key, pod: core.Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self._condemned.get(key, ())

    def _reflectors(self) -> list[Reflector[Any]]:
        kinds: list[Watched[Any]] = [self.inferences, self.pods, self.revisions]
        return [reflector for watched in (*kinds, *self.objects.values()) for reflector in watched.reflectors]

    def _subscribe(self) -> None:
        self.inferences.subscribe(self._on_inference)
        self.pods.subscribe(self._on_pod)
        for kind, watched in self.objects.items():
            watched.subscribe(partial(self._on_owned, self._new_objects[kind]))
        self.revisions.subscribe(partial(self._on_owned, self._new_revisions))

    def _on_inference(self, kind: EventType, item: Inference, before: Inference | None) -> None:
        if kind == DELETED:
            self._statuses.pop(item.metadata.uid, None)
            # What is known of it must not be taken for its namesake's.
            self.forget(item.metadata.key)
        if kind == DELETED or before is None or _is_asked_anew(item.metadata, before.metadata):
            self._enqueue(item.metadata.key)
        elif item.status != before.status and differ(item.status, self._statuses.get(item.metadata.uid, {})):
            # What somebody else wrote into the status has to be put right; our own write is no news.
            self._enqueue_soon(item.metadata.key)

    def _on_pod(self, kind: EventType, pod: core.Pod, before: core.Pod | None) -> None:
        for key in _owner_key(pod):
            self._newborns.shown(key, pod.metadata.uid)
        now = _owner_key(pod) if kind != DELETED else ()
        # The label may only have been edited away: the resource that had the pod has to know.
        for key in _owner_key(before) if before else ():
            if key not in now:
                self._bury(key, before or pod)
            self._enqueue_soon(key)
        for key in now:
            self._unearth(key, pod)
            self._enqueue_soon(key)

    def _enqueue_soon(self, key: Key) -> None:
        self._enqueue_after(key, _GATHER)

    def _bury(self, key: Key, pod: core.Pod) -> None:
        slot, uid = slot_of(pod.spec.hostname), pod.metadata.uid
        condemned = self._condemned.get(key, set())
        confirmed = uid in condemned or podstate.is_dead(pod)
        condemned.discard(uid)
        owner, controller = self.inferences.get(key), pod.metadata.controller
        if slot is None or owner is None or controller is None or controller.uid != owner.metadata.uid:
            return
        retired = uid in self._retired.get(key, ())
        self._graves.setdefault(key, {})[slot] = Grave.of(pod, confirmed=confirmed, retired=retired)

    def _unearth(self, key: Key, pod: core.Pod) -> None:
        slot = slot_of(pod.spec.hostname)
        graves = self._graves.get(key)
        if graves and slot is not None and slot in graves and graves[slot].uid == pod.metadata.uid:
            del graves[slot]

    def _on_owned(
        self,
        newborns: Newborns[Any],
        kind: EventType,
        item: Owned | ControllerRevision,
        before: Owned | ControllerRevision | None,
    ) -> None:
        if kind == DELETED:
            self._records.pop(item.metadata.uid, None)
        for key in {*_owner_key(item), *(_owner_key(before) if before else ())}:
            newborns.shown(key, item.metadata.uid)
            self._enqueue_soon(key)


def _shows(watched: Watched[T], item: T) -> bool:
    """The watch has told of this incarnation."""
    shown = watched.get(item.metadata.key)
    return shown is not None and shown.metadata.uid == item.metadata.uid


def _is_asked_anew(now: core.Meta, before: core.Meta) -> bool:
    return now.generation != before.generation or now.deletion_timestamp != before.deletion_timestamp


def _owner_key(item: Described) -> tuple[Key, ...]:
    name = item.metadata.label(names.LABEL_INFERENCE)
    return ((item.metadata.namespace, name),) if name else ()
