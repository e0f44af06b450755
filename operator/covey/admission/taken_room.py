"""Room that bound, pinned and nominated pods take: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from covey.admission.nodes import counted_spec
from covey.admission.volumes import Volumes
from covey.api import core
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Shape


def counted_shape(pod: core.Pod, volumes: Volumes | None = None) -> Shape:
    """A pod's shape with all that counts: resizes under way, and where its volumes are, as far as they are known."""
    spec = counted_spec(pod)
    if volumes is not None:
        spec = volumes.confine_to_volumes(pod, spec)
    return shape_of(pod if spec is pod.spec else replace(pod, spec=spec))


def hold_all(inventory: Inventory, pods: Iterable[core.Pod], shape: Callable[[core.Pod], Shape]) -> None:
    """Count what bound, pinned and nominated pods hold; a pod that comes twice holds once."""
    for pod in pods:
        node = podstate.holding(pod) or podstate.nominated_node(pod)
        if node is not None:
            inventory.hold(pod.metadata.uid, node, shape(pod), pod.metadata)
