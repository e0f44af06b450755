"""The scheduler process: starts everything, and ends it.

Every replica watches, and answers its kube-scheduler as soon as it is synced; admission, releases and status belong to
the holder of the lease. Behind Services every replica guards and binds ordinary pods, and the holder alone binds
members: it labels its own pod for the barrier's Service to find it. The others are ready all the same, or no rolling
update would end. A lost lease ends the process with a failure, so that nothing goes on deciding beside its successor;
the calls that were held are made again by kube-scheduler. SIGTERM ends it cleanly within seconds: held calls are cut
off and come back too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, TypeVar

from covey import __version__
from covey.admission import native, obstacles
from covey.admission.status import Decision
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import HOSTNAME_LABEL, LEASE_SCHEDULER, MANAGER_SCHEDULER
from covey.kube import process
from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.kube.connection import load
from covey.kube.errors import InstalledTwice, KubeError, LeaseLost
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
from covey.kube.lease import LeaseElector
from covey.kube.resources import PODS
from covey.kube.transport import Transport
from covey.observability.http import serve_health
from covey.observability.logging import get_logger
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import Bindings
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.caller_certificates import add_check
from covey.scheduler.claims import ClaimBounds
from covey.scheduler.context import Context
from covey.scheduler.cycle import Scheduler
from covey.scheduler.decisions_in_flight import reference
from covey.scheduler.devices import Surveyor
from covey.scheduler.endpoint import Endpoint
from covey.scheduler.guard import Guard
from covey.scheduler.holding import Holding
from covey.scheduler.kube_scheduler_presence import Callers
from covey.scheduler.leader_label import LeaderLabel
from covey.scheduler.operator_lease import OperatorLease
from covey.scheduler.plugin import at
from covey.scheduler.plugins import make_plugins
from covey.scheduler.preemptions import PreemptionWriter
from covey.scheduler.quotas import Quotas
from covey.scheduler.refused_pods import RefusedPod
from covey.scheduler.releases import Releases
from covey.scheduler.reservations import KeptNodes, Limits, Reservations
from covey.scheduler.server import ExtenderServer
from covey.scheduler.settings import OrdinaryPods, SchedulerSettings
from covey.scheduler.statuses import StatusWriter
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from covey.scheduler.unmarked_pods import Unmarked
from covey.scheduler.unread_groups import UnreadGroups
from covey.scheduler.usage import UsageWriter
from covey.scheduler.wake import Waker
from covey.scheduler.writer import PodWriter

log = get_logger(__name__)

Found = TypeVar("Found", bound=Exception)

COMPONENT: Final = "covey-scheduler"
#: Seconds between renewals after which a replica that hears nothing from the API server counts as unwell.
SILENCE: Final = 120.0
#: Connections for patches and Bindings.
CONNECTIONS: Final = 64
#: Connections beside those for patches and Bindings: status and events.
SPARE: Final = 32
#: Watches and the lease have connections of their own: a renewal never waits behind a thousand writes.
ASIDE: Final = 2
#: Seconds for which a new holder waits for its watch. Where nothing happens that would tell that it is behind nothing.
CATCH_UP: Final = 2.0
#: Seconds in which patches that were sent are answered before a process that was asked to end gives its lease up.
SETTLE: Final = 5.0


def run(settings: SchedulerSettings) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit status: 0 when asked to end, 1 when the lease was lost."""
    _raise_file_limit()
    return process.run(Process(settings, SYSTEM).run())


