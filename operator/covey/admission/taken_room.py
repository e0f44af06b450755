"""Room that a pod takes: pure."""

from __future__ import annotations

from msgspec.structs import replace

from covey.admission.nodes import counted_spec
from covey.admission.volumes import Volumes
from covey.api import core
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Shape


def counted_shape(pod: core.Pod, volumes: Volumes | None = None) -> Shape:
    """A pod's shape with all that counts: resizes under way, and where its volumes are, as far as they are known."""
    spec = counted_spec(pod)
    if volumes is not None:
        spec = volumes.confine_to_volumes(pod, spec)
    return shape_of(pod if spec is pod.spec else replace(pod, spec=spec))
