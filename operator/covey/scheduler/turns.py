"""Turns on the event loop and at the API server, and the label of the replica that answers.

Long work on the event loop, in pieces: everybody else gets a turn every few milliseconds.

Those who share one breath work by turns: in one round of the loop one of them works, however many there are.

The rank of a request at the API server (``kube.turns``).

The label by which a Service finds the one replica that answers: the holder of the lease puts it on its own pod.

Readiness cannot tell it: a replica that waits for the lease would never be ready, and a rolling update, which waits for
the new replica before it ends the old one, would never end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from covey.api import core
from covey.api.constants import EXTENDER_ACTIVE, LABEL_EXTENDER
from covey.kube.client import Client
from covey.kube.errors import KubeError, NotFound
from covey.kube.resources import PODS
from covey.kube.turns import Rank
from covey.observability.logging import get_logger
from covey.placement.model import Gang
from covey.scheduler.cache import Cache

log = get_logger(__name__)

#: Seconds of work after which others get their turn.
BREATH: Final = 0.004


class Breath:
    """The rest of the present turn of its sharers.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = clock()
        self._next = asyncio.Lock()

    def begin(self) -> None:
        """Others have just had their turn."""
        self._begun = self._clock()

    async def take(self) -> None:
        """Let others have their turn, if it is time."""
        if self._clock() - self._begun > BREATH:
            async with self._next:
                await asyncio.sleep(0)
                self._begun = self._clock()


#: Seconds between two looks at our own pod, and between two attempts to change it.
INTERVAL: Final = 5.0


class NotLeadingError(Exception):
    """The call is for a member, and another replica holds the calls of its gang."""


class ActiveLabel:
    """The label on our own pod."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        namespace: str,
        name: str,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._cache = cache
        self._namespace = namespace
        self._name = name
        self._sleep = sleep

    async def keep(self) -> None:
        """Have the label, for ever: it is put back when somebody takes it off."""
        while True:
            pod = self._cache.pods.store.get((self._namespace, self._name))
            if pod is None or pod.metadata.label(LABEL_EXTENDER) != EXTENDER_ACTIVE:
                await self._write(EXTENDER_ACTIVE)
            await self._sleep(INTERVAL)

    async def clear(self) -> None:
        """Take off what an earlier process of this pod may have left; returns when it is off."""
        while not await self._write(None):
            await self._sleep(INTERVAL)

    async def _write(self, value: str | None) -> bool:
        """False when it should be tried again. A pod that does not exist has no label."""
        body = {"metadata": {"labels": {LABEL_EXTENDER: value}}}
        try:
            await self._client.merge_patch(PODS, self._name, self._namespace, body, type=core.Pod)
        except KubeError as error:
            log.warning("own pod not labelled", namespace=self._namespace, pod=self._name, error=str(error))
            return isinstance(error, NotFound)
        return True


#: What frees room for others, what keeps a pod from being given up, and decisions in the order of their gangs.
RELEASE: Rank = (0,)
MARK: Rank = (1,)
_PIN = 2


def rank_of(gang: Gang, *, surplus: bool = False) -> Rank:
    """The rank of a gang's pins: by priority, in it every minimum before all surplus, then by age."""
    order = gang.order
    return (_PIN, order[0], int(surplus), *order[1:])
