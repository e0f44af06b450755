"""One run of the operator, from its caches to its work queue, on an API server in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

import msgspec

from covey.api.inference import Backend
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import KubeError
from covey.kube.events import EventRecorder
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.shallow import Page
from covey.kube.watch import ListMeta
from covey.operator.execute.put import BudgetEnder
from covey.operator.observe.caches import Caches
from covey.operator.observe.informer import EVERYWHERE, Informer
from covey.operator.observe.scope import Scope
from covey.operator.observe.watched import Key, Requeue
from covey.operator.reconcile import Reconciler
from covey.operator.status.metrics import WorkloadGauges
from unit.operator.wild.line import Line

_WORKERS: Final = 2


class _Recorder:
    """Takes Events."""

    def event(self, *_: object) -> None:
        """Take one."""


class OperatorRun:
    """The operator from its start until it is killed.

    Args:
        line: To the API server.
        clock: Seconds since the epoch.
    """

    def __init__(self, line: Line, clock: Callable[[], float]) -> None:
        self.line = line
        self._client = cast("Client", line)
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin."""
        now = asyncio.get_running_loop().time
        clock = Clock(now, self._clock)
        queue: WorkQueue[Key] = WorkQueue("inference", clock=now)
        namespaces: WorkQueue[str] = WorkQueue("namespace", clock=now)
        self.caches = Caches(
            self._client,
            Requeue(queue.add, queue.add_after, namespaces.add),
            Scope(backends=(Backend.EXTENDER,)),
            clock=clock,
        )
        reconciler = Reconciler(
            self._client,
            self.caches,
            cast("EventRecorder", _Recorder()),
            WorkloadGauges(10),
            clock=clock,
        )
        ender = BudgetEnder(self._client, self.caches.budgets.find, self.caches.budgets.is_needed)
        self._spawn(self.caches.run())
        for informer in self.caches.informers:
            self._spawn(self._tell(informer))
        self._spawn(self._work(queue, reconciler, namespaces, ender))

    async def _work(
        self, queue: WorkQueue[Key], reconciler: Reconciler, namespaces: WorkQueue[str], ender: BudgetEnder
    ) -> None:
        await self.caches.wait_until_synced()
        self.caches.begin_leading(self._clock())
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(queue, reconciler, _WORKERS))
            group.create_task(run_workers(namespaces, ender, 1))

    async def _tell(self, informer: Informer[Any]) -> None:
        """Do what Kopf does: list, then tell of every event."""
        while True:
            with contextlib.suppress(KubeError):
                await self._follow(informer)

    async def _follow(self, informer: Informer[Any]) -> None:
        kind = informer.kind
        found, version = await self.line.list(kind)
        uids = {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["metadata"]["uid"] for each in found
        }
        informer.take_page(EVERYWHERE, Page(b"", uids, ListMeta(version)), first=True)
        for each in found:
            informer.take({"type": None, "object": _shallow(each)})
        async for event, item in self.line.watch(kind, resource_version=version):
            informer.note_contact()
            informer.take({"type": event, "object": _shallow(item)})

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def check(self) -> None:
        """Raise what has ended a part of it."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def kill(self) -> None:
        """End it at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _shallow(body: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: msgspec.json.encode(body[key]).decode() for key in ("spec", "status") if key in body}
    metadata = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    return {"metadata": metadata, **texts}
