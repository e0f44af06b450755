"""The barrier's shell: holds kube-scheduler's bind calls, checks the nodes again, and sends the Bindings.

``barrier`` decides which pods may go; here the callers wait, hang up, and are answered. Works on every replica without
the lease, from a synced cache only. Nothing is lost with the process: kube-scheduler calls again.

While a call is held nobody checks the node any more: a Binding to a deleted node is accepted, and one whose devices
were taken meanwhile is over-committed. So every node is checked once more before a gang goes. If one fails, every
waiting call of the gang fails, and the pods that cannot go are released, to be planned again. So it is where the pins
do not keep a level that the gang requires (``levels``).

The Binding carries the pod's UID, else a new pod of the same name would land on the old one's node. A 409 may be our
own success whose answer was lost: the pod is read, and this incarnation on this node is success.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeVar

from covey.admission import podstate
from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.levels import Astray, astray, requires_levels
from covey.admission.membership import refusal, refusal_of_stranger
from covey.admission.tree import Key, Unit
from covey.api import core
from covey.api.constants import (
    DEFAULT_SCHEDULER_NAME,
    RELEASE_CAPACITY_TAKEN,
    RELEASE_CONFLICT,
    RELEASE_NODE_LOST,
)
from covey.kube.client import Client
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.observability import metrics
from covey.observability.logging import get_logger
from covey.placement.cluster.shape import ANTI_AFFINITY, HOST_PORTS
from covey.placement.model import Topology
from covey.scheduler.barrier import Call, Waiting, releasable
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.wire import BindArgs
from covey.scheduler.writer import ARRIVED, LEFT, RENEW, PodWriter, says_arrived

log = get_logger(__name__)

Outcome = TypeVar("Outcome")

#: Attempts at one Binding and the seconds before the second; the wait doubles. About 13 s in all.
ATTEMPTS: Final = 7
FIRST_WAIT: Final = 0.2
#: Seconds until the watch must have shown a pod that was bound before it did.
UNSEEN: Final = 60.0
GROUP_GONE: Final = "its group, or one above it, is gone"


def release_reason(cause: str) -> str:
    """The release reason that goes with the planner's cause."""
    taken = cause.startswith("insufficient") or cause in {HOST_PORTS, ANTI_AFFINITY}
    return RELEASE_CAPACITY_TAKEN if taken else RELEASE_NODE_LOST


def leaving(cache: Cache, node: str) -> list[core.Pod]:
    """The unbound pods that keep room on a node until they are gone, but do not go there any more.

    Whoever is judged for that node is judged without them: their room comes free by itself, and a pod that had to go
    because room is short must not take the next one with it.
    """
    pods = (cache.index.pod(uid) for uid in cache.capacity.reserved.get(node, ()))
    return [pod for pod in pods if pod is not None and not podstate.counts(pod)]


