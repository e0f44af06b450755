"""Pods that the guard refused sleep until something happens to them; this wakes those that can go now.

kube-scheduler does not learn that the guard has changed its mind. Touching one pod's annotation wakes that pod alone
within milliseconds; touching a node would wake all refused pods at once, and a herd of them slows every gang down. So
when reserved room comes free on a node, as many of the refused as fit there are touched, a few each second. Refused
pods that are alike are looked at once. Gangs that were refused are activated by the scheduling queue (``queue``).

Who was refused is noted in memory and may be lost: kube-scheduler looks at every refused pod every five minutes.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from covey.api import core
from covey.placement.model import Shape
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.writer import PodWriter

#: Seconds between two touches.
PACE: Final = 0.05
#: The longest refused are forgotten beyond this number.
MOST: Final = 10_000
#: Kinds of refused pods that are looked at when room comes free on one node; where there are more, they take turns.
LOOKS: Final = 256
#: Seconds until the watch must have shown a pod for which a filter call came.
UNSEEN: Final = 60.0
#: Pods of one kind that are looked at on one node, more than fit on any.
_SAMPLE: Final = 256

#: What decides where an ordinary pod may go: its shape, and its priority.
_Kind = tuple[Shape, int]


class Waker:
    """Remembers refused strangers, oldest first, and touches those for which there is room again."""

    def __init__(
        self, cache: Cache, writer: PodWriter, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._sleep = sleep
        #: By UID, the longest refused first.
        self._refused: dict[str, core.Pod] = {}
        self._alike: dict[_Kind, dict[str, core.Pod]] = {}
        self._noted: dict[str, tuple[int, _Kind]] = {}
        self._due: asyncio.Queue[core.Pod] = asyncio.Queue()
        self._mark = itertools.count(1)
        cache.subscribe(Listener(room=self._room, pod=self._pod, gone=self._on_pod_deleted))

    def note_refusal(self, pod: core.Pod) -> None:
        """Note a stranger that was left without a node."""
        uid = pod.metadata.uid
        if uid not in self._refused and self._cache.index.pod(uid) is None:
            # Either the watch is behind kube-scheduler's, or the pod is gone, and no event will come for it.
            asyncio.get_running_loop().call_later(UNSEEN, self._look_again, uid)
        self._forget(uid)
        kind = self._cache.capacity.shape(pod), pod.spec.priority or 0
        self._refused[uid] = pod
        self._alike.setdefault(kind, {})[uid] = pod
        self._noted[uid] = next(self._mark), kind
        if len(self._refused) > MOST:
            self._forget(next(iter(self._refused)))

    def _forget(self, uid: str) -> None:
        if self._refused.pop(uid, None) is None:
            return
        _, kind = self._noted.pop(uid)
        alike = self._alike[kind]
        del alike[uid]
        if not alike:
            del self._alike[kind]

    def _look_again(self, uid: str) -> None:
        if self._cache.index.pod(uid) is None:
            self._forget(uid)

    async def run(self) -> None:
        """Touch pods for ever."""
        while True:
            pod = await self._due.get()
            await self._writer.wake(pod, f"{pod.metadata.resource_version}.{next(self._mark)}")
            await self._sleep(PACE)

    def _room(self, node: str) -> None:
        if not self._refused:
            return
        free = dict(self._cache.capacity.room.free(node))
        going = {kind: self._going(kind, node) for kind in self._turns()}
        # The longest refused of each kind, among all kinds the longest refused first: room only grows less meanwhile.
        heads = [head for kind in going if (head := self._head(going, kind)) is not None]
        heapq.heapify(heads)
        while heads:
            _, uid, kind = heapq.heappop(heads)
            if any(amount > free.get(name, 0) for name, amount in kind[0].requests):
                continue
            for name, amount in kind[0].requests:
                free[name] -= amount
            self._due.put_nowait(self._refused[uid])
            self._forget(uid)
            if (head := self._head(going, kind)) is not None:
                heapq.heappush(heads, head)

    def _turns(self) -> list[_Kind]:
        """The kinds to look at this time."""
        kinds = list(itertools.islice(self._alike, LOOKS))
        if len(self._alike) > LOOKS:
            for kind in kinds:
                self._alike[kind] = self._alike.pop(kind)
        return kinds

    def _going(self, kind: _Kind, node: str) -> Iterator[str]:
        """The pods of a kind that the node would take, the longest refused first.

        They are one as good as the other, but where anti-affinity looks at their labels.
        """
        capacity = self._cache.capacity
        for pod in list(itertools.islice(self._alike[kind].values(), _SAMPLE)):
            why = capacity.refusal(pod, node) or capacity.reserved_away(pod, node, kind[0])
            if why is None:
                yield pod.metadata.uid
            elif "anti-affinity" not in why:
                return

    def _head(self, going: Mapping[_Kind, Iterator[str]], kind: _Kind) -> tuple[int, str, _Kind] | None:
        uid = next(going[kind], None)
        return None if uid is None else (self._noted[uid][0], uid, kind)

    def _pod(self, pod: core.Pod) -> None:
        if pod.spec.node_name is not None:
            self._on_pod_deleted(pod)

    def _on_pod_deleted(self, pod: core.Pod) -> None:
        self._forget(pod.metadata.uid)
