"""Refusals of pods that kube-scheduler must not schedule now: the same for guard and barrier. Pure.

kube-scheduler retries a failed pod for ever, so a pod whose pin was undone, or that is being deleted, is refused until
it is gone. A pod that only claims to be a member (the label, but another owner) is nobody's member and is told so; a
member that pins itself, and so skips the queue, is told too.
"""

from __future__ import annotations

from collections.abc import Collection

from covey.admission import podstate
from covey.api import core
from covey.api.constants import LABEL_POD_GROUP


def refusal_of_stranger(pod: core.Pod, node: str, served: Collection[str]) -> str | None:
    """The reason for which a pod of no group must not be bound through us; None when it may, or is bound there already.

    Args:
        pod: the pod as last seen.
        node: the node it is about to be bound to.
        served: the profiles (``spec.schedulerName``) of the kube-scheduler that calls.
    """
    if pod.spec.node_name is not None:
        return None if pod.spec.node_name == node else f"it is bound to node {pod.spec.node_name}"
    if pod.spec.scheduler_name not in served:
        names = ", ".join(sorted(served))
        return f"it is for scheduler {pod.spec.scheduler_name}; served are {names} (--scheduler-name names more)"
    if podstate.dying(pod):
        return "it is being deleted"
    if core.is_terminal(pod):
        return "it has ended"
    gates = core.gates(pod)
    return f"it is held by the scheduling gate {min(gates)}" if gates else None


def refusal(pod: core.Pod, leaf: core.Group | None, node: str | None = None) -> str | None:
    """The reason for which a pod with a group's label must not be scheduled now; None when it may go to its pinned node.

    Args:
        pod: the pod as last seen.
        leaf: the PodGroup that its label names, if it exists.
        node: the node it is about to be bound to, if that is asked.
    """
    name = pod.metadata.label(LABEL_POD_GROUP)
    if leaf is None:
        return f"its PodGroup {name} does not exist"
    if not podstate.is_member(pod, leaf):
        return f"it carries the label of PodGroup {name}, but is not owned by that group's owner"
    if podstate.dying(pod):
        return "it is being deleted"
    if podstate.released(pod):
        return "its place was given up; it waits to be replaced"
    if core.is_terminal(pod):
        return "it has ended"
    pin = podstate.pinned(pod)
    if pin is None and not podstate.gated(pod):
        return "its gang has not been admitted, and it has no scheduling gate: delete it, to be created again gated"
    if pin is None:
        return "its gang has not been admitted"
    if node is not None and node != pin:
        return f"it was placed on node {pin}, not on {node}"
    return None
