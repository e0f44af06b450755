"""The capacity that pods take of nodes, as the planner counts it: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from covey.admission import podstate
from covey.admission.resized import counted_spec
from covey.admission.volumes import Volumes
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Shape


def counted_shape(pod: core.Pod, volumes: Volumes | None = None) -> Shape:
    """A pod's shape with all that counts: resizes under way, and where its volumes are, as far as they are known."""
    spec = counted_spec(pod)
    if volumes is not None:
        spec = volumes.confined(pod, spec)
    return shape_of(pod if spec is pod.spec else replace(pod, spec=spec))


def hold_all(inventory: Inventory, pods: Iterable[core.Pod], shape: Callable[[core.Pod], Shape]) -> None:
    """Count what bound and pinned pods hold; a pod that comes twice holds once."""
    for pod in pods:
        node = podstate.holding(pod)
        if node is not None:
            inventory.hold(pod.metadata.uid, node, shape(pod), pod.metadata)
