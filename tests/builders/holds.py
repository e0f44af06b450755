"""Room that pods take of an inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from covey.api import core
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Shape


def hold_all(inventory: Inventory, pods: Iterable[core.Pod], shape: Callable[[core.Pod], Shape]) -> None:
    """Count what bound, pinned and nominated pods hold; a pod that comes twice holds once."""
    for pod in pods:
        node = podstate.holding(pod) or podstate.nominated_node(pod)
        if node is not None:
            inventory.hold(pod.metadata.uid, node, shape(pod), pod.metadata)
