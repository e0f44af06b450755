"""Bindings: the last look at the nodes, the request, and ordinary pods, which wait for nobody.

Sends Bindings, and finds out what became of them.

The Binding carries the pod's UID, else a new pod of the same name would land on the old one's node. A 409 may be our
own success whose answer was lost: the pod is read, and this incarnation on this node is success.

Work that goes on by itself; it is held here until it ends, for the event loop alone would not keep it.

The last look at a gang's places before it goes: a large one's in pieces, so that nobody waits for it.

While a call is held nobody checks the node any more: a Binding to a deleted node is accepted, and one whose devices
were taken meanwhile is over-committed. And what is pinned in the end need not be one plan (``levels``).

Pods of no group: bound at once, for nobody waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.levels import Astray, astray, requires_levels
from covey.admission.obstacles import refusal_of_stranger
from covey.admission.tree import Unit
from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.placement.model import Topology
from covey.scheduler.cache import Cache
from covey.scheduler.fair_loop import FairLoop
from covey.scheduler.writer import PodWriter

log = get_logger(__name__)

Outcome = TypeVar("Outcome")


class Tasks:
    """Tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        """Begin a piece of work on the running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


#: Pods of a unit from which on its levels are looked at in a thread.
LARGE: Final = 512


class Checks:
    """Judges the places of a unit as the cache shows them.

    Args:
        cache: nodes and pods.
        fair_loop: lets others have their turn.
        topology: the one that a root is planned in.
    """

    def __init__(self, cache: Cache, fair_loop: FairLoop, topology: Callable[[Unit], Topology] | None) -> None:
        self._cache = cache
        self._fair_loop = fair_loop
        self._topology = topology

    async def astray(self, unit: Unit, going: Collection[str]) -> Astray | None:
        """Pins that do not keep the levels that the unit requires; nothing is said where no plan could be made."""
        if self._topology is None or not requires_levels(unit):
            return None
        # A Binding that is under way cannot be stopped.
        settled = {pod.metadata.uid for pod in unit.pods() if podstate.occupies_node(pod)} | set(going)
        try:
            topology = self._topology(unit)
            work = partial(self._judge, unit, topology, settled)
            return await asyncio.to_thread(work) if _is_large(unit) else work()
        except (LookupError, UnplannableError):
            return None

    def _judge(self, unit: Unit, topology: Topology, settled: Collection[str]) -> Astray | None:
        gang = build_gang(unit, topology, self._cache.capacity.shape, Surroundings())
        return astray(gang, topology, lambda node: self._cache.path(topology, node), settled.__contains__)

    async def failing(self, pods: Sequence[core.Pod], going: Collection[str]) -> list[tuple[core.Pod, str]]:
        """Pods that could not go to their node now, and why; each judged without those already found."""
        failing: list[tuple[core.Pod, str]] = []
        found: dict[str, list[core.Pod]] = {}
        for pod in pods:
            await self._fair_loop.share()
            node = podstate.pinned_node(pod)
            if node is None:
                continue
            # A Binding that is under way for one that was released takes its room.
            gone = (each for each in self._cache.leaving(node) if each.metadata.uid not in going)
            cause = self._cache.capacity.refusal_in_place(pod, node, [*gone, *found.get(node, ())])
            if cause is not None:
                failing.append((pod, cause))
                found.setdefault(node, []).append(pod)
        return failing


def _is_large(unit: Unit) -> bool:
    return sum(len(replica.pods) for role in unit.roles for replica in role.replicas) > LARGE


#: Attempts at one Binding and the seconds before the second; the wait doubles. About 13 s in all.
ATTEMPTS: Final = 7
FIRST_WAIT: Final = 0.2


class Bindings:
    """Binds one pod after the other, or ``in_flight`` of them at the same time.

    Args:
        client: sends the Bindings.
        writer: reads the pod again when the answer leaves a doubt.
        in_flight: how many are under way at most.
        sleep: waits between two attempts.
    """

    def __init__(
        self,
        client: Client,
        writer: PodWriter,
        *,
        in_flight: int = 64,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self.writer = writer
        self._slots = asyncio.Semaphore(in_flight)
        self._sleep = sleep

    async def send(self, pod: core.Pod, node: str) -> str:
        """Bind a pod to a node. Returns an error text, or nothing."""
        meta = pod.metadata
        for attempt in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._client.bind(meta.namespace, meta.name, meta.uid, node)
            except NotFound:
                return "the pod is gone"
            except KubeError as error:
                answer = await self._judge(pod, node, error)
                if answer is not None:
                    return answer
                log.warning("binding failed", namespace=meta.namespace, pod=meta.name, error=str(error))
            else:
                return ""
            if attempt + 1 < ATTEMPTS:
                await self._sleep(FIRST_WAIT * 2**attempt)
        return "the API server did not take the Binding"

    async def _judge(self, pod: core.Pod, node: str, error: KubeError) -> str | None:
        """Judge a failure by the pod as it is now; None when it is worth another attempt."""
        try:
            latest = await self.writer.read(pod)
        except KubeError:
            latest = pod
        if latest is None:
            return "the pod is gone"
        if latest.spec.node_name == node:
            return ""
        if latest.spec.node_name or isinstance(error, Conflict | Invalid):
            return f"the Binding was refused: {error}"
        return None


#: Seconds until the watch must have shown a pod that was bound before it did.
UNSEEN: Final = 60.0


class Strangers:
    """Binds pods of no group.

    Args:
        cache: what is known.
        bindings: sends the Bindings.
        served: the profiles whose pods may be bound.
        sleep: waits for a pod that the watch has not shown.
    """

    def __init__(
        self,
        cache: Cache,
        bindings: Bindings,
        served: Collection[str],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._bindings = bindings
        self._served = frozenset(served)
        self._sleep = sleep
        self._tasks = Tasks()

    async def bind(self, pod: core.Pod, node: str) -> str:
        """Bind at once, unless it may not be bound here, or a plan made since the guard's answer keeps the room."""
        why = refusal_of_stranger(pod, node, self._served)
        if why is None and self._cache.node(node) is None:
            why = f"there is no node {node}"
        why = why or self._cache.capacity.reserved_away(pod, node)
        if why is not None or pod.spec.node_name == node:
            return why or ""
        self._cache.assume(pod, node)
        # Like a gang's: once it is sent, its outcome matters also when the caller has hung up.
        return await asyncio.shield(self._tasks.start(self._place(pod, node)))

    async def _place(self, pod: core.Pod, node: str) -> str:
        """Bind a pod for which the node was assumed."""
        error = "the Binding was broken off"
        try:
            error = await self._bindings.send(pod, node)
        finally:
            uid = pod.metadata.uid
            if error and self._cache.capacity.assumed.get(uid) == node:  # and no newer call has taken another
                self._cache.unassume(uid)
        if self._cache.index.pod(uid) is None:
            self._tasks.start(self._confirm(uid))
        return error

    async def _confirm(self, uid: str) -> None:
        """A pod that the watch has not shown yet was bound; if it never does, the pod was gone before it could."""
        await self._sleep(UNSEEN)
        if self._cache.index.pod(uid) is None and uid in self._cache.capacity.assumed:
            self._cache.unassume(uid)
