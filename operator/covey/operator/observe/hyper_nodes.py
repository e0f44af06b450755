"""Volcano's HyperNodes, watched only where the backend Volcano is enabled: resources name levels, Volcano tiers."""

from __future__ import annotations

from collections.abc import Callable

from covey.api import core
from covey.backends import HyperNodes
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import HYPER_NODES
from covey.kube.watch import DELETED, EventType


class Domains:
    """A copy of all HyperNodes; none where the cluster does not know the kind.

    Args:
        client: to the API server.
        on_change: called when levels may have become other tiers.
        clock: the time.
    """

    def __init__(self, client: Client, on_change: Callable[[], None], clock: Clock) -> None:
        self.reflector: Reflector[core.HyperNode] = Reflector(client, HYPER_NODES, core.HyperNode, clock=clock)
        self._on_change = on_change
        self._found: HyperNodes | None = None
        self.reflector.subscribe(self._on_event)

    @property
    def found(self) -> HyperNodes:
        """The HyperNodes that there are, read again only when one has changed."""
        if self._found is None:
            self._found = HyperNodes(self.reflector.store.values())
        return self._found

    def _on_event(self, kind: EventType, hyper_node: core.HyperNode, before: core.HyperNode | None) -> None:
        # Volcano counts nodes in their status.
        if kind == DELETED or before is None or before.spec != hyper_node.spec:
            self._found = None
            self._on_change()
