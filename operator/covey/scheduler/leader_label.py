"""The label by which a Service finds the one replica that answers: the holder of the lease puts it on its own pod.

Readiness cannot tell it: a replica that waits for the lease would never be ready, and a rolling update, which waits for
the new replica before it ends the old one, would never end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from covey.api import core
from covey.api.constants import EXTENDER_ACTIVE, LABEL_EXTENDER
from covey.kube.client import Client
from covey.kube.errors import KubeError, NotFound
from covey.kube.resources import PODS
from covey.observability.logging import get_logger
from covey.scheduler.cache import Cache

log = get_logger(__name__)

#: Seconds between two looks at our own pod, and between two attempts to change it.
INTERVAL: Final = 5.0


class NotLeadingError(Exception):
    """The call is for a member, and another replica holds the calls of its gang."""


class LeaderLabel:
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
