"""Kopf within the operator's process: it runs as long as the process does, whatever it stumbles over.

Kopf's own ``kopf.operator()`` ends all tasks of the event loop with itself, reconciles under way included, and takes
the signals of the process. Its parts do not: ``spawn_tasks`` starts it, and to end it is to cancel what that has
started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import kopf

from covey.kube.client import Client
from covey.kube.connection import Connection
from covey.kube.errors import Forbidden, KubeError, NotFound
from covey.observability.logging import get_logger
from covey.observability.operator_metrics import KOPF_RESTARTS
from covey.operator.handlers import REGISTRY, Memo
from covey.operator.observe.caches import Caches
from covey.operator.observe.informer import Informer

_log = get_logger(__name__)

#: Any, since Kopf does not export the type. Only peering uses it, and that is off; Kopf would ask for the name of the
#: user, who has none in a container.
_IDENTITY: Any = "covey-operator"
#: Seconds before Kopf is started again, and between two looks for a kind that is not served.
_PAUSE: Final = 0.5
_LOOK: Final = 1.0


class KopfRunner:
    """Kopf, started again whenever it ends.

    Args:
        client: to the API server.
        connection: what Kopf logs in with.
        namespaces: where people's resources are; empty means everywhere.
        caches: the stores that its handlers fill.
        take_signals: takes the signals of the process back from Kopf.
    """

    def __init__(
        self,
        client: Client,
        connection: Connection,
        namespaces: Sequence[str],
        caches: Caches,
        take_signals: Callable[[], None],
    ) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self._caches = caches
        self._memo = Memo(connection, caches)
        self._take_signals = take_signals

    async def run(self) -> None:
        """Run until cancelled."""
        # Every event would be logged, on its own logger, in addition to what reconcile says.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        while True:
            self._caches.deaf.clear()
            absent = await self._find_absent()
            cause = await self._watch_kinds(absent)
            KOPF_RESTARTS.labels(cause).inc()
            await asyncio.sleep(_PAUSE)

    async def _watch_kinds(self, absent: Sequence[Informer[Any]]) -> str:
        """Run Kopf until it ends, or has to be started again; returns why."""
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
        deaf = asyncio.create_task(self._caches.deaf.wait())
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
        error = next((found for task in done if not task.cancelled() and (found := task.exception())), None)
        _log.error("kopf has ended and is started again", exc_info=error)
        return "failed"

    async def _find_absent(self) -> list[Informer[Any]]:
        """Look which kinds the API server does not serve: Kopf looks once, when it starts."""
        absent = []
        for informer in self._caches.informers:
            if await self._is_served(informer):
                continue
            _log.warning("resource is not served", resource=informer.resource)
            informer.lose()
            absent.append(informer)
        return absent

    async def _await_served(self, absent: Sequence[Informer[Any]]) -> None:
        """Wait until a kind is served that was not."""
        if not absent:
            await asyncio.Event().wait()
        while True:
            for informer in absent:
                if await self._is_served(informer):
                    return
            await asyncio.sleep(_LOOK)

    async def _is_served(self, informer: Informer[Any]) -> bool:
        scope = informer.scopes[0] or None
        while True:
            try:
                await self._client.probe(informer.kind, scope)
            except NotFound:
                informer.note_contact()
                return False
            except Forbidden:
                # Kopf tries for ever; what a role lacks may be granted.
                return True
            except KubeError as error:
                _log.warning("contact lost", resource=informer.resource, error=str(error))
                await asyncio.sleep(_PAUSE)
            else:
                return True


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
