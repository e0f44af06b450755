"""Pods that the guard refused sleep until something happens to them; this wakes those that can go now.

kube-scheduler does not learn that the guard has changed its mind. Touching one pod's annotation wakes that pod alone
within milliseconds; touching a node would wake all refused pods at once, and a herd of them slows every gang down. So
when reserved room comes free on a node, as many of the refused as fit there are touched, a few each second.

Who was refused is noted in memory and may be lost: kube-scheduler looks at every refused pod every five minutes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

from covey.api import core
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.writer import PodWriter

#: Seconds between two touches.
PACE: Final = 0.05
#: The longest refused are forgotten beyond this number.
MOST: Final = 10_000
#: Seconds until the watch must have shown a pod for which a filter call came.
UNSEEN: Final = 60.0


class Waker:
    """Remembers refused strangers, oldest first, and touches those for which there is room again."""

    def __init__(
        self, cache: Cache, writer: PodWriter, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._sleep = sleep
        self._refused: dict[str, core.Pod] = {}
        self._due: asyncio.Queue[core.Pod] = asyncio.Queue()
        self._mark = itertools.count(1)
        cache.subscribe(Listener(room=self._room, pod=self._pod, gone=self._gone))

    def refused(self, pod: core.Pod) -> None:
        """Note a stranger that was left without a node."""
        uid = pod.metadata.uid
        if uid not in self._refused and self._cache.index.pod(uid) is None:
            # Either the watch is behind kube-scheduler's, or the pod is gone, and no event will come for it.
            asyncio.get_running_loop().call_later(UNSEEN, self._look_again, uid)
        self._refused.pop(uid, None)
        self._refused[uid] = pod
        if len(self._refused) > MOST:
            del self._refused[next(iter(self._refused))]

    def _look_again(self, uid: str) -> None:
        if self._cache.index.pod(uid) is None:
            self._refused.pop(uid, None)

    async def run(self) -> None:
        """Touch pods for ever."""
        while True:
            pod = await self._due.get()
            await self._writer.wake(pod, f"{pod.metadata.resource_version}.{next(self._mark)}")
            await self._sleep(PACE)

    def _room(self, node: str) -> None:
        if not self._refused:
            return
        capacity = self._cache.capacity
        free = dict(capacity.room.free(node))
        for uid, pod in list(self._refused.items()):
            shape = capacity.shape(pod)
            if capacity.refusal(pod, node) is not None or capacity.reserved_away(pod, node, shape) is not None:
                continue
            if any(amount > free.get(name, 0) for name, amount in shape.requests):
                continue
            for name, amount in shape.requests:
                free[name] -= amount
            del self._refused[uid]
            self._due.put_nowait(pod)

    def _pod(self, pod: core.Pod) -> None:
        if pod.spec.node_name is not None:
            self._gone(pod)

    def _gone(self, pod: core.Pod) -> None:
        self._refused.pop(pod.metadata.uid, None)
