"""Kopf within the operator's process: it runs as long as the process does, whatever it stumbles over.

Kopf's own ``kopf.operator()`` ends all tasks of the event loop with itself, reconciles under way included, and takes
the signals of the process. Its parts do not: ``spawn_tasks`` starts it, and to end it is to cancel what that has
started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import kopf

from covey.kube.connection import Connection
from covey.observability.logging import get_logger
from covey.observability.operator_metrics import KOPF_RESTARTS
from covey.operator.handlers import REGISTRY, Memo
from covey.operator.observe.caches import Caches
from covey.operator.observe.triggered import Triggered

_log = get_logger(__name__)

#: Any, since Kopf does not export the type. Only peering uses it, and that is off; Kopf would ask for the name of the
#: user, who has none in a container.
_IDENTITY: Any = "covey-operator"
#: Seconds before Kopf is started again.
_PAUSE: Final = 0.5
#: Seconds between two looks for objects that Kopf has not told of, and how many looks in a row may find one. They are
#: counted, not timed: a process that was stopped for minutes has not been deaf.
_LOOK: Final = 10.0
_LOOKS: Final = 6


class KopfRunner:
    """Kopf, started again whenever it ends.

    Args:
        connection: what Kopf logs in with.
        namespaces: where people's resources are; empty means everywhere.
        caches: the stores whose objects its handlers open.
        take_signals: takes the signals of the process back from Kopf.
    """

    def __init__(
        self, connection: Connection, namespaces: Sequence[str], caches: Caches, take_signals: Callable[[], None]
    ) -> None:
        self._namespaces = tuple(namespaces)
        self._kinds = caches.triggered
        self._memo = Memo(connection, caches, self._namespaces)
        self._take_signals = take_signals
        #: Set when the API server begins, or ceases, to serve a kind.
        self._changed = asyncio.Event()
        for kind in self._kinds:
            kind.on_served(self._changed.set)

    async def run(self) -> None:
        """Run until cancelled."""
        # Every event would be logged, on its own logger, in addition to what reconcile says.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        while True:
            for kind in self._kinds:
                await kind.settle()
            KOPF_RESTARTS.labels(await self._watch_kinds()).inc()
            await asyncio.sleep(_PAUSE)

    async def _watch_kinds(self) -> str:
        """Run Kopf until it ends, or has to be started again; returns why."""
        absent = [kind for kind in self._kinds if not kind.served]
        kopf_tasks = await kopf.spawn_tasks(
            registry=REGISTRY,
            identity=_IDENTITY,
            memo=self._memo,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
        )
        self._take_signals()
        served = asyncio.create_task(self._await_served(absent))
        deaf = asyncio.create_task(self._await_deafness())
        try:
            done, _ = await asyncio.wait({*kopf_tasks, served, deaf}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel([*kopf_tasks, served, deaf])
            # A watcher that fails leaves the others of its operator behind; each ends what it has begun itself.
            await _cancel([task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")])
            # Kopf closes a session that it has used, and none of an operator that was still starting.
            while self._memo.sessions:
                await self._memo.sessions.pop().close()
        if deaf in done:
            return "deaf"
        if served in done:
            return "served"
        error = next((raised for task in done if not task.cancelled() and (raised := task.exception())), None)
        _log.error("kopf has ended and is started again", exc_info=error)
        return "failed"

    async def _await_served(self, absent: Sequence[Triggered[Any]]) -> None:
        """Wait until a kind is served that was not: Kopf looks once, when it starts."""
        while not any(kind.served for kind in absent):
            self._changed.clear()
            await self._changed.wait()

    async def _await_deafness(self) -> None:
        """Wait until there is an object that Kopf does not tell of."""
        looks: dict[str, int] = {}
        while max(looks.values(), default=0) < _LOOKS:
            await asyncio.sleep(_LOOK)
            looks = {uid: looks.get(uid, 0) + 1 for uid in chain.from_iterable(kind.untold for kind in self._kinds)}
        keys = [kind.untold[uid] for kind in self._kinds for uid in kind.untold]
        _log.error("kopf does not tell of objects that there are, and is started again", keys=keys[:10])


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
