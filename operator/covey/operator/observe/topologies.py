"""The cluster's ClusterTopologies: few, written rarely, read whole whenever kopf tells of a change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import KubeError
from covey.kube.resources import CLUSTER_TOPOLOGIES
from covey.observability.logging import get_logger

_log = get_logger(__name__)

#: Seconds after which they are read without being told: kopf misses a deletion while its watch is broken.
_RESYNC: Final = 600.0
#: Seconds before the second attempt to read them, doubled for each further one, and the longest.
_FIRST_DELAY: Final = 0.5
_LONGEST_DELAY: Final = 30.0


class Topologies:
    """A copy of all ClusterTopologies.

    Args:
        client: to the API server.
        on_change: called when the copy has become another.
    """

    def __init__(self, client: Client, on_change: Callable[[], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._stale = asyncio.Event()
        #: Set once they have been read.
        self.synced = asyncio.Event()
        self.found: tuple[core.ClusterTopology, ...] = ()

    def stale(self) -> None:
        """Something about them has changed."""
        self._stale.set()

    async def run(self) -> None:
        """Read them whenever they are stale, until cancelled."""
        delay = _FIRST_DELAY
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stale.wait(), _RESYNC)
            self._stale.clear()
            try:
                await self._read()
                delay = _FIRST_DELAY
            except KubeError as error:
                _log.warning("topologies not read", error=str(error), delay=delay)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
                self._stale.set()

    async def _read(self) -> None:
        items, _ = await self._client.list(CLUSTER_TOPOLOGIES, type=core.ClusterTopology)
        known, self.found = self.found, tuple(items)
        self.synced.set()
        if known != self.found:
            self._on_change()
