"""Binding without kube-scheduler: for pods of a scheduler name that no kube-scheduler serves (``--direct-scheduler-name``).

The holder of the lease makes the bind call itself that kube-scheduler would make, as soon as it sees that a pod was let
go; the barrier holds and checks it like any other. What that saves is kube-scheduler's own work for each pod, two calls
to the extender and an Event. What it costs is kube-scheduler's second opinion: so a pod with a constraint that only
kube-scheduler knows is not planned under this name.

Nothing is remembered: a successor finds the pods that are pinned and not bound, and calls for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from covey.admission import podstate
from covey.api import core
from covey.observability.logging import get_logger
from covey.placement.cluster.shape import unmodelled_constraints
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import Tasks
from covey.scheduler.cache import Cache, Listener
from covey.scheduler.guard import BindArgs
from covey.scheduler.turns import NotLeadingError

log = get_logger(__name__)

#: Seconds until a refused call is made again; the wait doubles (``podInitialBackoffSeconds``, ``podMaxBackoffSeconds``).
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 10.0


class DirectBinding:
    """Calls the barrier for pods of one scheduler name.

    Args:
        cache: the pods.
        binder: the barrier.
        name: the scheduler name; empty for none.
        leads: whether this process holds the lease.
        sleep: waits between two calls for one pod.
    """

    def __init__(
        self,
        cache: Cache,
        binder: Binder,
        name: str,
        *,
        leads: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cache = cache
        self._binder = binder
        self._name = name
        self._leads = leads
        self._sleep = sleep
        #: UIDs of the pods with a call under way.
        self._calling: set[str] = set()
        self._tasks = Tasks()
        self._begun = False
        if name:
            cache.subscribe(Listener(pod=self._look))

    def begin(self) -> None:
        """Call for every pod that waits, and for those that come."""
        self._begun = True
        for pod in list(self._cache.index.pods()) if self._name else ():
            self._look(pod)

    def obstacle(self, pod: core.Pod) -> str | None:
        """The reason for which a pod must not be planned under this name; None when it may be, or has another name."""
        if not self._name or pod.spec.scheduler_name != self._name:
            return None
        lacking = unmodelled_constraints(pod, volumes_settled=self._cache.volumes.are_claims_bound(pod))
        lacking += ("resourceClaims",) if pod.spec.resource_claims else ()
        allocated = filter(self._cache.devices.counts.is_served, dict(self._cache.capacity.shape(pod).requests))
        lacking += tuple(f"{resource} of a DeviceClass" for resource in allocated)
        if not lacking:
            return None
        why = f"pod {pod.metadata.name} has {lacking[0]}, which only kube-scheduler knows"
        return f"{why}, and scheduler {self._name} is none: name another (spec.schedulerName)"

    def _look(self, pod: core.Pod) -> None:
        if self._begun and pod.metadata.uid not in self._calling and self._is_due(pod):
            self._calling.add(pod.metadata.uid)
            self._tasks.start(self._call(pod))

    def _is_due(self, pod: core.Pod) -> bool:
        """The pod was let go, nothing holds it, and it is not bound."""
        return (
            pod.spec.scheduler_name == self._name
            and podstate.counts(pod)
            and podstate.pinned_node(pod) is not None
            and not core.gates(pod)
        )

    async def _call(self, pod: core.Pod | None) -> None:
        """Call until the pod is bound, or may not be any more."""
        assert pod is not None
        meta, wait = pod.metadata, FIRST_WAIT
        try:
            while pod is not None and self._is_due(pod) and self._leads():
                node = podstate.pinned_node(pod) or ""
                why = await self._binder.bind(BindArgs(meta.name, meta.namespace, node, meta.uid))
                if not why:
                    return
                log.info("bind refused", namespace=meta.namespace, pod=meta.name, node=node, why=why)
                await self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                pod = self._cache.index.pod(meta.uid)
        except NotLeadingError:
            return
        finally:
            self._calling.discard(meta.uid)
