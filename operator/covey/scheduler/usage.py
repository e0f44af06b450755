"""Writes what of each Queue is used, borrowed, lent and waited for into its status, and shows it as metrics.

The holder of the lease does so, at a bounded pace and only where something differs. Nothing reads it back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from covey.admission.ledger import Pool
from covey.api import core
from covey.api.constants import MANAGER_SCHEDULER, SCHEDULING_API
from covey.api.core import rfc3339
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, KubeError, NotFound
from covey.kube.resources import QUEUES
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.placement.cluster import resources
from covey.scheduler.context import Context
from covey.scheduler.quotas import Quotas

log = get_logger(__name__)

#: Seconds in which changes are gathered, and after which ages are told anew.
PACE: Final = 1.0
REST: Final = 15.0
#: Queues that metrics show; the first by name where there are more.
SHOWN: Final = 100
_KINDS: Final = ("nominal", "used", "borrowed", "lent", "waiting")

Usage = Mapping[str, Mapping[str, int]]


def usage_of(quotas: Quotas, name: str) -> Usage:
    """Usage by resource, over all flavors: nominal, used, borrowed, lent, waiting."""
    ledger, waiting = quotas.ledger, Counter[Pool]()
    for wish in quotas.wishes.get(name, {}).values():
        waiting.update(wish.amounts)
    found: dict[str, Counter[str]] = {}
    for pool, grant in ledger.policies[name].grants.items():
        found.setdefault(pool.resource, Counter()).update(
            nominal=grant.nominal,
            used=ledger.use_of(name, pool),
            borrowed=ledger.excess_of(name, pool),
            lent=ledger.lent(name, pool),
            waiting=waiting[pool],
        )
    return {resource: found[resource] for resource in sorted(found, key=resources.rank)}


def oldest_wish(quotas: Quotas, name: str) -> float | None:
    """Since when the minimum has waited that has done so for longest, of those that fit into what is left of nominal."""
    left = quotas.ledger.nominal_left(name, minimums=True)
    since = (
        wish.since
        for wish in quotas.wishes.get(name, {}).values()
        if wish.since is not None and all(amount <= left.get(pool, 0) for pool, amount in wish.amounts.items())
    )
    return min(since, default=None)


def status_of(quotas: Quotas, queue: core.Queue, now: str) -> dict[str, Any]:
    """The whole status of a queue."""
    usage, generation = usage_of(quotas, queue.metadata.name), queue.metadata.generation

    def text(kind: str) -> str:
        return ",".join(resources.text(name, each[kind]) for name, each in usage.items())

    nominal = (
        f"{resources.text(name, each['used'])}/{resources.text(name, each['nominal'])}" for name, each in usage.items()
    )
    said = {"resources": ",".join(usage), "used": ",".join(nominal)} | {kind: text(kind) for kind in _KINDS[2:]}
    return {
        "observedGeneration": generation,
        "resources": [
            {"name": name} | {kind: _amount(name, each[kind]) for kind in _KINDS} for name, each in usage.items()
        ],
        "summary": said,
        "conditions": core.stamp_conditions(
            _conditions(quotas, queue.metadata.name), _dump_status(queue), generation, now
        ),
    }


def _amount(name: str, value: int) -> str | int:
    return value if resources.is_extended(name) else resources.text(name, value)


def _conditions(quotas: Quotas, name: str) -> Iterator[dict[str, Any]]:
    over = {pool.resource for pool, amount in quotas.ledger.room(name).items() if amount < 0}
    yield {
        "type": "WithinLimits",
        "status": "False" if over else "True",
        "reason": "TooMuchUsed" if over else "WithinLimits",
        "message": f"more {', '.join(sorted(over))} is used than the queue, or its cohort, may have; nothing is evicted for"
        " that, and nothing more is admitted"
        if over
        else "no more is used than the queue may have",
    }
    free, nodes = quotas.count_free_nodes(name)
    yield {
        "type": "AllNodesCounted",
        "status": "False" if free else "True",
        "reason": "NodesOutside" if free else "AllNodesCounted",
        "message": f"{free} of {nodes} nodes belong to no flavor, and what lies there is not counted"
        if free
        else f"all {nodes} nodes belong to a flavor",
    }


class UsageWriter:
    """Keeps the status of all queues, and their metrics."""

    def __init__(self, context: Context, quotas: Quotas) -> None:
        self._cache = context.cache
        self._client = context.client
        self._leads = context.leads
        self._clock = context.clock
        self._quotas = quotas
        self._news = asyncio.Event()
        self._written: dict[str, dict[str, Any]] = {}
        quotas.on_change(self._news.set)
        context.cache.queues.on_served(self._note_served)

    async def run(self, settled: Callable[[], Awaitable[object]]) -> None:
        """Write for ever; ``settled`` returns when every unit has been looked at once."""
        self._note_served()
        await settled()
        while True:
            self._news.clear()
            await self.write()
            with suppress(TimeoutError):
                async with asyncio.timeout(REST):
                    await self._news.wait()
            await self._clock.sleep(PACE)

    async def write(self) -> None:
        """Write the status of queues for which it differs from what it was, and renew the metrics.

        Nothing while units are to be charged anew, since queues have changed: that would be news of nothing.
        """
        if not self._quotas.is_counted():
            return
        self._show()
        queues = dict(self._quotas.ledger.policies)
        self._written = {name: each for name, each in self._written.items() if name in queues}
        for name in queues:
            queue = self._cache.queues.store.get(("", name))
            if queue is not None and name in self._quotas.ledger.policies and self._leads():
                await self._apply(queue, status_of(self._quotas, queue, rfc3339(self._clock.wall())))

    async def _apply(self, queue: core.Queue, status: dict[str, Any]) -> None:
        name = queue.metadata.name
        if self._written.get(name) == status or status == _dump_status(queue):
            return
        body = {"apiVersion": SCHEDULING_API, "kind": "Queue", "metadata": {"name": name}, "status": status}
        try:
            await self._client.apply(QUEUES, body, manager=MANAGER_SCHEDULER, subresource="status", type=Ignored)
        except (NotFound, Conflict):
            return
        except KubeError as error:
            log.warning("usage not written", queue=name, error=str(error))
            return
        self._written[name] = status

    def _show(self) -> None:
        for kind in _KINDS:
            metrics.QUEUE_AMOUNTS[kind].clear()
        metrics.QUEUE_OLDEST.clear()
        for name in sorted(self._quotas.ledger.policies)[:SHOWN]:
            for resource, amounts in usage_of(self._quotas, name).items():
                scale = 1000 if resource == resources.CPU else 1
                for kind in _KINDS:
                    metrics.QUEUE_AMOUNTS[kind].labels(name, resource).set(amounts[kind] / scale)
            since = oldest_wish(self._quotas, name)
            metrics.QUEUE_OLDEST.labels(name).set(max(0.0, self._clock.wall() - since) if since is not None else 0.0)

    def _note_served(self) -> None:
        served = self._cache.queues.served
        metrics.QUEUES_SERVED.set(int(served))
        if not served:
            log.warning(
                "no queues: the API server does not know the kind; quota is not counted until its CRD is applied"
            )


def _dump_status(queue: core.Queue) -> dict[str, Any]:
    """The status that a queue has, in the form in which it is written; its summary follows from the rest."""
    status = queue.status
    return {
        "observedGeneration": status.observed_generation,
        "resources": [
            {"name": each.name} | {kind: getattr(each, kind) for kind in _KINDS} for each in status.resources or ()
        ],
        "summary": msgspec.structs.asdict(status.summary) if status.summary else None,
        "conditions": core.dump_conditions(status.conditions),
    }
