"""Sends Bindings, and finds out what became of them.

The Binding carries the pod's UID, else a new pod of the same name would land on the old one's node. A 409 may be our
own success whose answer was lost: the pod is read, and this incarnation on this node is success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.observability.logging import get_logger
from covey.scheduler.writer import PodWriter

log = get_logger(__name__)


#: Attempts at one Binding and the seconds before the second; the wait doubles. About 13 s in all.
ATTEMPTS: Final = 7
FIRST_WAIT: Final = 0.2


class Bindings:
    """Binds one pod after the other, or ``in_flight`` of them at the same time.

    Args:
        client: sends the Bindings.
        writer: reads the pod again when the answer leaves a doubt.
        in_flight: how many are under way at most.
        sleep: waits between two attempts.
    """

    def __init__(
        self,
        client: Client,
        writer: PodWriter,
        *,
        in_flight: int = 64,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self.writer = writer
        self._slots = asyncio.Semaphore(in_flight)
        self._sleep = sleep

    async def send(self, pod: core.Pod, node: str) -> str:
        """Bind a pod to a node. Returns an error text, or nothing."""
        meta = pod.metadata
        for attempt in range(ATTEMPTS):
            try:
                async with self._slots:
                    await self._client.bind(meta.namespace, meta.name, meta.uid, node)
            except NotFound:
                return "the pod is gone"
            except KubeError as error:
                answer = await self._judge(pod, node, error)
                if answer is not None:
                    return answer
                log.warning("binding failed", namespace=meta.namespace, pod=meta.name, error=str(error))
            else:
                return ""
            if attempt + 1 < ATTEMPTS:
                await self._sleep(FIRST_WAIT * 2**attempt)
        return "the API server did not take the Binding"

    async def _judge(self, pod: core.Pod, node: str, error: KubeError) -> str | None:
        """Judge a failure by the pod as it is now; None when it is worth another attempt."""
        try:
            latest = await self.writer.read(pod)
        except KubeError:
            latest = pod
        if latest is None:
            return "the pod is gone"
        if latest.spec.node_name == node:
            return ""
        if latest.spec.node_name or isinstance(error, Conflict | Invalid):
            return f"the Binding was refused: {error}"
        return None
