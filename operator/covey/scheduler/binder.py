"""The barrier's shell: holds kube-scheduler's bind calls, checks the nodes again, and lets gangs go.

``barrier`` decides which pods may go; here the callers wait, hang up, and are answered. Works on every replica without
the lease, from a synced cache only. Nothing is lost with the process: kube-scheduler calls again.

Every call and every event costs the same, however large the gang: it is counted (``BarrierCounts``), and the unit is
looked at as a whole when the counts say that something may go, and when its groups change. Then every node is checked
once more (``prebind_checks``). If one fails, every waiting call of the gang fails, and the pods that cannot go are
released, to be planned again. So it is where the pins do not keep a level that the gang requires.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Final

from covey.admission.nodes import Key
from covey.admission.obstacles import refusal
from covey.admission.required_levels import Astray
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import (
    DEFAULT_SCHEDULER_NAME,
    RELEASE_CONFLICT,
)
from covey.kube.clock import Clock
from covey.kube.errors import KubeError
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.model import Topology
from covey.scheduler.arrival_marks import ArrivalMarks
from covey.scheduler.background_tasks import Tasks
from covey.scheduler.barrier import Call, HeldCalls, releasable, release_reason
from covey.scheduler.barrier_counts import BarrierCounts
from covey.scheduler.bindings import Bindings
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.fair_loop import FairLoop
from covey.scheduler.guard import BindArgs
from covey.scheduler.leader_label import NotLeadingError
from covey.scheduler.ordinary_pods import Strangers
from covey.scheduler.prebind_checks import Checks

log = get_logger(__name__)


GROUP_GONE: Final = "its group, or one above it, is gone"
#: Seconds for each pod beyond ``SMALL`` until a unit is looked at as a whole again: a look takes a tenth of that, so
#: that groups that change, or surplus that comes pod by pod, do not stop the loop either.
PAUSE: Final = 0.00025
SMALL: Final = 64


class Binder:
    """Answers bind calls; an empty answer is success.

    ``served``: the profiles whose pods of no group may be bound. ``topology``: the one that a root is planned in.
    ``leads``: whether the bind calls of members meet here; an ordinary pod is bound by any replica.
    """

    def __init__(
        self,
        cache: Cache,
        bindings: Bindings,
        clock: Clock,
        *,
        served: Collection[str] = (DEFAULT_SCHEDULER_NAME,),
        topology: Callable[[Unit], Topology] | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cache = cache
        self._writer = writer = bindings.writer
        self._leads = leads
        self._clock = clock
        self._turns = itertools.count(1)
        self.waiting = HeldCalls()
        self._bindings = bindings
        self._strangers = Strangers(cache, self._bindings, served, sleep=clock.sleep)
        self._arrivals = ArrivalMarks(cache.index, writer, self.waiting.__contains__)
        self._answers: dict[Call, asyncio.Future[str]] = {}
        self._going: set[str] = set()
        self._fair_loop = FairLoop()
        self._checks = Checks(cache, self._fair_loop, topology)
        self._progress: dict[Key, BarrierCounts] = {}
        #: Units that will be looked at, that are being looked at, and when one may be again.
        self._due: set[Key] = set()
        self._looking: set[Key] = set()
        self._next: dict[Key, float] = {}
        self._timed: dict[Key, asyncio.TimerHandle] = {}
        self._tasks = Tasks()
        cache.subscribe(Listener(tree=self._regrown, pod=self._on_pod, gone=self._on_pod_deleted))

    async def bind(self, args: BindArgs) -> str:
        """Bind a pod when its time has come. Returns an error text, or nothing.

        Raises:
            NotLeadingError: the pod is a member's, and its gang's calls are held by another replica.
        """
        known = self._cache.pod(args.pod_namespace, args.pod_name, args.pod_uid)
        if (
            known is not None
            and podstate.is_gated(known)
            and self._cache.capacity.assumed.get(args.pod_uid) == args.node
        ):
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

    def is_member(self, args: BindArgs) -> bool:
        """Tell whether the call is for a pod that says that it is a member; an unknown pod may be one."""
        pod = self._cache.pod(args.pod_namespace, args.pod_name, args.pod_uid)
        return pod is None or podstate.claims_membership(pod)

    async def _find(self, args: BindArgs, known: core.Pod | None) -> core.Pod | None:
        """The pod; asked of the API server when the cache is behind kube-scheduler's.

        Raises:
            KubeError: when neither of them could tell.
        """
        if known is not None and (not podstate.claims_membership(known) or podstate.pinned_node(known) == args.node):
            return known
        meta = core.Meta(name=args.pod_name, namespace=args.pod_namespace, uid=args.pod_uid)
        try:
            return await self._writer.read(self._cache.pod_type(meta))
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
        call = Call(meta.uid, meta.namespace, meta.name, node, root, next(self._turns), self._clock.monotonic())
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[call] = answer
        older = self.waiting.arrive(call)
        if older is not None:
            self._answer(older, "a newer call for this pod replaced this one")
        self._note_call(call)
        self._arrivals.tell(self._cache.index.pod(meta.uid))
        error = "the caller hung up"
        try:
            error = await answer
        finally:
            self._leave(call)
            self._answers.pop(call, None)
            if meta.uid not in self.waiting:
                self._arrivals.end(meta.uid, failed=bool(error))
            metrics.BARRIER_WAIT.observe(self._clock.monotonic() - call.since)
            metrics.BARRIER_HELD.set(len(self.waiting))
        return error

    def _note_call(self, call: Call) -> None:
        metrics.BARRIER_HELD.set(len(self.waiting))
        root = call.root
        if root not in self._timed:
            unit = self._cache.index.unit(root)
            timeout = unit.timeout if unit else 300.0
            self._time(root, timeout, timeout)
        progress, pod = self._progress.get(root), self._cache.index.pod(call.uid)
        if progress is None or (pod is not None and progress.change(pod, called=True)):
            self._look(root)

    def _leave(self, call: Call) -> None:
        """Hold a call no more."""
        if not self.waiting.leave(call):
            return
        root = call.root
        if self.waiting.holds(root):
            pod = self._cache.index.pod(call.uid)
            if pod is not None and root in self._progress:
                self._progress[root].change(pod)
            return
        self._forget(root)
        if (timer := self._timed.pop(root, None)) is not None:
            timer.cancel()

    def _forget(self, root: Key) -> None:
        """Nobody waits for a pod of the unit any more."""
        self._progress.pop(root, None)
        self._next.pop(root, None)

    def _regrown(self, root: Key) -> None:
        """The groups of a unit have changed."""
        if (progress := self._progress.get(root)) is not None:
            progress.stale = True
        self._look(root)

    def _look(self, root: Key) -> None:
        """Look at a unit soon: what happens in one turn of the loop is looked at once, and a large unit not often."""
        if root in self._due or not self.waiting.holds(root):
            return
        self._due.add(root)
        loop = asyncio.get_running_loop()
        loop.call_at(max(self._next.get(root, 0.0), loop.time()), self._begin, root)

    def _begin(self, root: Key) -> None:
        if root in self._looking:
            asyncio.get_running_loop().call_later(PAUSE * SMALL, self._begin, root)
            return
        self._due.discard(root)
        self._looking.add(root)
        self._tasks.start(self._decide(root))

    async def _decide(self, root: Key) -> None:
        """Look at a unit as a whole."""
        try:
            progress = await self._count(root)
            if progress is not None and progress.may_go():
                await self._release(root, progress)
        finally:
            self._looking.discard(root)
            if not self.waiting.holds(root):
                self._forget(root)

    async def _count(self, root: Key) -> BarrierCounts | None:
        """The progress of a unit, counted again only when its shape has changed."""
        progress = self._progress.get(root)
        if progress is None or progress.stale:
            await self._fail_stale(root)
            self._cache.index.unit(root)  # kept until it changes: for a large one it takes as long as to look at it
            await self._fair_loop.share()
        if not self.waiting.holds(root):
            return None
        unit = self._cache.index.unit(root)
        if unit is None:
            await self._fail_unit(root, GROUP_GONE)
            return None
        if progress is None or progress.stale:
            progress = BarrierCounts(unit, self._cache.index.members(root), self.waiting.calls)
            self._progress[root] = progress
            self._next[root] = asyncio.get_running_loop().time() + max(0, progress.pods - SMALL) * PAUSE
            await self._fair_loop.share()
        return progress

    async def _release(self, root: Key, progress: BarrierCounts) -> None:
        """Let go what may go, when its places are still good."""
        await self._cache.steady()
        losses = progress.losses
        unit = self._cache.index.unit(root)
        await self._fair_loop.share()
        self._next[root] = asyncio.get_running_loop().time() + max(0, progress.pods - SMALL) * PAUSE
        pods = self._releasable(unit)
        if unit is None or not pods:
            return
        await self._fair_loop.share()
        lost = await self._checks.astray(unit, self._going)
        if lost is not None:
            await self._give_up_pins(unit, lost)
            return
        failed = await self._checks.failing(pods, self._going)
        if failed:
            await self._give_up(unit, failed)
            return
        if progress.losses != losses or progress.stale:
            # Something was lost while others had their turn.
            still = {pod.metadata.uid for pod in self._releasable(self._cache.index.unit(root))}
            if any(pod.metadata.uid not in still for pod in pods):
                self._look(root)
                return
        log.info("gang released", namespace=root.namespace, root=root.name, pods=len(pods))
        self._going.update(pod.metadata.uid for pod in pods)
        for pod in pods:
            self._tasks.start(self._go(pod, podstate.pinned_node(pod) or ""))
            await self._fair_loop.share()

    def _releasable(self, unit: Unit | None) -> list[core.Pod]:
        found = releasable(unit, self.waiting.calls) if unit is not None else []
        return [pod for pod in found if pod.metadata.uid not in self._going]

    async def _fail_stale(self, root: Key) -> None:
        """Answer the calls for pods that may not go any more, or have gone."""
        for call in self.waiting.of(root):
            pod = self._cache.index.pod(call.uid)
            if pod is not None:
                self._judge(call, pod)
            await self._fair_loop.share()

    def _judge(self, call: Call, pod: core.Pod) -> None:
        """Answer a call when its pod may not go any more."""
        index = self._cache.index
        if call.uid in self._going or self.waiting.get(call.uid) is not call:
            return
        why = refusal(pod, index.leaf_of(pod))
        # A cache that has not seen the pin yet is no reason: kube-scheduler has.
        if why is None or podstate.is_gated(pod):
            why = None if index.root_of_pod(pod) == call.root else GROUP_GONE
        if why is not None:
            self._answer(call, _success_if_bound(pod, call.node, why))

    async def _give_up_pins(self, unit: Unit, lost: Astray) -> None:
        """Fail every waiting call of a unit and have the pods replaced whose pins are no part of any plan."""
        why = f"{lost.why}; the gang is planned again"
        meta = unit.root.metadata
        log.warning("gang torn between domains", namespace=meta.namespace, root=meta.name, why=why)
        pods = [pod for uid in lost.pods if (pod := self._cache.index.pod(uid)) is not None]
        await self._fail_unit(unit.key, why)
        for pod in pods:
            self._tasks.start(self._writer.release(pod, RELEASE_CONFLICT))
            await self._fair_loop.share()

    async def _give_up(self, unit: Unit, failed: Sequence[tuple[core.Pod, str]]) -> None:
        """Fail every waiting call of a unit and have the pods that cannot go replaced."""
        first, cause = failed[0]
        why = f"node {podstate.pinned_node(first)} of pod {first.metadata.name}: {cause}; the gang is planned again"
        log.info("gang cannot be bound", namespace=unit.key.namespace, root=unit.key.name, why=why, pods=len(failed))
        await self._fail_unit(unit.key, why)
        for pod, each in failed:
            self._tasks.start(self._writer.release(pod, release_reason(each)))
            await self._fair_loop.share()

    async def _fail_unit(self, root: Key, why: str) -> None:
        for call in self.waiting.of(root):
            if call.uid not in self._going:
                self._answer(call, why)
            await self._fair_loop.share()

    def _expire(self, root: Key, timeout: float) -> None:
        """A gang's time counts from the first of its calls that wait, and ends before kube-scheduler's patience."""
        calls = self.waiting.of(root)
        self._timed.pop(root, None)
        if not calls:
            return
        left = min(call.since for call in calls) + timeout - self._clock.monotonic()
        if left > 0:
            self._time(root, timeout, left)
        else:
            self._tasks.start(self._fail_unit(root, f"the gang was not complete after {timeout:g} s"))

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

    def _on_pod(self, pod: core.Pod) -> None:
        if not self.waiting:
            return
        call = self.waiting.get(pod.metadata.uid)
        if call is not None:
            self._arrivals.tell(pod)
            self._judge(call, pod)
        root = self._cache.index.root_of_pod(pod)
        if root is not None and (progress := self._progress.get(root)) is not None and progress.change(pod):
            self._look(root)

    def _on_pod_deleted(self, pod: core.Pod) -> None:
        uid = pod.metadata.uid
        call = self.waiting.get(uid)
        if call is not None:
            self._answer(call, "the pod is gone")
        root = self._cache.index.root_of_pod(pod)
        if root is not None and (progress := self._progress.get(root)) is not None and progress.drop(uid):
            self._look(root)

    def _answer(self, call: Call, error: str) -> None:
        self._leave(call)
        answer = self._answers.pop(call, None)
        if answer is not None and not answer.done():
            answer.set_result(error)


def _success_if_bound(pod: core.Pod, node: str, why: str) -> str:
    if pod.spec.node_name is None:
        return why
    return "" if pod.spec.node_name == node else f"it is bound to node {pod.spec.node_name}"
