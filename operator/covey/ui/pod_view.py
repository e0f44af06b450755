"""Pods as a view shows them."""

from __future__ import annotations

from covey.admission.nodes import number
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.model import podstate
from covey.placement.cluster.resources import pod_requests
from covey.ui import contract
from covey.ui.topology_view import ViewLayout
from covey.watching.status_tree import TreeState, pod_state


def gang_of(thing: core.Pod | core.Group) -> str | None:
    """The ``namespace/name`` of the resource that owns a pod or a group; None for one of others."""
    owner = thing.metadata.controller
    if owner is None or (owner.kind, owner.api_version) != (DISAGGREGATED_INFERENCES.kind, names.INFERENCE_API):
        return None
    return f"{thing.metadata.namespace}/{owner.name}"


def small(count: int) -> int:
    """A number as a browser can have it: labels are anybody's, and may hold sixty digits."""
    return min(count, 2**53 - 1)


def draw_pod(pod: core.Pod, gang: str, layout: ViewLayout) -> contract.PodView:
    """A pod of a gang."""
    meta = pod.metadata
    state, reason = (
        pod_state(pod) if not core.is_terminal(pod) else (TreeState.FAILED, f"it has ended ({pod.status.phase})")
    )
    return contract.PodView(
        gang,
        small(number(meta.label(names.LABEL_UNIT))),
        meta.label(names.LABEL_ROLE) or "",
        small(number(meta.label(names.LABEL_REPLICA))),
        small(number(meta.label(names.LABEL_INDEX))),
        podstate.holding(pod),
        layout.cells(pod_requests(pod).get(layout.resource, 0)),
        state.value,
        reason,
        podstate.is_terminating(pod) or meta.label(names.LABEL_DRAINING) == "true",
        meta.label(names.LABEL_REVISION) or "",
    )
