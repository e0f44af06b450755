"""Collections that one viewer may read, kept current with the viewer's own credentials, and checked again and again.

The API server checks a watch when it begins, and lets it run for minutes after the right has been taken away. So each
collection is asked for again and again, for one object; when that is denied, the watch is ended and all that it brought
is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from covey.api import core
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from covey.kube.reflector import Reflector, Selection
from covey.kube.resources import Resource
from covey.kube.watch import DELETED, EventType
from covey.operator.model.objects import Inference
from covey.ui import contract
from covey.ui.view_state import ViewBuilder, WatchedObject

T = TypeVar("T", bound=core.Pod | core.Node | core.Group | core.ClusterTopology | Inference)


@dataclass(frozen=True, slots=True)
class WatchedCollection:
    """A kind that is read. ``whole``: it is wanted of all namespaces even where only some are looked at."""

    resource: Resource
    type: type[Any]
    #: What the page lacks without it.
    effect: str
    whole: bool = False


COLLECTIONS: Final = (
    WatchedCollection(resources.NODES, core.Node, "nodes and their topology are not shown"),
    WatchedCollection(resources.CLUSTER_TOPOLOGIES, core.ClusterTopology, "levels are guessed from the nodes' labels"),
    WatchedCollection(resources.DISAGGREGATED_INFERENCES, Inference, "what is wanted, and what waits, is not shown"),
    WatchedCollection(resources.COMPOSITE_POD_GROUPS, core.Group, "why units wait is not shown"),
    WatchedCollection(resources.POD_GROUPS, core.Group, "why units wait is not shown"),
    WatchedCollection(resources.PODS, core.Pod, "what these pods take of the nodes is not counted", whole=True),
)


class ViewerWatch(Generic[T]):
    """One collection of one namespace (None: of all).

    Args:
        client: with the viewer's credentials.
        collection: what is read.
        namespace: where.
        board: takes the objects.
        changed: called after every change.
        every: seconds between two questions whether it may be read.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        collection: WatchedCollection,
        namespace: str | None,
        board: ViewBuilder,
        changed: Callable[[], None],
        every: float,
        clock: Clock,
    ) -> None:
        self.collection = collection
        self.namespace = namespace
        self.denied: Forbidden | None = None
        #: Why the API server could not be asked last.
        self.lost: KubeError | None = None
        #: Set once the collection has been listed, or denied.
        self.settled = asyncio.Event()
        self._client = client
        self._board = board
        self._changed = changed
        self._every = every
        self._clock = clock
        self._reflector: Reflector[T] | None = None

    async def run(self, *, stay: bool = True) -> None:
        """Read for as long as it is allowed; once it is denied, ask again from time to time, or (not ``stay``) return.

        Raises:
            Unauthorized: the credentials are not good any more.
            Exception: whatever else keeps it from going on, such as want of memory.
        """
        task: asyncio.Task[None] | None = None
        try:
            while True:
                allowed = await self._ask()
                if allowed and task is None:
                    task = asyncio.create_task(self._read())
                elif not allowed and task is not None:
                    await _end(task)
                    task = None
                    self._forget()
                if self.denied is not None:
                    if not stay:
                        return
                    self.settled.set()
                if task is None:
                    await asyncio.sleep(self._every)
                elif (await asyncio.wait({task}, timeout=self._every))[0]:
                    await task  # it never ends by itself, so it has failed
        finally:
            if task is not None and not task.done():
                await _end(task)
            self._forget()

    async def wait_until_allowed(self) -> None:
        """Wait until what was denied is allowed."""
        while True:
            if await self._ask():
                return
            await asyncio.sleep(self._every)

    async def _ask(self) -> bool:
        """Tell whether it may be read; while the API server cannot be asked, the last answer holds."""
        denied, self.lost = None, None
        try:
            await self._client.probe(self.collection.resource, self.namespace)
        except NotFound:
            pass
        except Forbidden as error:
            denied = error
        except Unauthorized:
            raise
        except KubeError as error:
            self.lost = error
            return self._reflector is not None
        if denied is not None or self.denied is not None:
            self.denied = denied
            self._changed()
        return denied is None

    async def _read(self) -> None:
        kind = self.collection.type
        self._reflector = reflector = Reflector(
            *(self._client, self.collection.resource, kind),
            clock=self._clock,
            selection=Selection(self.namespace),
            on_event=self._take,
        )
        running = asyncio.create_task(reflector.run())
        settling = asyncio.create_task(reflector.settled.wait())
        try:
            await asyncio.wait({running, settling}, return_when=asyncio.FIRST_COMPLETED)
            if settling.done():
                self.settled.set()
                self._changed()
            await running
        finally:
            settling.cancel()
            await _end(running)

    def _take(self, kind: EventType, item: T, before: T | None) -> None:
        if kind == DELETED:
            self._board.drop(self._with_kind(before or item))
        else:
            self._board.update(self._with_kind(item), self._with_kind(before) if before is not None else None)
        self._changed()

    def _with_kind(self, item: T) -> WatchedObject:
        """The object with its kind, which the API server leaves out of lists."""
        if isinstance(item, core.Group) and item.kind != self.collection.resource.kind:
            return msgspec.structs.replace(item, kind=self.collection.resource.kind)
        return item

    def _forget(self) -> None:
        reflector, self._reflector = self._reflector, None
        for item in list(reflector.store.values()) if reflector else ():
            self._board.drop(self._with_kind(item))
        self._changed()

    def denial(self) -> contract.Denied | None:
        """The parts that are not shown for want of rights."""
        if self.denied is None:
            return None
        resource = self.collection.resource
        what = self.denied.message or str(self.denied)
        return contract.Denied(
            "list", resource.plural, resource.group, self.namespace, f"{what}: {self.collection.effect}"
        )


