"""Reasons for which a pod must not be planned, scheduled or bound now: the same for planner, guard and barrier. Pure.

kube-scheduler retries a failed pod for ever, so a pod whose pin was undone, or that is being deleted, is refused until
it is gone. A pod that only claims to be a member (the label, but another owner) is nobody's member and is told so; a
member that pins itself, and so skips the queue, is told too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from covey.api import core
from covey.api.constants import GATE_GANG, GATE_START, LABEL_POD_GROUP, RESOURCE_MEMBER
from covey.model.podstate import claims_membership, is_gated, is_member, is_released, is_terminating, pinned_node
from covey.placement.cluster.device_claims import DeviceAsk, find_held, unmade_claims

_OUR_GATES = frozenset({GATE_GANG, GATE_START})


def find_yielding(
    pod: core.Pod, asks: Collection[DeviceAsk], claims: Mapping[tuple[str, str], core.ResourceClaim]
) -> Collection[DeviceAsk]:
    """Find which of a pod's asks for devices must refuse nobody else: what it has by now, and all of a pod of no gang."""
    return find_held(pod, asks, claims) if claims_membership(pod) else asks


def foreign_gates(pod: core.Pod) -> frozenset[str]:
    """The gates of a pod that others have to lift: until then no scheduler looks at it."""
    return frozenset(core.gates(pod)) - _OUR_GATES


def is_marked(pod: core.Pod) -> bool:
    """Tell whether a kube-scheduler that asks for bindings of marked pods only (``managedResources``) asks for this one."""
    return any(
        RESOURCE_MEMBER in amounts
        for container in chain(pod.spec.containers, pod.spec.init_containers or ())
        if container.resources is not None
        for amounts in (container.resources.limits, container.resources.requests)
        if amounts
    )


def obstacle(pod: core.Pod, served: Collection[str] = (), *, marked: bool = False) -> str | None:
    """The reason for which an unbound pod must not be planned; None when it may be.

    A pin cannot be taken back, not even while another gate is left, so a pod that somebody else still holds, or that
    names a node itself, is left alone.

    Args:
        pod: an unbound pod.
        served: the profiles whose kube-scheduler asks Covey; nothing is said of the pod's where there are none.
        marked: whether that kube-scheduler asks for the bindings of marked pods only (``is_marked``): it would bind
            any other one by one.
    """
    name = pod.metadata.name
    if served and pod.spec.scheduler_name not in served:
        names = ", ".join(sorted(served))
        return f"pod {name} is for scheduler {pod.spec.scheduler_name}; served are {names} (spec.schedulerName)"
    if marked and not is_marked(pod):
        return f"pod {name} has no limit {RESOURCE_MEMBER}, by which its binding is held; it has to be created again"
    if foreign := foreign_gates(pod):
        return f"pod {name} is held by the scheduling gate {min(foreign)}"
    if not is_gated(pod):
        return f"pod {name} lost its scheduling gate without a decision; delete it"
    if any(True for _ in _named_nodes(pod)):
        return f"pod {name} names a node itself in its node affinity (metadata.name)"
    terms = _required_terms(pod)
    if terms and not any(term.match_expressions or term.match_fields for term in terms):
        return f"pod {name} has only empty node affinity terms, which match no node"
    # kube-scheduler would not take the pod.
    for unmade in unmade_claims(pod) if pod.spec.resource_claims else ():
        claim = f"the claim {unmade['name']} of pod {name}"
        return f"{claim} was not made yet (spec.resourceClaims): see its ResourceClaimTemplate"
    return None


def _required_terms(pod: core.Pod) -> tuple[core.NodeSelectorTerm, ...]:
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    return required.node_selector_terms if required else ()


def _named_nodes(pod: core.Pod) -> Iterator[core.Requirement]:
    for term in _required_terms(pod):
        yield from (
            field for field in term.match_fields or () if field.key == "metadata.name" and field.operator == "In"
        )


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
    if is_terminating(pod):
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
    if not is_member(pod, leaf):
        return f"it carries the label of PodGroup {name}, but is not owned by that group's owner"
    if is_terminating(pod):
        return "it is being deleted"
    if is_released(pod):
        return "its node was given up; it waits to be replaced"
    if core.is_terminal(pod):
        return "it has ended"
    pin = pinned_node(pod)
    if pin is None and not is_gated(pod):
        return "its gang has not been admitted, and it has no scheduling gate: delete it, to be created again gated"
    if pin is None:
        return "its gang has not been admitted"
    if node is not None and node != pin:
        return f"it was placed on node {pin}, not on {node}"
    return None
