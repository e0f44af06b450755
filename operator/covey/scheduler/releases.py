"""Undoes pins that cannot become bindings, so that the pods are recreated gated and planned again.

A pin cannot be taken back; the pod must go. This writes the release annotation, from which on guard and barrier refuse
the pod, and the operator replaces it. The rest of the gang stays where it is.

* The node is gone, cordoned, not ready, tainted, or its room was taken by somebody else: found from the cache, at the
  event, for every reservation on that node. Where room is short the least important pods go.
* kube-scheduler says ``Unschedulable`` although the node fits by all that Covey models: after a short while, in which
  kube-scheduler is made to look again, the node is left out for that gang for a time. Its word stays on the pod when
  it has changed its mind; then the barrier that holds the call says so (``writer.says_arrived``), again and again: a
  mark that is not renewed was left by a barrier that is gone.
* kube-scheduler says ``SchedulerError``, and fails at the pod once more: no node is left out, for it would fail at each,
  but the gang rests for a time.
* Its group, one of Kubernetes' own, is being deleted, which waits for its pods, as they wait for it.
* Time is up (``pin_deadlines``), unless kube-scheduler is away (``kube_scheduler_presence``).

Only the holder of the lease runs this; the barrier releases by itself what fails its last check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from covey.admission import native, pin_deadlines
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import (
    ANNOTATION_WAKE,
    RELEASE_GROUP_DELETED,
    RELEASE_TIMEOUT,
    RELEASE_UNSCHEDULABLE,
)
from covey.kube.queue import WorkQueue, run_workers
from covey.model import podstate
from covey.scheduler.barrier import release_reason
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.kube_scheduler_presence import QUIET, Callers
from covey.scheduler.surroundings import root_priority
from covey.scheduler.writer import RENEW, says_arrived

#: Seconds that kube-scheduler has to change its mind about a pod that fits by our model.
DOUBT: Final = 5.0
#: The same where it failed: it tries again after a back-off, of ten seconds by default.
RETRY: Final = 4 * DOUBT
#: Seconds in which a unit's events are gathered: its times are looked at, which are never so exact.
GATHER: Final = 0.5
#: Seconds for which a mark is believed that nobody renews.
TRUST: Final = 3 * RENEW
WORKERS: Final = 4

#: ``("node", name)``, ``("unit", kind, namespace, name)`` or ``("pod", uid)``.
_Item = tuple[str, ...]


class Releases:
    """Watches over unbound pins."""

    def __init__(
        self,
        context: Context,
        *,
        exclude: Callable[[Unit, str | None, str], None],
        arrived: Callable[[str], bool],
        callers: Callers | None = None,
    ) -> None:
        self._cache = context.cache
        self._writer = context.writer
        self._exclude = exclude
        self._arrived = arrived
        self._callers = callers or Callers(clock=context.clock.monotonic)
        self._clock = context.clock
        self._queue: WorkQueue[_Item] = WorkQueue("releases", clock=context.clock.monotonic)
        self._pinned_at: dict[str, float] = {}
        self._admitted_at: dict[Key, float] = {}
        self._torn: dict[Key, float] = {}
        self._doubted: dict[str, float] = {}
        #: UID → the mark of another replica's barrier as last seen, and since when.
        self._marks: dict[str, tuple[str, float]] = {}
        self._running = False
        self._fair_loop = context.fair_loop
        self._cache.subscribe(
            Listener(unit=self._unit, status=self._unit, node=self._node, pod=self._pod, gone=self._on_pod_deleted)
        )

    async def run(self, decided: Callable[[], Awaitable[object]] | None = None) -> None:
        """Watch for ever. Pins that are there already are judged by their gang's admission time.

        ``decided`` returns when every unit has been looked at for the first time: that comes before.
        """
        if decided is not None:
            await decided()
        self._running = True
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(self._queue, self._work, WORKERS))
            await self._look_at_all()

    async def _look_at_all(self) -> None:
        now = self._clock.monotonic()
        for root in self._cache.index.roots():
            unit = self._cache.index.unit(root)
            if unit is not None:
                for uid, since in pin_deadlines.found_pinned(unit, now, self._clock.wall()).items():
                    self._pinned_at.setdefault(uid, since)
                admitted = pin_deadlines.found_admitted(unit, now, self._clock.wall())
                if admitted is not None:
                    self._admitted_at.setdefault(root, admitted)
            self._queue.add(("unit", *root))
            await self._fair_loop.share()
        for node in list(self._cache.capacity.reserved):
            self._queue.add(("node", node))
        for pod in list(self._cache.index.pods()):
            self._suspect(pod)
            await self._fair_loop.share()

    def _unit(self, root: Key) -> None:
        if self._running:
            self._queue.add_after(("unit", *root), GATHER)

    def _node(self, name: str) -> None:
        if self._running and name in self._cache.capacity.reserved:
            self._queue.add(("node", name))

    def _on_pod_deleted(self, pod: core.Pod) -> None:
        uid = pod.metadata.uid
        self._pinned_at.pop(uid, None)
        self._doubted.pop(uid, None)
        self._marks.pop(uid, None)

    def _pod(self, pod: core.Pod) -> None:
        if not self._running:
            return
        uid = pod.metadata.uid
        node = self._cache.index.holding(pod)
        held = uid in self._pinned_at
        if held and pod.spec.node_name is not None:
            self._callers.note()
        if self._cache.index.pinned_node(pod) is None or not podstate.counts(pod):
            self._on_pod_deleted(pod)
            self._suspect(pod)
        else:
            if podstate.waits_for_start(pod):
                # Its time begins when its turn comes.
                self._pinned_at.pop(uid, None)
            else:
                self._pinned_at.setdefault(uid, self._clock.monotonic())
            if podstate.scheduling_failure(pod) is None and podstate.scheduler_error(pod) is None:
                self._doubted.pop(uid, None)
            self._suspect(pod)
        # A pin that becomes a binding takes nothing from anybody, unless it was released and given up already.
        if node is not None and not held:
            self._node(node)

    def _suspect(self, pod: core.Pod) -> None:
        refused = podstate.scheduling_failure(pod) or podstate.scheduler_error(pod)
        if (refused and self._cache.index.pinned_node(pod)) or self._is_stranded(pod):
            self._queue.add(("pod", pod.metadata.uid))

    def _is_stranded(self, pod: core.Pod) -> bool:
        """Tell whether a pod is pinned for a native group that is gone, or as good as gone."""
        pinned = podstate.pinned_node(pod) is not None and podstate.counts(pod)
        return pinned and native.is_member(pod) and self._cache.index.root_of_pod(pod) is None

    async def _work(self, item: _Item) -> None:
        await self._fair_loop.share()
        match item:
            case ("node", name):
                await self._check_node(name)
            case ("unit", *root):
                await self._check_unit(Key(*root))
            case ("pod", uid):
                await self._check_pod(uid)
            case _:
                raise AssertionError(item)

    async def _check_node(self, name: str) -> None:
        victims = self.victims(name)
        await asyncio.gather(*(self._writer.release(pod, release_reason(cause)) for pod, cause in victims))

    def victims(self, node: str) -> list[tuple[core.Pod, str]]:
        """The unbound pins on a node that cannot become bindings now, and why; the least important first."""
        capacity = self._cache.capacity
        pods = [pod for uid in capacity.reserved.get(node, ()) if (pod := self._cache.index.pod(uid)) is not None]
        pods = [pod for pod in pods if podstate.counts(pod) and podstate.pinned_node(pod) == node]
        pods.sort(key=lambda pod: (self._priority(pod), pod.spec.priority or 0, _newer_first(pod)))
        gone = self._cache.leaving(node)
        found: list[tuple[core.Pod, str]] = []
        for pod in pods:
            cause = capacity.refusal_in_place(pod, node, [*gone, *(each for each, _ in found)])
            if cause is not None:
                found.append((pod, cause))
        return found

    def _priority(self, pod: core.Pod) -> int:
        """Priority of a pod's gang: the order in which places were given is the order in which they are kept."""
        key = self._cache.index.root_of_pod(pod)
        root = self._cache.index.root(key) if key is not None else None
        return root_priority(self._cache, root) or 0 if root is not None else pod.spec.priority or 0

    async def _check_unit(self, root: Key) -> None:
        unit = self._cache.index.unit(root)
        if unit is None:
            self._torn.pop(root, None)
            self._admitted_at.pop(root, None)
            return
        now = self._clock.monotonic()
        if pin_deadlines.admitted_since(unit) is None:
            self._admitted_at.pop(root, None)
        else:
            self._admitted_at.setdefault(root, now)
        if pin_deadlines.torn(unit):
            self._torn.setdefault(root, now)
        else:
            self._torn.pop(root, None)
        since = (self._admitted_at.get(root), self._torn.get(root), self._callers.back)
        dues = list(pin_deadlines.due(unit, self._pinned_at, *since))
        if self._callers.away:  # who is away may come back to them
            dues = [
                replace(due, when=max(due.when, now + QUIET)) if due.reason == RELEASE_TIMEOUT else due for due in dues
            ]
        late = {due.pod.metadata.uid: due for due in sorted(dues, key=lambda each: -each.when) if due.when <= now}
        await asyncio.gather(*(self._writer.release(due.pod, due.reason) for due in late.values()))
        coming = [due.when - now for due in dues if due.when > now]
        if coming:
            self._queue.add_after(("unit", *root), min(coming) + 0.01)

    async def _check_pod(self, uid: str) -> None:
        pod = self._cache.index.pod(uid)
        if pod is not None and self._is_stranded(pod):
            await self._writer.release(pod, RELEASE_GROUP_DELETED)
            return
        node = self._cache.index.pinned_node(pod) if pod is not None else None
        if pod is None or node is None or not podstate.counts(pod) or self._arrived(uid):
            self._doubted.pop(uid, None)
            return
        if (trusted := self._remaining_trust(pod)) > 0:
            self._doubted.pop(uid, None)
            self._queue.add_after(("pod", uid), trusted)
            return
        refusal, error = podstate.scheduling_failure(pod), podstate.scheduler_error(pod)
        said = refusal or error
        if said is None:
            return
        cause = self._cache.capacity.refusal_in_place(pod, node, self._cache.leaving(node))
        if cause is not None:
            await self._check_node(node)
            return
        now = self._clock.monotonic()
        if refusal is None and self._callers.away:
            self._queue.add_after(("pod", uid), RETRY)
            return
        if uid not in self._doubted:
            self._doubted[uid] = now
            self._queue.add_after(("pod", uid), DOUBT if refusal else RETRY)
            await self._writer.wake(pod, f"{pod.metadata.resource_version}.doubt")
            return
        left = self._doubted[uid] + (DOUBT if refusal else RETRY) - now
        if left > 0:
            self._queue.add_after(("pod", uid), left)
            return
        unit = self._cache.unit_of(pod)
        if unit is not None:
            self._exclude(unit, node if refusal else None, said)
        await self._writer.release(pod, RELEASE_UNSCHEDULABLE)

    def _remaining_trust(self, pod: core.Pod) -> float:
        """Seconds for which another replica's barrier is still believed to hold a call for the pod."""
        uid = pod.metadata.uid
        if not says_arrived(pod):
            self._marks.pop(uid, None)
            return 0.0
        mark, now = pod.metadata.annotation(ANNOTATION_WAKE) or "", self._clock.monotonic()
        known = self._marks.get(uid)
        if known is None or known[0] != mark:
            known = self._marks[uid] = (mark, now)
        return known[1] + TRUST - now


def _newer_first(pod: core.Pod) -> tuple[int, ...]:
    """A sort key that puts the youngest first."""
    return tuple(-ord(letter) for letter in pod.metadata.creation_timestamp)
