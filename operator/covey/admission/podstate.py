"""The meaning of one pod's fields to the scheduler. Pure.

Only this module of ``admission`` and ``scheduler`` interprets them. State is ``spec.nodeName``,
``spec.schedulingGates`` and the pin, never the ``PodScheduled`` condition: it still says ``SchedulingGated`` while a
bind is held, and can say ``SchedulerError`` on a pod that is bound. It is read for one thing only, ``unschedulable`` and
``scheduler_error``, which start a check and are no state.

Refusals of pods that kube-scheduler must not schedule now: the same for guard and barrier. Pure.

kube-scheduler retries a failed pod for ever, so a pod whose pin was undone, or that is being deleted, is refused until
it is gone. A pod that only claims to be a member (the label, but another owner) is nobody's member and is told so; a
member that pins itself, and so skips the queue, is told too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from covey.api import core
from covey.api.constants import (
    ANNOTATION_CLAIMED_BY,
    ANNOTATION_DRAIN_UNTIL,
    ANNOTATION_PINNED,
    ANNOTATION_RELEASE,
    GATE_GANG,
    GATE_START,
    LABEL_POD_GROUP,
    RESOURCE_MEMBER,
)
from covey.placement.cluster.claims import Ask, find_held, unmade_claims

_OUR_GATES = frozenset({GATE_GANG, GATE_START})


def holding(pod: core.Pod) -> str | None:
    """The node whose capacity a pod holds now, if any, by its own word (``Index.holding`` asks for its group too).

    A bound pod holds until it has ended or is gone, also while it terminates. An unbound pod holds where it is pinned:
    so a reservation outlives every process. A pod whose release was asked for still holds, until it is gone: a Binding
    for it may be under way somewhere.
    """
    if core.is_terminal(pod):
        return None
    return pod.spec.node_name or pinned_node(pod)


def nominated_node(pod: core.Pod) -> str | None:
    """The node where kube-scheduler has made room, or is about to, for a pod of nobody's gang that is not bound.

    It evicts first and binds seconds later. A gang that took that room in between would let it evict for the same pod
    again and again, and kube-scheduler would refuse the gang itself where the pod's priority is higher.
    """
    if core.is_terminal(pod) or dying(pod) or claims_membership(pod):
        return None
    return pod.status.nominated_node_name or None


def bound(pod: core.Pod) -> bool:
    """The pod has its node and has not ended."""
    return pod.spec.node_name is not None and not core.is_terminal(pod)


def dying(pod: core.Pod) -> bool:
    """The pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def drains_until(pod: core.Pod) -> float | None:
    """Time by which a pod that drains goes, in seconds since the epoch; None where it does not drain."""
    return core.seconds(pod.metadata.annotation(ANNOTATION_DRAIN_UNTIL))


def gives_way(pod: core.Pod) -> bool:
    """The pod is marked to give way to a gang, whether the claim stands still or not; whoever is pardoned has no mark."""
    return pod.metadata.annotation(ANNOTATION_CLAIMED_BY) is not None


def is_released(pod: core.Pod) -> bool:
    """The pod's pin was undone: it must be deleted and created again before it can be planned."""
    return pod.metadata.annotation(ANNOTATION_RELEASE) is not None and pod.spec.node_name is None


def counts(pod: core.Pod) -> bool:
    """The pod can stand for its place in the gang: it has not ended, is not being deleted, and keeps its pin."""
    return not (core.is_terminal(pod) or dying(pod) or is_released(pod))


def is_gated(pod: core.Pod) -> bool:
    """Our gang gate still holds the pod: nothing was decided for it yet, or the decision was not written."""
    return any(gate.name == GATE_GANG for gate in pod.spec.scheduling_gates or ())