class ViewerWatches:
    """Everything that one viewer looks at.

    Args:
        client: with the viewer's credentials.
        namespaces: what to look at; empty for all namespaces.
        fallback: the namespace to look at where all of them are not allowed; None for none.
        board: takes the objects.
        changed: called after every change.
        every: seconds between two questions whether a collection may be read.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        fallback: str | None,
        board: ViewBuilder,
        changed: Callable[[], None],
        every: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._board = board
        self._changed = changed
        self._every = every
        self._clock = clock
        self._narrow = tuple(namespaces) or ((fallback,) if fallback else ())
        self._named = bool(namespaces)
        self._readings: list[ViewerWatch[Any]] = []
        self._begun = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Unauthorized: the credentials are not good any more.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for collection in COLLECTIONS:
                    group.create_task(self._follow(collection, group))
                await asyncio.sleep(0)  # by then each has its first reading
                self._begun.set()
        except BaseExceptionGroup as errors:
            unauthorized = errors.subgroup(Unauthorized)
            if unauthorized is None:
                raise
            raise unauthorized.exceptions[0] from None

    async def wait_until_read(self) -> None:
        """Wait until it is known of everything what there is, or that it may not be read."""
        await self._begun.wait()
        # What is denied everywhere adds readings of namespaces before it is settled itself.
        while waiting := next((reading for reading in self._readings if not reading.settled.is_set()), None):
            await waiting.settled.wait()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are read in fact; empty for all."""
        kind = resources.DISAGGREGATED_INFERENCES
        readings = (
            reading for reading in self._readings if reading.collection.resource == kind and reading.namespace is None
        )
        return () if any(reading.denied is None for reading in readings) else self._narrow

    @property
    def lost(self) -> KubeError | None:
        """The error with which the API server does not answer, if so."""
        return next((reading.lost for reading in self._readings if reading.lost is not None), None)

    def denials(self) -> Iterator[contract.Denied]:
        """The parts that are not shown for want of rights."""
        for watch in self._readings:
            denial = watch.denial()
            if denial is not None:
                yield denial

    async def _follow(self, collection: WatchedCollection, group: asyncio.TaskGroup) -> None:
        """Read from all namespaces, and from the narrow ones where that is denied or not wanted."""
        narrow = self._narrow if collection.resource.namespaced else ()
        if not narrow or collection.whole or not self._named:
            wide = self._reading(collection, None)
            while True:
                await wide.run(stay=not narrow)
                tasks = self._begin(collection, narrow, group)
                wide.settled.set()
                await wide.wait_until_allowed()
                for reading, task in tasks.items():
                    await _end(task)
                    self._readings.remove(reading)
        else:
            self._begin(collection, narrow, group)

    def _begin(
        self, collection: WatchedCollection, namespaces: Sequence[str], group: asyncio.TaskGroup
    ) -> dict[ViewerWatch[Any], asyncio.Task[None]]:
        readings = [self._reading(collection, namespace) for namespace in namespaces]
        return {reading: group.create_task(reading.run()) for reading in readings}

    def _reading(self, collection: WatchedCollection, namespace: str | None) -> ViewerWatch[Any]:
        watch: ViewerWatch[Any] = ViewerWatch(
            *(self._client, collection, namespace, self._board, self._changed, self._every, self._clock)
        )
        self._readings.append(watch)
        return watch


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Unreachable):
        await task
