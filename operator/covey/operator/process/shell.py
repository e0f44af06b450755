"""Kopf within the operator's process; what it does there is in ``handlers``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import kopf

from covey.kube.connection import Connection
from covey.operator.observe.topologies import Topologies
from covey.operator.process.handlers import REGISTRY, Memo

#: Any, since kopf does not export the type.
_IDENTITY: Any = "covey-operator"


class Shell:
    """An embedded kopf operator.

    Args:
        connection: to the API server.
        namespaces: where people's resources are; empty means everywhere.
        topologies: what is to be read when people change it.
        end: ends the process.
    """

    def __init__(
        self,
        connection: Connection,
        namespaces: Sequence[str],
        topologies: Topologies,
        end: Callable[[], object],
    ) -> None:
        self._memo = Memo(connection, topologies, end)
        self._namespaces = namespaces
        #: Set once kopf has started; it has taken over the signals of the process by then.
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set (or a signal has reached kopf instead)."""
        # Every event would be logged, on its own logger, beside what reconcile says.
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        await kopf.operator(
            registry=REGISTRY,
            # Only peering uses it, and that is off. kopf would ask for the name of the user, who has none in a container.
            identity=_IDENTITY,
            memo=self._memo,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=tuple(self._namespaces),
            stop_flag=stop,
            ready_flag=self.ready,
        )