class Process:
    """The parts, wired.

    Args:
        settings: its flags.
        clock: the time; the monotonic one is that of the event loop.
        transport: makes what carries the requests of a client.
    """

    def __init__(
        self, settings: SchedulerSettings, clock: Clock, *, transport: Callable[..., Transport] = Transport
    ) -> None:
        self._settings = settings
        self._identity = process.make_identity()
        self._clock = clock
        self._transport = transport
        self._stop = asyncio.Event()
        self._elector: LeaseElector | None = None
        self._cache: Cache | None = None
        self._client: Client | None = None
        self._active: LeaderLabel | None = None
        self._writer: PodWriter | None = None
        self._serves = False
        self._stopping = False

    async def run(self) -> int:
        """Run until a signal, a lost lease, or a failure of a part."""
        process.take_signals(self._stop)
        connection = await load(self._settings.kubeconfig, self._settings.context)
        bounds = (process.UNBOUNDED, CONNECTIONS + SPARE, ASIDE)
        opening = process.open_clients(connection, COMPONENT, MANAGER_SCHEDULER, *bounds, transport=self._transport)
        async with opening as clients:
            work = asyncio.create_task(self._work(*clients))
            asked = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                work.cancel()
                await asyncio.wait({work})
                raise
            finally:
                asked.cancel()
            if not work.done():
                log.info("stopping")
                return await self._end(work)
            return _outcome(work)

    async def _end(self, work: asyncio.Task[None]) -> int:
        """End on request: what was not sent is dropped, what was is waited for, and then the successor may start."""
        self._stopping = True
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        if self._active is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._active.clear(), 3.0)
        if self._writer is not None and not await self._writer.wait_until_idle(SETTLE):
            log.warning("patches are still under way: the lease is left to run out")
        elif self._elector is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._elector.release(), 3.0)
        return 0

    def _leads(self) -> bool:
        """Tell whether this process may decide and write decisions now."""
        return not self._stopping and (self._elector is None or self._elector.is_leader)

    async def _work(self, watching: Client, client: Client, aside: Client) -> None:
        settings, clock = self._settings, self._clock
        self._client = client
        cache = self._cache = Cache(watching, clock, settings.namespaces, native=settings.native_groups)
        cache.capacity.yields_to = settings.yield_to_priority
        writer = self._writer = PodWriter(client, clock=clock, in_flight=CONNECTIONS)
        cache.subscribe(Listener(gone=writer.forget))
        topologies = Topologies(cache)
        binder = Binder(
            cache,
            Bindings(client, writer, in_flight=CONNECTIONS),
            clock,
            served=settings.scheduler_names,
            topology=topologies.choose,
            leads=self._holds,
        )
        waker = Waker(cache, writer)
        KeptNodes(cache)
        operator = OperatorLease(aside, settings.leader_elect_namespace, clock.monotonic)
        holding = Holding(cache, clock, longest=settings.max_hold, operator=operator)
        callers = Callers(lambda: bool(binder.waiting), clock=clock.monotonic)
        recorder = EventRecorder(client, COMPONENT, self._identity, clock=clock.wall)
        deciding = writer.while_leading(self._leads)
        context = Context(cache, client, deciding, recorder, clock, AdmissionTimes(clock.wall), self._leads)
        leader = _Leader(settings, context, binder, topologies, holding, callers)
        if settings.leader_elect:
            self._elector = LeaseElector(
                *(aside, LEASE_SCHEDULER, settings.leader_elect_namespace, self._identity),
                account=COMPONENT,
                clock=clock,
                version=__version__,
            )
        self._active = _leader_label(settings, aside, cache)
        guard = Guard(cache, waker.note_refusal, marked=settings.attached)
        extender = ExtenderServer(guard, binder, lambda: cache.synced, heard=callers.note)
        async with (
            serve_health(settings.metrics_bind_address, settings.health_probe_bind_address, self._healthy, self.ready),
            contextlib.AsyncExitStack() as stack,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(cache.run())
            await cache.wait_synced()
            holding.begin()
            tasks.create_task(holding.end_holds())
            # A walk stops everything, the loop too: 10,000 new objects are 5 ms, and five times that 25 ms.
            process.settle_memory(10_000, 5, 5_000)
            if self._active is not None:
                await self._active.clear()
            application = extender.application()
            add_check(application, settings)
            endpoint = await Endpoint.open(application, settings)
            stack.push_async_callback(endpoint.close)
            tasks.create_task(endpoint.run())
            self._serves = True
            log.info("synced", nodes=len(cache.nodes.store), pods=len(cache.pods.store), address=settings.bind_address)
            tasks.create_task(waker.run())
            tasks.create_task(self._lead(leader))

    async def _lead(self, leader: _Leader) -> None:
        async with asyncio.TaskGroup() as tasks:
            if self._elector is not None:
                await self._elector.acquire()
                log.info("leading", identity=self._identity)
                tasks.create_task(self._elector.hold())
                await self._catch_up()
            if self._active is not None:
                tasks.create_task(self._active.keep())
            tasks.create_task(leader.run())

    async def _catch_up(self) -> None:
        """See what the holder before has written last: a plan over pins that are not seen yet would be undone again."""
        assert self._cache is not None
        assert self._client is not None
        with contextlib.suppress(KubeError):
            newest = await self._client.newest(PODS)
            await self._cache.pods.reach(newest, CATCH_UP)

    def stop(self) -> None:
        """End as at SIGTERM; called within the event loop."""
        self._stop.set()

    def ready(self) -> tuple[bool, str]:
        """Synced and listening, leading or not."""
        if self._cache is None or not self._cache.synced or not self._serves:
            return False, "not synced"
        return True, "ok"

    def _holds(self) -> bool:
        """Tell whether bind calls of gangs are held here; behind a Service only the leader does."""
        return not self._settings.attached or self._elector is None or self._elector.is_leader

    def _healthy(self) -> tuple[bool, str]:
        """The event loop answers, and the API server was heard of not too long ago."""
        if self._cache is None or not self._cache.synced:
            return True, "starting"
        silent = max(reflector.silence for reflector in self._cache.reflectors)
        return silent < SILENCE, f"last contact {silent:.0f} s ago"


class _Leader:
    """The tasks of the holder of the lease."""

    def __init__(
        self,
        settings: SchedulerSettings,
        context: Context,
        binder: Binder,
        topologies: Topologies,
        holding: Holding,
        callers: Callers,
    ) -> None:
        cache = context.cache
        obstacle = partial(obstacles.obstacle, served=settings.scheduler_names, marked=settings.attached)
        refuses_native = settings.native_groups and settings.attached
        beside = native.obstacle if refuses_native else _nothing
        self._queueing = Queueing(
            cache,
            topologies,
            context.clock,
            reserve_after=settings.reserve_after,
            obstacle=lambda pod: beside(pod) or obstacle(pod),
        )
        self._recorder = context.recorder
        self._unread = UnreadGroups(context) if settings.native_groups else None
        reservations = Reservations(
            cache,
            context.clock,
            reserve_after=settings.reserve_after,
            limits=Limits(
                settings.max_reservations,
                settings.max_reservations_per_namespace,
                settings.max_reserved_percent,
                ClaimBounds(
                    settings.max_preemptions_per_minute,
                    settings.max_min_run,
                    ordinary_pods=settings.preempt_ordinary_pods is OrdinaryPods.EVICT,
                ),
            ),
            holding=holding,
        )
        quotas = Quotas(cache, self._queueing.priority)
        self._plugins = make_plugins(context, self._queueing, quotas, reservations, holding)
        self._scheduler = Scheduler(context, self._queueing, self._plugins)
        self._preemptions = PreemptionWriter(context, self._scheduler.queue, reservations)
        self._statuses = StatusWriter(
            context,
            self._scheduler.queue.decision,
            announce=self._announce,
            announce_pod=self._announce_pod,
            prepare=self._preemptions.prepare,
        )
        self._scheduler.queue.on_decision(self._statuses.note_change)
        self._usage = UsageWriter(context, quotas)
        self._surveyor = Surveyor(cache.capacity.room, topologies.default, guards=settings.guards)
        self._releases = Releases(context, exclude=self._exclude, arrived=binder.waiting.__contains__, callers=callers)
        self._unmarked = None
        if settings.attached:
            self._unmarked = Unmarked(cache, context.writer, context.clock, fair_loop=context.fair_loop)

    async def run(self) -> None:
        """Decide for ever."""
        self._queueing.topologies.begin(self._tell_detection, self._tell_twin)
        if self._unread is not None:
            self._unread.begin()
        parts: tuple[Coroutine[None, None, None], ...] = (
            self._scheduler.run(),
            self._statuses.run(self._scheduler.settled.wait),
            self._releases.run(self._scheduler.settled.wait),
            *(plugin.run(self._scheduler.settled.wait) for plugin in at(self._plugins, "run")),
            self._usage.run(self._scheduler.settled.wait),
            self._preemptions.run(self._scheduler.settled.wait),
            self._recorder.run(),
            self._surveyor.run(),
            *([self._unmarked.run(self._scheduler.settled.wait)] if self._unmarked else []),
        )
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
            await settle_in(self._scheduler.settled)

    def _announce(self, unit: Unit, decision: Decision) -> None:
        self._recorder.event(reference(unit), "Warning", decision.reason or "", decision.message, "Admit")

    def _announce_pod(self, refused: RefusedPod) -> None:
        meta = refused.pod.metadata
        about = ObjectRef("v1", "Pod", meta.name, meta.namespace, meta.uid)
        self._recorder.event(about, "Warning", refused.reason, refused.note, "Admit")

    def _tell_detection(self, node: str, before: str, now: str) -> None:
        note = (
            f"the labels of nodes show topology {now} from now on, no longer {before}: it holds for units without pods"
            " that name none; create a ClusterTopology, or name one in spec.topology.name, to decide it"
        )
        self._recorder.event(ObjectRef("v1", "Node", node, uid=node), "Normal", "TopologyDetected", note, "Detect")

    def _tell_twin(self, node: str, other: str, hostname: str) -> None:
        note = (
            f"node {other} has the label {HOSTNAME_LABEL}={hostname}, too: to placement both are one host; give each node"
            " a hostname of its own"
        )
        self._recorder.event(ObjectRef("v1", "Node", node, uid=node), "Warning", "HostnameTaken", note, "Detect")

    def _exclude(self, unit: Unit, node: str | None, reason: str) -> None:
        untried = node is not None and self._queueing.exclude(unit, node, reason)
        self._scheduler.reject(unit.key, reason, untried=untried)


def _nothing(_pod: core.Pod) -> str | None:
    return None


def _leader_label(settings: SchedulerSettings, client: Client, cache: Cache) -> LeaderLabel | None:
    if not settings.attached:
        return None
    if not settings.pod_name:
        log.warning("no --pod-name: a Service that selects the active replica by its label will not find this one")
        return None
    return LeaderLabel(client, cache, settings.pod_namespace, settings.pod_name)


def _outcome(work: asyncio.Task[None]) -> int:
    error = work.exception()
    if error is None:
        return 0
    lost = _find(error, LeaseLost)
    if lost is not None:
        log.error("lease lost", error=str(lost))
        return 1
    twice = _find(error, InstalledTwice)
    if twice is not None:
        log.error("not started", error=str(twice))
        return 1
    said = _find(error, KubeError) or _find(error, OSError)
    if said is not None:  # no cluster, a port that is taken: the caller has a sentence for it
        raise said
    log.error("a part of the process has failed", exc_info=error)
    return 1


def _find(error: BaseException, kind: type[Found]) -> Found | None:
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _find(each, kind))), None)
    return None


async def settle_in(settled: asyncio.Event) -> None:
    """Freeze what a new leader makes of every unit once it is there: collecting garbage meanwhile would block the loop."""
    if not process.is_own():
        await settled.wait()
        return
    gc.disable()
    try:
        await settled.wait()
        gc.freeze()
    finally:
        gc.enable()


def _raise_file_limit() -> None:
    """Every held bind call is a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
