"""The operator process: caches and Kopf always, reconciling only while it leads.

A replica that waits for the lease keeps its caches full, so that it takes over without a listing. A process that
loses the lease exits at once, whatever it was doing: its successor is at work already.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from covey import __version__
from covey.api.constants import OPERATOR
from covey.api.inference import BackendName
from covey.kube import process
from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.kube.connection import Connection, load
from covey.kube.errors import InstalledTwice, LeaseLost
from covey.kube.events import EventRecorder
from covey.kube.lease import LeaseElector
from covey.kube.queue import WorkQueue, run_workers
from covey.kube.transport import Transport
from covey.observability.families import REGISTRY
from covey.observability.http import serve_health
from covey.observability.logging import get_logger
from covey.operator.execute.evictions import Evictor
from covey.operator.execute.put import BudgetEnder
from covey.operator.execute.responder import Responder
from covey.operator.observe.caches import Caches
from covey.operator.observe.scope import WatchScope
from covey.operator.observe.watched import Key, Requeue
from covey.operator.process.features import FEATURES
from covey.operator.process.jobs import JobGangs, LeaderWorkerSets, LostPlaces
from covey.operator.process.kopf_runner import KopfRunner
from covey.operator.process.settings import OperatorSettings
from covey.operator.reconcile import Reconciler
from covey.operator.status.gauges import WorkloadGauges

_log = get_logger(__name__)

COMPONENT: Final = OPERATOR
#: Reconciles at the same time.
_WORKERS: Final = 8
#: Connections for the requests of all of them together.
_CONNECTIONS: Final = 64
#: Seconds for reconciles under way once the process shall end.
_DRAIN: Final = 4.0
#: Connections for the lease and for Events: a renewal must not wait behind a thousand writes.
_ASIDE: Final = 4


def run(settings: OperatorSettings) -> int:
    """Run until SIGTERM or SIGINT; return the exit status."""
    return process.run(OperatorProcess(settings, SYSTEM).run())


class OperatorProcess:
    """One replica of the operator.

    Args:
        settings: its flags.
        clock: the time; the monotonic one is that of the event loop.
        transport: makes what carries the requests of a client.
        die: ends the process at once.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        clock: Clock,
        *,
        transport: Callable[..., Transport] = Transport,
        die: Callable[[int], object] = os._exit,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._clock = clock
        self._die = die
        self._identity = process.make_identity()
        self._stop = asyncio.Event()
        self._caches: Caches | None = None
        self._foreign: list[JobGangs | LeaderWorkerSets | LostPlaces] = []
        self._crashed = ""

    async def run(self) -> int:
        """Run until asked to stop; return the exit status."""
        settings = self._settings
        connection = await load(settings.kubeconfig, settings.context)
        self._take_signals()
        bounds = (process.UNBOUNDED, _CONNECTIONS, _ASIDE)
        opening = process.open_clients(connection, COMPONENT, COMPONENT, *bounds, transport=self._transport)
        async with opening as (watching, working, aside):
            await self._serve(connection, watching, working, aside)
        _log.info("stopped")
        return 1 if self._crashed else 0

    async def _serve(self, connection: Connection, watching: Client, working: Client, aside: Client) -> None:
        settings, clock = self._settings, self._clock
        queue: WorkQueue[Key] = WorkQueue("inference", clock=clock.monotonic, share_of=itemgetter(0))
        namespaces: WorkQueue[str] = WorkQueue("namespace", clock=clock.monotonic)
        roots: WorkQueue[Key] = WorkQueue("root", clock=clock.monotonic)
        evictions: WorkQueue[Key] = WorkQueue("eviction", clock=clock.monotonic)
        self._caches = Caches(
            watching,
            Requeue(queue.add, queue.add_after, namespaces.add, roots.add, evictions.add),
            WatchScope(
                *(settings.namespaces, settings.backends, settings.autoscaler_taints, settings.evacuation_taints),
                *(settings.probes_in, settings.probe_image, settings.capacity),
                compute_domains=settings.compute_domains,
                pools=settings.inference_pools,
                evictions=settings.eviction_responder and BackendName.EXTENDER in settings.backends,
                max_drain=settings.max_drain_for_preemption,
            ),
            clock=clock,
        )
        if settings.job_gangs:
            quotas, unsettled = self._caches.quotas, self._caches.may_need_room
            self._foreign.append(JobGangs(watching, settings.namespaces, clock, quotas, unsettled))
        if settings.native_groups:
            self._foreign.append(LostPlaces.of_native_groups(watching, settings.namespaces, clock))
        if settings.leader_worker_sets:
            self._foreign.append(LeaderWorkerSets(watching, settings.namespaces, clock))
        recorder = EventRecorder(aside, COMPONENT, self._identity, clock=clock.wall)
        elector = None
        if settings.leader_elect:
            elector = LeaseElector(
                *(aside, COMPONENT, settings.leader_elect_namespace, self._identity),
                account=COMPONENT,
                clock=clock,
                version=__version__,
                namespaces=settings.namespaces,
            )
        endpoints = serve_health(
            settings.metrics_bind_address, settings.health_probe_bind_address, self._healthz, self.ready
        )
        async with endpoints as served:
            _log.info("serving", metrics=served.metrics_url, health=served.health_url, identity=self._identity)
            try:
                kopf = KopfRunner(connection, settings.namespaces, self._caches, self._take_signals)
                gangs = (controller.run() for controller in self._foreign)
                async with self._background(self._caches.run(), kopf.run(), recorder.run(), *gangs):
                    if await self._lead(elector):
                        self._caches.begin_leading(clock.wall())
                        await self._work(working, queue, namespaces, roots, evictions, recorder)
            finally:
                # Nothing that acts on the lease is at work any more.
                if elector is not None:
                    await elector.release()
                await recorder.flush()

    async def _lead(self, elector: LeaseElector | None) -> bool:
        """Wait for the lease, and from then on for its loss; False when the process was asked to stop first."""
        if elector is None:
            return True
        if not await self._unless_stopped(elector.acquire()):
            return False
        self._spawn(self._hold(elector))
        return True

    async def _hold(self, elector: LeaseElector) -> None:
        try:
            await elector.hold()
        except LeaseLost:
            self._die(1)

    async def _work(
        self,
        client: Client,
        queue: WorkQueue[Key],
        namespaces: WorkQueue[str],
        roots: WorkQueue[Key],
        evictions: WorkQueue[Key],
        recorder: EventRecorder,
    ) -> None:
        assert self._caches is not None
        if not await self._unless_stopped(self._caches.wait_until_synced()):
            return
        # A pass over a large resource makes a hundred thousand objects that nobody keeps: at every 700th one, as by
        # default, a third of its time is spent in walks.
        process.settle_memory(10_000, 10, 10)
        with _expose_gauges(WorkloadGauges(self._settings.metrics_workload_limit)) as gauges:
            reconciler = Reconciler(
                *(client, self._caches, recorder, gauges),
                clock=self._clock,
                features=FEATURES,
                limits=self._settings.limits,
            )
            workers = self._spawn(run_workers(queue, reconciler, _WORKERS))
            # One at a time: what former leaders have left behind is no reason to hurry.
            ender = BudgetEnder(client, self._caches.budgets.find, self._caches.budgets.is_needed)
            self._spawn(run_workers(namespaces, ender, 1))
            claims = self._caches.claims
            evictor = Evictor(client, recorder, claims.kinds_that_evict, claims.priority_of, self._clock.wall)
            self._spawn(run_workers(roots, evictor, 1))
            if self._caches.evicted is not None:
                evicted, is_known = self._caches.evicted, self._caches.knows_pod
                responder = Responder(
                    *(client, evicted.get, evicted.find_answer, is_known, evictions.add_after, self._clock.wall)
                )
                self._spawn(run_workers(evictions, responder, 1))
            for controller in self._foreign:
                self._spawn(controller.work(client, recorder))
            stopped = self._spawn(self._stop.wait())
            await asyncio.wait({workers, stopped}, return_when=asyncio.FIRST_COMPLETED)
            _log.info("stopping")
            namespaces.close()
            roots.close()
            evictions.close()
            queue.close()
            await asyncio.wait({workers}, timeout=_DRAIN)

    def _take_signals(self) -> None:
        process.take_signals(self._stop)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, object]) -> bool:
        """Wait for something, or for the end of the process; False for the latter."""
        task, stopped = self._spawn(waiting), self._spawn(self._stop.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return not self._stop.is_set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_task_end)
        return task

    def _note_task_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, InstalledTwice):
                _log.error("not started", error=str(error))
            else:
                _log.error("a part of the process has failed", exc_info=error)
            self._crashed = repr(error)
            self._stop.set()

    @contextlib.asynccontextmanager
    async def _background(self, *works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Run these, and everything spawned meanwhile, no longer than the block."""
        self._tasks: set[asyncio.Task[Any]] = set()
        for work in works:
            self._spawn(work)
        try:
            yield
        finally:
            running = list(self._tasks)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def stop(self) -> None:
        """End as at SIGTERM; called within the event loop."""
        self._stop.set()

    def _healthz(self) -> tuple[bool, str]:
        if self._crashed:
            return False, self._crashed
        silent = self._caches is not None and self._caches.is_synced and not self._caches.is_alive()
        if silent or not all(controller.is_alive() for controller in self._foreign):
            return False, "a watch has been silent for too long"
        return True, "ok"

    @property
    def untold(self) -> Sequence[Key]:
        """Stored objects that Kopf has not told of yet; none before the process runs."""
        triggered = self._caches.triggered if self._caches is not None else ()
        return [key for kind in triggered for key in kind.untold.values()]

    def ready(self) -> tuple[bool, str]:
        """Tell whether the caches are synced, leading or not; and what is missing."""
        if self._caches is None or not self._caches.is_synced:
            return False, "the caches are not synced yet"
        return True, "ok"


@contextlib.contextmanager
def _expose_gauges(gauges: WorkloadGauges) -> Iterator[WorkloadGauges]:
    """Show gauges in the metrics of this process for as long as the block lasts."""
    REGISTRY.register(gauges)
    try:
        yield gauges
    finally:
        REGISTRY.unregister(gauges)