def pinned_node(pod: core.Pod) -> str | None:
    """The node that the scheduler process has pinned an unbound member to, by the pod's own word.

    Node affinity by ``metadata.name`` alone is no pin: a DaemonSet's pods have it, and anybody may write it. A pin
    carries the mark that ``pin`` writes beside it, the pod's own UID. The affinity of a pod without gates cannot be
    changed any more, so the mark stands for the node too. Whether the pod's group exists, and has the same owner, only
    ``Index`` can tell.

    Left to the admission policy: whoever may patch pods can write the mark on a pod of theirs, and lift its gate.
    """
    if pod.spec.node_name is not None or is_gated(pod) or not claims_membership(pod):
        return None
    if pod.metadata.annotation(ANNOTATION_PINNED) != pod.metadata.uid:
        return None
    return core.pinned_node(pod)


def is_placed(pod: core.Pod) -> bool:
    """The pod has its node, written on it: bound or pinned."""
    return bound(pod) or pinned_node(pod) is not None


def place_of(pod: core.Pod, assumed: Mapping[str, str]) -> str | None:
    """The node that a pod is bound to, pinned to, or was decided for."""
    return pod.spec.node_name or pinned_node(pod) or assumed.get(pod.metadata.uid)


def find_yielding(
    pod: core.Pod, asks: Collection[Ask], claims: Mapping[tuple[str, str], core.ResourceClaim]
) -> Collection[Ask]:
    """Find which of a pod's asks for devices must refuse nobody else: what it has by now, and all of a pod of no gang."""
    return find_held(pod, asks, claims) if claims_membership(pod) else asks


def waits_for_start(pod: core.Pod) -> bool:
    """The pod is pinned and only our start gate keeps it from kube-scheduler: it counts as arrived."""
    return core.gates(pod) == {GATE_START} and pinned_node(pod) is not None


def claims_membership(pod: core.Pod) -> bool:
    """The pod carries the label of a group. Whether it is a member depends on the group's owner too."""
    return pod.metadata.label(LABEL_POD_GROUP) is not None


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


def members(group: core.Group, pods: Iterable[core.Pod]) -> Iterator[core.Pod]:
    """The pods that belong to a group: their label names it, in its namespace, and its controlling owner is theirs.

    With ``membership: Namespace`` pods of any owner do.
    """
    name, namespace, theirs = group.metadata.name, group.metadata.namespace, group.metadata.controller
    owner, anybodys = theirs.uid if theirs else None, group.spec.membership == "Namespace"
    for pod in pods:
        meta = pod.metadata
        mine = meta.controller
        if (
            meta.namespace == namespace
            and (anybodys or (mine.uid if mine else None) == owner)
            and meta.label(LABEL_POD_GROUP) == name
        ):
            yield pod


def is_member(pod: core.Pod, group: core.Group) -> bool:
    """A pod belongs to a group (``members``)."""
    return any(True for _ in members(group, (pod,)))


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
    for each in unmade_claims(pod) if pod.spec.resource_claims else ():
        claim = f"the claim {each['name']} of pod {name}"
        return f"{claim} was not made yet (spec.resourceClaims): see its ResourceClaimTemplate"
    return None


def unschedulable(pod: core.Pod) -> str | None:
    """The words of kube-scheduler when it last found no place for the pod; a trigger to look, never state."""
    found = core.condition(pod.status.conditions, "PodScheduled")
    if found is None or found.status != "False" or found.reason != "Unschedulable":
        return None
    return found.message or found.reason


def scheduler_error(pod: core.Pod) -> str | None:
    """The words of kube-scheduler when it last failed at the pod, no matter on which node: a trigger like ``unschedulable``.

    None where it failed to reach an extender, which says nothing of the pod.
    """
    found = core.condition(pod.status.conditions, "PodScheduled")
    if found is None or found.status != "False" or found.reason != "SchedulerError":
        return None
    unreached = found.message.startswith('Post "') or " with extender at URL " in found.message
    return None if unreached else found.message or found.reason


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
    if dying(pod):
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
    if dying(pod):
        return "it is being deleted"
    if is_released(pod):
        return "its place was given up; it waits to be replaced"
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