class Binder:
    """Answers bind calls; an empty answer is success.

    ``served``: the profiles whose pods of no group may be bound. ``topology``: the one that a root is planned in.
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
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._client = client
        self._writer = writer
        self._served = frozenset(served)
        self._topology = topology
        self._slots = asyncio.Semaphore(in_flight)
        self._clock = clock
        self._sleep = sleep
        self._turns = itertools.count(1)
        self.waiting = Waiting()
        self._answers: dict[Call, asyncio.Future[str]] = {}
        self._going: set[str] = set()
        self._looking: set[Key] = set()
        self._timed: dict[Key, asyncio.TimerHandle] = {}
        #: UIDs of held pods whose mark is to be written again.
        self._marked: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        cache.subscribe(Listener(unit=self._look, pod=self._seen))

    async def bind(self, args: BindArgs) -> str:
        """Bind a pod when its time has come. Returns an error text, or nothing."""
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
            return await self._stranger(pod, args.node)
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

    async def _stranger(self, pod: core.Pod, node: str) -> str:
        """Bind at once, unless it may not be bound here, or a plan made since the guard's answer keeps the room."""
        why = refusal_of_stranger(pod, node, self._served)
        if why is None and self._cache.node(node) is None:
            why = f"there is no node {node}"
        why = why or self._cache.capacity.reserved_away(pod, node)
        if why is not None or pod.spec.node_name == node:
            return why or ""
        self._cache.assume(pod, node)
        # Like a gang's: once it is sent, its outcome matters also when the caller has hung up.
        return await asyncio.shield(self._spawn(self._place(pod, node)))

    async def _place(self, pod: core.Pod, node: str) -> str:
        """Bind a pod for which the node was assumed."""
        error = "the Binding was broken off"
        try:
            error = await self._send(pod, node)
        finally:
            uid = pod.metadata.uid
            if error and self._cache.capacity.assumed.get(uid) == node:  # and no newer call has taken another
                self._cache.unassume(uid)
        if self._cache.index.pod(uid) is None:
            self._spawn(self._confirm(uid))
        return error

    async def _confirm(self, uid: str) -> None:
        """A pod that the watch has not shown yet was bound; if it never does, the pod was gone before it could."""
        await self._sleep(UNSEEN)
        if self._cache.index.pod(uid) is None and uid in self._cache.capacity.assumed:
            self._cache.unassume(uid)

    async def _member(self, pod: core.Pod, node: str) -> str:
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
        self._mark(self._cache.index.pod(meta.uid))
        error = "the caller hung up"
        try:
            error = await answer
        finally:
            self.waiting.leave(call)
            self._answers.pop(call, None)
            if meta.uid not in self.waiting and (renewal := self._marked.pop(meta.uid, None)) is not None:
                renewal.cancel()
            if error and meta.uid not in self.waiting:
                self._unmark(self._cache.index.pod(meta.uid))
            if not self.waiting.of(root) and (timer := self._timed.pop(root, None)) is not None:
                timer.cancel()
            metrics.BARRIER_WAIT.observe(self._clock() - call.since)
            metrics.BARRIER_HELD.set(len(self.waiting))
        return error

    def _mark(self, pod: core.Pod | None) -> None:
        """Tell the leader, who may be another replica, of a call for a pod that still says ``Unschedulable``.

        Else it would release the pod, for kube-scheduler does not take that word back when it finds a place. The mark
        is written again while the call is held; one that is not was left by a barrier that has died.
        """
        if pod is None or not podstate.counts(pod) or not podstate.unschedulable(pod):
            return
        uid = pod.metadata.uid
        if says_arrived(pod) and uid in self._marked:
            return
        if uid not in self._marked:
            self._marked[uid] = asyncio.get_running_loop().call_later(RENEW, self._renew, uid)
        self._spawn(self._writer.wake(pod, f"{pod.metadata.resource_version}{ARRIVED}"))

    def _renew(self, uid: str) -> None:
        del self._marked[uid]
        if uid in self.waiting:
            self._mark(self._cache.index.pod(uid))

    def _unmark(self, pod: core.Pod | None) -> None:
        """The pod's call has failed. A mark that stays behind keeps the leader's doubts away, not the pin's time-out."""
        if pod is not None and podstate.counts(pod) and pod.spec.node_name is None and says_arrived(pod):
            self._spawn(self._writer.wake(pod, f"{pod.metadata.resource_version}{LEFT}"))

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
            self._spawn(self._go(pod, podstate.pinned(pod) or ""))

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
                self._spawn(self._writer.release(pod, RELEASE_CONFLICT))

    def _failing(self, pods: Sequence[core.Pod]) -> list[tuple[core.Pod, str]]:
        """Pods that could not go to their node now, each judged without those already found."""
        failing: list[tuple[core.Pod, str]] = []
        for pod in pods:
            node = podstate.pinned(pod)
            if node is None:
                continue
            # A Binding that is under way for one that was released takes its room.
            gone = (each for each in leaving(self._cache, node) if each.metadata.uid not in self._going)
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
            self._spawn(self._writer.release(pod, release_reason(each)))

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
            error = await self._send(pod, node)
        finally:
            self._going.discard(pod.metadata.uid)
        # The call that waits now may be newer than the one that was released; the answer holds for both.
        latest = self.waiting.get(pod.metadata.uid)
        if latest is not None:
            self._answer(latest, error)

    async def _send(self, pod: core.Pod, node: str) -> str:
        meta = pod.metadata
        for attempt in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._client.bind(meta.namespace, meta.name, meta.uid, node)
            except NotFound:
                return "the pod is gone"
            except KubeError as error:
                try:
                    latest = await self._writer.read(pod)
                except KubeError:
                    latest = pod
                if latest is None:
                    return "the pod is gone"
                if latest.spec.node_name == node:
                    return ""
                if latest.spec.node_name or isinstance(error, Conflict | Invalid):
                    return f"the Binding was refused: {error}"
                log.warning("binding failed", namespace=meta.namespace, pod=meta.name, error=str(error))
            else:
                return ""
            if attempt + 1 < ATTEMPTS:
                await self._sleep(FIRST_WAIT * 2**attempt)
        return "the API server did not take the Binding"

    def _seen(self, pod: core.Pod, gone: bool) -> None:  # noqa: FBT001 - the listener's signature
        call = self.waiting.get(pod.metadata.uid)
        if call is None:
            return
        if gone:
            self._answer(call, "the pod is gone")
        else:
            self._mark(pod)

    def _answer(self, call: Call, error: str) -> None:
        self.waiting.leave(call)
        answer = self._answers.pop(call, None)
        if answer is not None and not answer.done():
            answer.set_result(error)

    def _spawn(self, work: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _success_if_bound(pod: core.Pod, node: str, why: str) -> str:
    if pod.spec.node_name is None:
        return why
    return "" if pod.spec.node_name == node else f"it is bound to node {pod.spec.node_name}"
