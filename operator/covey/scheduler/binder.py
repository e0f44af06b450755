"""The barrier's shell: holds kube-scheduler's bind calls, checks the nodes again, and lets gangs go.

``barrier`` decides which pods may go; here the callers wait, hang up, and are answered. Works on every replica without
the lease, from a synced cache only. Nothing is lost with the process: kube-scheduler calls again.

While a call is held nobody checks the node any more: a Binding to a deleted node is accepted, and one whose devices
were taken meanwhile is over-committed. So every node is checked once more before a gang goes. If one fails, every
waiting call of the gang fails, and the pods that cannot go are released, to be planned again. So it is where the pins
do not keep a level that the gang requires (``levels``).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from covey.admission import podstate
from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.levels import Astray, astray, requires_levels
from covey.admission.membership import refusal
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import (
    DEFAULT_SCHEDULER_NAME,
    RELEASE_CONFLICT,
)
from covey.kube.client import Client
from covey.kube.errors import KubeError
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.model import Topology
from covey.scheduler.arrivals import Arrivals
from covey.scheduler.barrier import Call, Waiting, releasable, release_reason
from covey.scheduler.bindings import Bindings
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.strangers import Strangers
from covey.scheduler.tasks import Tasks
from covey.scheduler.wire import BindArgs
from covey.scheduler.writer import PodWriter

log = get_logger(__name__)


GROUP_GONE: Final = "its group, or one above it, is gone"


class NotLeadingError(Exception):
    """The call is for a member, and another replica holds the calls of its gang."""


class Binder:
    """Answers bind calls; an empty answer is success.

    ``served``: the profiles whose pods of no group may be bound. ``topology``: the one that a root is planned in.
    ``leads``: whether the bind calls of members meet here; an ordinary pod is bound by any replica.
    """

    def __init__(
        self,
        cache: Cache,
        client: Client,
        writer: PodWriter,
        *,
        served: Collection[str] = (DEFAULT_SCHEDULER_NAME,),
        in_flight: int = 64,
        topology: Callable[[core.Group], Topology] | None = None,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._topology = topology
        self._leads = leads
        self._clock = clock
        self._turns = itertools.count(1)
        self.waiting = Waiting()
        self._bindings = Bindings(client, writer, in_flight=in_flight, sleep=sleep)
        self._strangers = Strangers(cache, self._bindings, served, sleep=sleep)
        self._arrivals = Arrivals(cache.index, writer, self.waiting.__contains__)
        self._answers: dict[Call, asyncio.Future[str]] = {}
        self._going: set[str] = set()
        self._looking: set[Key] = set()
        self._timed: dict[Key, asyncio.TimerHandle] = {}
        self._tasks = Tasks()
        cache.subscribe(Listener(unit=self._look, pod=self._seen, gone=self._gone))

    async def bind(self, args: BindArgs) -> str:
        """Bind a pod when its time has come. Returns an error text, or nothing.

        Raises:
            NotLeadingError: the pod is a member's, and its gang's calls are held by another replica.
        """
        known = self._cache.pod(args.pod_namespace, args.pod_name, args.pod_uid)
        if known is not None and podstate.gated(known) and self._cache.capacity.assumed.get(args.pod_uid) == args.node:
            # Our own pin, which kube-scheduler has seen before us; it goes no sooner than the watch shows it.
            return await self._member(known, args.node)
        name = f"pod {args.pod_namespace}/{args.pod_name} with UID {args.pod_uid}"
        try:
            pod = await self._find(args, known)
        except KubeError as error:
            return f"{name} is not in the cache, and the API server could not be asked for it: {error}"
        # Its DELETE event may have come while the API server was asked, and no other will.
        if pod is None or (known is not None and self._cache.index.pod(args.pod_uid) is None):
            return f"{name} is gone"
        if not podstate.claims_membership(pod):
            return await self._strangers.bind(pod, args.node)
        why = refusal(pod, self._cache.index.leaf_of(pod), args.node)
        if why is not None:
            return _success_if_bound(pod, args.node, why)
        return await self._member(pod, args.node)

    async def _find(self, args: BindArgs, known: core.Pod | None) -> core.Pod | None:
        """The pod; asked of the API server when the cache is behind kube-scheduler's.

        Raises:
            KubeError: when neither of them could tell.
        """
        if known is not None and (not podstate.claims_membership(known) or podstate.pinned(known) == args.node):
            return known
        meta = core.Meta(name=args.pod_name, namespace=args.pod_namespace, uid=args.pod_uid)
        try:
            return await self._writer.read(core.Pod(metadata=meta))
        except KubeError:
            if known is None:
                raise
            return known

    async def _member(self, pod: core.Pod, node: str) -> str:
        if not self._leads():
            raise NotLeadingError
        meta = pod.metadata
        root = self._cache.index.root_of_pod(pod)
        if root is None:
            return "its group has no root"
        call = Call(meta.uid, meta.namespace, meta.name, node, root, next(self._turns), self._clock())
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[call] = answer
        older = self.waiting.arrive(call)
        if older is not None:
            self._answer(older, "a newer call for this pod replaced this one")
        self._arrived(root)
        self._arrivals.tell(self._cache.index.pod(meta.uid))
        error = "the caller hung up"
        try:
            error = await answer
        finally:
            self.waiting.leave(call)
            self._answers.pop(call, None)
            if meta.uid not in self.waiting:
                self._arrivals.end(meta.uid, failed=bool(error))
            if not self.waiting.of(root) and (timer := self._timed.pop(root, None)) is not None:
                timer.cancel()
            metrics.BARRIER_WAIT.observe(self._clock() - call.since)
            metrics.BARRIER_HELD.set(len(self.waiting))
        return error

    def _arrived(self, root: Key) -> None:
        metrics.BARRIER_HELD.set(len(self.waiting))
        if root not in self._timed:
            unit = self._cache.index.unit(root)
            timeout = unit.timeout if unit else 300.0
            self._time(root, timeout, timeout)
        self._look(root)

    def _look(self, root: Key) -> None:
        """Look at a unit soon: what happens in one turn of the loop is looked at once."""
        if root in self._looking or not self.waiting:
            return
        self._looking.add(root)
        asyncio.get_running_loop().call_soon(self._decide, root)

    def _decide(self, root: Key) -> None:
        self._looking.discard(root)
        if not self.waiting.of(root):
            return
        unit = self._cache.index.unit(root)
        if unit is None:
            self._fail_unit(root, GROUP_GONE)
            return
        self._fail_stale(root)
        pods = [pod for pod in releasable(unit, self.waiting.calls) if pod.metadata.uid not in self._going]
        if not pods:
            return
        lost = self._astray(unit)
        if lost is not None:
            self._give_up_pins(unit, lost)
            return
        failed = self._failing(pods)
        if failed:
            self._give_up(unit, failed)
            return
        log.info("gang released", namespace=root.namespace, root=root.name, pods=len(pods))
        for pod in pods:
            self._going.add(pod.metadata.uid)
            self._tasks.start(self._go(pod, podstate.pinned(pod) or ""))

    def _fail_stale(self, root: Key) -> None:
        """Answer the calls for pods that may not go any more, or have gone."""
        index = self._cache.index
        for call in self.waiting.of(root):
            pod = index.pod(call.uid)
            if pod is None or call.uid in self._going:
                continue
            why = refusal(pod, index.leaf_of(pod))
            # A cache that has not seen the pin yet is no reason: kube-scheduler has.
            if why is None or podstate.gated(pod):
                why = None if index.root_of_pod(pod) == root else GROUP_GONE
            if why is not None:
                self._answer(call, _success_if_bound(pod, call.node, why))

    def _astray(self, unit: Unit) -> Astray | None:
        """Pins that do not keep the levels that the unit requires; nothing is said where no plan could be made."""
        if self._topology is None or not requires_levels(unit):
            return None
        try:
            topology = self._topology(unit.root)
            gang = build_gang(unit, topology, self._cache.capacity.shape, Surroundings())
        except (LookupError, UnplannableError):
            return None
        # A Binding that is under way cannot be stopped.
        settled = {pod.metadata.uid for pod in unit.pods() if podstate.bound(pod)} | self._going
        return astray(gang, topology, lambda node: self._cache.path(topology, node), settled.__contains__)

    def _give_up_pins(self, unit: Unit, lost: Astray) -> None:
        """Fail every waiting call of a unit and have the pods replaced whose pins are no part of any plan."""
        why = f"{lost.why}; the gang is planned again"
        meta = unit.root.metadata
        log.warning("gang torn between domains", namespace=meta.namespace, root=meta.name, why=why)
        self._fail_unit(unit.key, why)
        for uid in lost.pods:
            pod = self._cache.index.pod(uid)
            if pod is not None:
                self._tasks.start(self._writer.release(pod, RELEASE_CONFLICT))

    def _failing(self, pods: Sequence[core.Pod]) -> list[tuple[core.Pod, str]]:
        """Pods that could not go to their node now, each judged without those already found."""
        failing: list[tuple[core.Pod, str]] = []
        for pod in pods:
            node = podstate.pinned(pod)
            if node is None:
                continue
            # A Binding that is under way for one that was released takes its room.
            gone = (each for each in self._cache.leaving(node) if each.metadata.uid not in self._going)
            cause = self._cache.capacity.refusal_in_place(pod, node, [*gone, *(each for each, _ in failing)])
            if cause is not None:
                failing.append((pod, cause))
        return failing

    def _give_up(self, unit: Unit, failed: Sequence[tuple[core.Pod, str]]) -> None:
        """Fail every waiting call of a unit and have the pods that cannot go replaced."""
        first, cause = failed[0]
        why = f"node {podstate.pinned(first)} of pod {first.metadata.name}: {cause}; the gang is planned again"
        log.info("gang cannot be bound", namespace=unit.key.namespace, root=unit.key.name, why=why, pods=len(failed))
        self._fail_unit(unit.key, why)
        for pod, each in failed:
            self._tasks.start(self._writer.release(pod, release_reason(each)))

    def _fail_unit(self, root: Key, why: str) -> None:
        for call in self.waiting.of(root):
            if call.uid not in self._going:
                self._answer(call, why)

    def _expire(self, root: Key, timeout: float) -> None:
        """A gang's time counts from the first of its calls that wait, and ends before kube-scheduler's patience."""
        calls = self.waiting.of(root)
        self._timed.pop(root, None)
        if not calls:
            return
        left = min(call.since for call in calls) + timeout - self._clock()
        if left > 0:
            self._time(root, timeout, left)
        else:
            self._fail_unit(root, f"the gang was not complete after {timeout:g} s")

    def _time(self, root: Key, timeout: float, left: float) -> None:
        self._timed[root] = asyncio.get_running_loop().call_later(left, self._expire, root, timeout)

    async def _go(self, pod: core.Pod, node: str) -> None:
        """Bind one pod of a released gang, also when its caller has hung up: that was decided for the gang."""
        try:
            error = await self._bindings.send(pod, node)
        finally:
            self._going.discard(pod.metadata.uid)
        # The call that waits now may be newer than the one that was released; the answer holds for both.
        latest = self.waiting.get(pod.metadata.uid)
        if latest is not None:
            self._answer(latest, error)

    def _seen(self, pod: core.Pod) -> None:
        if self.waiting.get(pod.metadata.uid) is not None:
            self._arrivals.tell(pod)

    def _gone(self, pod: core.Pod) -> None:
        call = self.waiting.get(pod.metadata.uid)
        if call is not None:
            self._answer(call, "the pod is gone")

    def _answer(self, call: Call, error: str) -> None:
        self.waiting.leave(call)
        answer = self._answers.pop(call, None)
        if answer is not None and not answer.done():
            answer.set_result(error)


def _success_if_bound(pod: core.Pod, node: str, why: str) -> str:
    if pod.spec.node_name is None:
        return why
    return "" if pod.spec.node_name == node else f"it is bound to node {pod.spec.node_name}"
