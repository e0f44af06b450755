"""Kopf around DisaggregatedInference: an event puts the key of a resource into the queue, and that is all.

Kopf brings its watch, its login cycle and its life cycle for the few objects that people write. Nothing is decided
in its handlers: they are edge-triggered and miss deletions that fall into a re-list, so reconcile reads the reflector.
It writes nothing either: no handler here makes it leave finalizers, annotations or Events behind. Its connection is
Covey's own, with the same credentials and their renewal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
import kopf

from covey.api import constants as names
from covey.kube import resources
from covey.kube.connection import Connection

_FINALIZER = f"{names.INFERENCE_GROUP}/never-set"
#: Any, since kopf does not export the type.
_IDENTITY: Any = "covey-operator"


class Shell:
    """An embedded kopf operator.

    Args:
        connection: to the API server.
        namespaces: where to watch; empty means everywhere.
        enqueue: takes (namespace, name).
    """

    def __init__(
        self, connection: Connection, namespaces: Sequence[str], enqueue: Callable[[tuple[str, str]], None]
    ) -> None:
        self._connection = connection
        self._namespaces = namespaces
        self._enqueue = enqueue
        #: Set once kopf has started; it has taken over the signals of the process by then.
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set (or a signal has reached kopf instead)."""
        # Every event of a resource would be logged, on its own logger, beside what reconcile says.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            standalone=True,
            # Only peering uses it, and that is off. kopf would ask for the name of the user, who has none in a container.
            identity=_IDENTITY,
            clusterwide=not self._namespaces,
            namespaces=tuple(self._namespaces),
            stop_flag=stop,
            ready_flag=self.ready,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        watched = resources.DISAGGREGATED_INFERENCES

        async def login(**_: Any) -> kopf.AiohttpSession:
            return self._session()

        async def enqueue(namespace: str | None, name: str | None, **_: Any) -> None:
            self._enqueue((namespace or "", name or ""))

        kopf.on.login(registry=registry)(login)
        kopf.on.event(watched.group, watched.version, watched.plural, registry=registry)(enqueue)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.networking.request_timeout = 30
        settings.networking.connect_timeout = 5
        settings.watching.server_timeout = 300
        settings.watching.connect_timeout = 10
        settings.watching.reconnect_backoff = 1
        settings.persistence.finalizer = _FINALIZER
        settings.execution.max_workers = 1
        # The process ends itself in time; kopf must not kill it.
        settings.process.ultimate_exiting_timeout = None
        return settings

    def _session(self) -> kopf.AiohttpSession:
        credentials = self._connection.credentials

        async def authorize(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            header = await credentials.header()
            if header:
                request.headers["Authorization"] = header
            return await handler(request)

        tls = self._connection.tls
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True),
            headers={"User-Agent": "covey-operator (kopf)"},
            middlewares=(authorize,),
        )
        return kopf.AiohttpSession(
            server=self._connection.server, aiohttp_session=session, default_namespace=self._connection.namespace
        )
