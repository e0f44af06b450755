"""The limit on pods that are on their way to the barrier: no more minimums are pinned than it can hold bind calls for.

Two gangs whose pins fill it between them would each wait for the other. So a minimum is planned only when all pods that
are pinned and not bound yet, and its own, can be held. Once half is in use a namespace has a share: a quarter, or one
gang of any size. Behind a gang that waits for room others go while half stays free, so that smaller ones do not pass it
for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from covey.admission.entry import QueueStage
from covey.admission.nodes import Key
from covey.admission.order import Order
from covey.api import core
from covey.api.constants import GATE_START, REASON_WAITING
from covey.placement.model import Gang
from covey.scheduler.barrier import MAX_HELD
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.plugin import CycleState, Plugin, Rejection

#: Seconds in which pods that were bound, or given up, are gathered before those that wait for it are looked at.
GATHER: Final = 0.25


class Intake(Plugin):
    """Counts the pins that will become bind calls.

    Args:
        cache: the pods.
        most: bind calls that the barrier holds.
    """

    def __init__(self, cache: Cache, most: int = MAX_HELD) -> None:
        self._cache = cache
        self.most = most
        #: Units that wait for others to be bound, and the place in line of those that do so whatever their namespace has.
        self._held: dict[Key, Order | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        cache.subscribe(Listener(pod=self._on_pod, gone=self._on_pod))

    def pre_filter(self, state: CycleState) -> Rejection | None:
        """Refuse a unit while the barrier has no room for its pods; it is looked at again when it may have."""
        self._held.pop(state.root, None)
        entry = state.entry
        assert entry.gang is not None, "it is active"
        more = _pods_of_minimum(entry.gang) if entry.stage is QueueStage.MINIMUM else 0
        if more > self.most:
            full = f"its minimum has {more} pods to be placed, and the barrier holds at most {self.most} at one time"
            return Rejection(REASON_WAITING, full, passes=True)
        if len(self._cache.capacity.pins) + more <= self.most // 2:
            return None
        pinned = self._count_pinned()
        total, own = pinned.total(), pinned[entry.unit.key.namespace]
        if entry.stage is not QueueStage.MINIMUM:
            room, share = total < self.most, True
        else:
            passes = any(order is not None and order < entry.order for order in self._held.values())
            half = total + more <= self.most // 2
            room = total + more <= self.most and (half or not passes)
            share = half or not own or own + more <= self.most // 4
        if room and share:
            return None
        self._held[entry.unit.key] = entry.order if not room else None
        pinned_pods = f"{total} pods that are pinned are not bound yet, {own} of them of its namespace"
        full = f"waits for others to be bound: {pinned_pods}; the barrier holds {self.most} at one time"
        return Rejection(REASON_WAITING, full, passes=True)

    def _count_pinned(self) -> Counter[str]:
        """Pods that have their place and are not bound, and may be: by namespace."""
        pods = (self._cache.index.pod(uid) for uid in self._cache.capacity.pins)
        return Counter(pod.metadata.namespace for pod in pods if pod is not None and GATE_START not in core.gates(pod))

    def _on_pod(self, _pod: core.Pod) -> None:
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._requeue)

    def _requeue(self) -> None:
        self._timer = None
        held, self._held = self._held, {}
        for root in held:
            self.handle.queue.requeue(root)


def _pods_of_minimum(gang: Gang) -> int:
    """Pods without a node that the minimum needs at least."""
    found = 0
    for role in gang.roles:
        lacking = sorted(sum(pod.node is None for pod in replica.pods) for replica in role.replicas)
        found += sum(lacking[: role.minimum])
    return found
