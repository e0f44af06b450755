"""The limit on pods that are on their way to the barrier: no more minimums are pinned than it can hold bind calls for.

Two gangs whose pins fill it between them would each wait for the other. So a minimum is planned only when all pods that
are pinned and not bound yet, and its own, can be held. Once half is in use a namespace has a share: a quarter, or one
gang of any size. Behind a gang that waits for room others go while half stays free, so that smaller ones do not pass it
for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from covey.admission.entries import Entry, Want
from covey.admission.order import Order
from covey.admission.tree import Key
from covey.api import core
from covey.api.constants import GATE_START
from covey.placement.model import Gang
from covey.scheduler.barrier import MAX_HELD
from covey.scheduler.cache import Cache, Listener

#: Seconds in which pods that were bound, or given up, are gathered before those that wait for it are looked at.
GATHER: Final = 0.25


class Intake:
    """Counts the pins that will become bind calls.

    Args:
        cache: the pods.
        mark: is told of a unit that is to be looked at again.
        most: bind calls that the barrier holds.
    """

    def __init__(self, cache: Cache, mark: Callable[[Key], None], most: int = MAX_HELD) -> None:
        self._cache = cache
        self._mark = mark
        self._most = most
        #: Units that wait for others to be bound, and the place in line of those that do so whatever their namespace has.
        self._held: dict[Key, Order | None] = {}
        self._timer: asyncio.TimerHandle | None = None
        cache.subscribe(Listener(pod=self._changed, gone=self._changed))

    def refusal(self, entry: Entry) -> str | None:
        """The reason for which the barrier has no room for a unit; None when it has. The unit is looked at again when it may."""
        self._held.pop(entry.unit.key, None)
        return self._refusal(entry)

    def _refusal(self, entry: Entry) -> str | None:
        assert entry.gang is not None
        more = _pods_of_minimum(entry.gang) if entry.want is Want.MINIMUM else 0
        if more > self._most:
            return f"its minimum has {more} pods to be placed, and the barrier holds at most {self._most} at one time"
        if len(self._cache.capacity.pins) + more <= self._most // 2:
            return None
        pinned = self._pinned()
        total, own = pinned.total(), pinned[entry.unit.key.namespace]
        if entry.want is not Want.MINIMUM:
            room, share = total < self._most, True
        else:
            passes = any(order is not None and order < entry.order for order in self._held.values())
            half = total + more <= self._most // 2
            room = total + more <= self._most and (half or not passes)
            share = half or not own or own + more <= self._most // 4
        if room and share:
            return None
        self._held[entry.unit.key] = entry.order if not room else None
        held = f"{total} pods that are pinned are not bound yet, {own} of them of its namespace"
        return f"waits for others to be bound: {held}; the barrier holds {self._most} at one time"

    def _pinned(self) -> Counter[str]:
        """Pods that have their place and are not bound, and may be: by namespace."""
        pods = (self._cache.index.pod(uid) for uid in self._cache.capacity.pins)
        return Counter(pod.metadata.namespace for pod in pods if pod is not None and GATE_START not in core.gates(pod))

    def _changed(self, _pod: core.Pod) -> None:
        if self._held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._again)

    def _again(self) -> None:
        self._timer = None
        held, self._held = self._held, {}
        for root in held:
            self._mark(root)


def _pods_of_minimum(gang: Gang) -> int:
    """Pods without a node that the minimum needs at least."""
    found = 0
    for role in gang.roles:
        lacking = sorted(sum(pod.node is None for pod in replica.pods) for replica in role.replicas)
        found += sum(lacking[: role.minimum])
    return found
