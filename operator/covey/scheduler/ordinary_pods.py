"""Bindings of pods of no group: sent at once, for nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from covey.admission.obstacles import refusal_of_stranger
from covey.api import core
from covey.scheduler.background_tasks import Tasks
from covey.scheduler.bindings import Bindings
from covey.scheduler.cache import Cache

#: Seconds until the watch must have shown a pod that was bound before it did.
UNSEEN: Final = 60.0


class Strangers:
    """Binds pods of no group.

    Args:
        cache: what is known.
        bindings: sends the Bindings.
        served: the profiles whose pods may be bound.
        sleep: waits for a pod that the watch has not shown.
    """

    def __init__(
        self,
        cache: Cache,
        bindings: Bindings,
        served: Collection[str],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._bindings = bindings
        self._served = frozenset(served)
        self._sleep = sleep
        self._tasks = Tasks()

    async def bind(self, pod: core.Pod, node: str) -> str:
        """Bind at once, unless it may not be bound here, or a plan made since the guard's answer keeps the room."""
        why = refusal_of_stranger(pod, node, self._served)
        if why is None and self._cache.node(node) is None:
            why = f"there is no node {node}"
        why = why or self._cache.capacity.reserved_away(pod, node)
        if why is not None or pod.spec.node_name == node:
            return why or ""
        self._cache.assume(pod, node)
        # Like a gang's: once it is sent, its outcome matters also when the caller has hung up.
        return await asyncio.shield(self._tasks.start(self._place(pod, node)))

    async def _place(self, pod: core.Pod, node: str) -> str:
        """Bind a pod for which the node was assumed."""
        error = "the Binding was broken off"
        try:
            error = await self._bindings.send(pod, node)
        finally:
            uid = pod.metadata.uid
            if error and self._cache.capacity.assumed.get(uid) == node:  # and no newer call has taken another
                self._cache.unassume(uid)
        if self._cache.index.pod(uid) is None:
            self._tasks.start(self._confirm(uid))
        return error

    async def _confirm(self, uid: str) -> None:
        """A pod that the watch has not shown yet was bound; if it never does, the pod was gone before it could."""
        await self._sleep(UNSEEN)
        if self._cache.index.pod(uid) is None and uid in self._cache.capacity.assumed:
            self._cache.unassume(uid)
