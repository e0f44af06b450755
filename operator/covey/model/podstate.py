"""The state of one pod, from the only fields that tell the truth: gates, node, pin, phase, deletion, marks. Pure.

Only here are they interpreted, for both processes. The condition ``PodScheduled`` is no state: it still says
``SchedulingGated`` while a bind is held, and can say ``SchedulerError`` on a pod that is bound. It is read for why a
pod waits, and to start a check (``scheduling_failure``, ``scheduler_error``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from itertools import chain

from covey.api import constants as names
from covey.api import core
from covey.compile.identity import ReplicaKey, slot_of
from covey.compile.restarts import Past
from covey.model.image_update import is_restarted


class Course(Enum):
    """The course of a pod: it stays, drains, goes, or has ended."""

    #: Nobody has said otherwise.
    STAYS = auto()
    #: It is marked: its replica is to go, and never comes back.
    DRAINS = auto()
    #: Its deletion was asked for, by this process (``Observed.pending_deletions``) or as the API server says.
    GOES = auto()
    #: It has ended by itself.
    ENDED = auto()


def course(pod: core.Pod) -> Course:
    """The course of a pod of a snapshot: the one answer for all that ask."""
    if is_terminating(pod):
        return Course.GOES
    if core.is_terminal(pod):
        return Course.ENDED
    return Course.DRAINS if is_draining(pod) else Course.STAYS


def is_terminating(pod: core.Pod) -> bool:
    """Tell whether the deletion of a pod was asked for; it need not be asked for again."""
    return pod.metadata.deletion_timestamp is not None


def is_dead(pod: core.Pod) -> bool:
    """Tell whether a pod has ended, or is about to: its place needs a successor."""
    return is_terminating(pod) or core.is_terminal(pod)


def is_bound(pod: core.Pod) -> bool:
    """Tell whether a pod has a node. One that is dead may still be bound."""
    return bool(pod.spec.node_name)


def is_let_go(pod: core.Pod) -> bool:
    """Tell whether the gang gate does not hold a pod: it has none, or the pod is bound."""
    return is_bound(pod) or names.GATE_GANG not in core.gates(pod)


def is_admitted(pod: core.Pod) -> bool:
    """Tell whether the scheduler has given a pod a node, bound or not.

    Covey's scheduler says so by lifting the gate of its pods. Any other only binds.
    """
    return is_bound(pod) or (is_let_go(pod) and pod.metadata.label(names.LABEL_POD_GROUP) is not None)


def is_in_place(pod: core.Pod) -> bool:
    """Tell whether a pod has its node for good: it is bound, or pinned and held by the start gate.

    One that is pinned and may start is bound in seconds, or gives its pin up.
    """
    return is_bound(pod) or (names.GATE_START in core.gates(pod) and is_admitted(pod))


def is_released(pod: core.Pod) -> bool:
    """Tell whether the pin of a pod must be undone, which only deletion can do."""
    return not is_bound(pod) and pod.metadata.annotation(names.ANNOTATION_RELEASE) is not None


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
    if core.is_terminal(pod) or is_terminating(pod) or claims_membership(pod):
        return None
    return pod.status.nominated_node_name or None


def occupies_node(pod: core.Pod) -> bool:
    """The pod has its node and has not ended."""
    return pod.spec.node_name is not None and not core.is_terminal(pod)


def drains_until(pod: core.Pod) -> float | None:
    """Time by which a pod that drains goes, in seconds since the epoch; None where it does not drain."""
    return core.seconds(pod.metadata.annotation(names.ANNOTATION_DRAIN_UNTIL))


def gives_way(pod: core.Pod) -> bool:
    """The pod is marked to give way to a gang, whether the claim stands still or not; whoever is pardoned has no mark."""
    return pod.metadata.annotation(names.ANNOTATION_CLAIMED_BY) is not None


def counts(pod: core.Pod) -> bool:
    """The pod can stand for its place in the gang: it has not ended, is not being deleted, and keeps its pin."""
    return not (core.is_terminal(pod) or is_terminating(pod) or is_released(pod))


def is_gated(pod: core.Pod) -> bool:
    """Our gang gate still holds the pod: nothing was decided for it yet, or the decision was not written."""
    return any(gate.name == names.GATE_GANG for gate in pod.spec.scheduling_gates or ())


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
    if pod.metadata.annotation(names.ANNOTATION_PINNED) != pod.metadata.uid:
        return None
    return core.pinned_node(pod)


def is_placed(pod: core.Pod) -> bool:
    """The pod has its node, written on it: bound or pinned."""
    return occupies_node(pod) or pinned_node(pod) is not None


def place_of(pod: core.Pod, assumed: Mapping[str, str]) -> str | None:
    """The node that a pod is bound to, pinned to, or was decided for."""
    return pod.spec.node_name or pinned_node(pod) or assumed.get(pod.metadata.uid)


def waits_for_start(pod: core.Pod) -> bool:
    """The pod is pinned and only our start gate keeps it from kube-scheduler: it counts as arrived."""
    return core.gates(pod) == {names.GATE_START} and pinned_node(pod) is not None


def claims_membership(pod: core.Pod) -> bool:
    """The pod carries the label of a group. Whether it is a member depends on the group's owner too."""
    return pod.metadata.label(names.LABEL_POD_GROUP) is not None


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
            and meta.label(names.LABEL_POD_GROUP) == name
        ):
            yield pod


def is_member(pod: core.Pod, group: core.Group) -> bool:
    """A pod belongs to a group (``members``)."""
    return any(True for _ in members(group, (pod,)))


def scheduling_failure(pod: core.Pod) -> str | None:
    """The words of kube-scheduler when it last found no place for the pod; a trigger to look, never state."""
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return None
    return scheduled.message or scheduled.reason


def scheduler_error(pod: core.Pod) -> str | None:
    """The words of kube-scheduler when it last failed at the pod, no matter on which node: a trigger like ``scheduling_failure``.

    None where it failed to reach an extender, which says nothing of the pod.
    """
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "SchedulerError":
        return None
    unreached = scheduled.message.startswith('Post "') or " with extender at URL " in scheduled.message
    return None if unreached else scheduled.message or scheduled.reason


def is_ready(pod: core.Pod) -> bool:
    """Tell whether a pod serves, with the images that it was given last."""
    return says_ready(pod) and is_restarted(pod)


def says_ready(pod: core.Pod) -> bool:
    """Tell whether the conditions of a pod say that it serves.

    The gates are read, too: the kubelet takes them over into the condition Ready a moment later only.
    """
    if course(pod) is not Course.STAYS:
        return False
    if not pod.spec.readiness_gates:
        condition = core.condition(pod.status.conditions, "Ready")
        return condition is not None and condition.status == "True"
    return all(condition is not None and condition.status == "True" for condition in readiness(pod))


def readiness(pod: core.Pod) -> tuple[core.Condition | None, ...]:
    """The condition Ready and those of its readiness gates; None for one that nobody has set."""
    conditions, gates = pod.status.conditions, pod.spec.readiness_gates or ()
    gated = (core.condition(conditions, gate.condition_type) for gate in gates)
    return (core.condition(conditions, "Ready"), *gated) if gates else (core.condition(conditions, "Ready"),)


def stands_since(pods: Iterable[core.Pod], now: float) -> float:
    """Time at which those that are not Ready got any further last, as far as known; ``now`` where all are Ready."""
    times = (_times(pod) for pod in pods if not is_ready(pod))
    return max(chain.from_iterable(times), default=now)


def _times(pod: core.Pod) -> Iterator[float]:
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    changed = (condition.last_transition_time for condition in (*readiness(pod), scheduled) if condition is not None)
    for stamp in (pod.metadata.creation_timestamp, pod.status.start_time, *changed):
        at = core.seconds(stamp)
        if at is not None:
            yield at


def runs(pod: core.Pod) -> bool:
    """Tell whether the containers of a pod are Ready, whatever its readiness gates say."""
    condition = core.condition(pod.status.conditions, "ContainersReady") or core.condition(
        pod.status.conditions, "Ready"
    )
    return condition is not None and condition.status == "True" and not is_dead(pod)


def is_draining(pod: core.Pod) -> bool:
    """Tell whether a pod is marked: its replica is to go, and never comes back."""
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) is not None


def draining_since(pod: core.Pod) -> float | None:
    """Time at which a pod was marked, in seconds since the epoch: 0 where unreadable, None where it is not marked."""
    return (core.seconds(pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE)) or 0.0) if is_draining(pod) else None


def drain_deadline(pod: core.Pod) -> float | None:
    """Time by which a marked pod goes, in seconds since the epoch; None where nobody has said so."""
    return drains_until(pod) if is_draining(pod) else None


def claimed_by(pod: core.Pod) -> str | None:
    """UID of the root that a pod was marked to give way to; None where it was not."""
    return pod.metadata.annotation(names.ANNOTATION_CLAIMED_BY)


def is_gated_by_us(pod: core.Pod) -> bool:
    """Tell whether a pod has Covey's own readiness gate, so that Covey, too, decides when it is Ready."""
    return any(gate.condition_type == names.GATE_SERVING for gate in pod.spec.readiness_gates or ())


def unschedulable(pod: core.Pod) -> str | None:
    """Reason for which its scheduler, which has looked at a pod, finds no node; None where it has not said so."""
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    if (
        is_bound(pod)
        or core.gates(pod)
        or scheduled is None
        or (scheduled.status, scheduled.reason) != ("False", "Unschedulable")
    ):
        return None
    return scheduled.message


def is_addressed(pod: core.Pod) -> bool:
    """Tell whether the headless Service of a pod publishes it."""
    return pod.metadata.label(names.LABEL_ADDRESS) is not None


def is_published(pod: core.Pod) -> bool:
    """Tell whether some Service publishes a pod: its headless one, or one that takes requests."""
    return is_addressed(pod) or pod.metadata.label(names.LABEL_ENDPOINT) is not None


def restarts(pod: core.Pod) -> int:
    """Times that the replica of a pod had been recreated when the pod was made."""
    return past(pod).restarts


def ready_since(pod: core.Pod) -> float | None:
    """Time since which a pod's replica counts as having been Ready, in seconds since the epoch; on leaders only."""
    return core.seconds(pod.metadata.annotation(names.ANNOTATION_STARTED))


def past(pod: core.Pod) -> Past:
    """Restarts and failures of those before a pod, as it carries them."""
    return Past.read(pod.metadata.annotations)


def replica_of(pod: core.Pod) -> ReplicaKey | None:
    """The replica of a pod, by its host name; None where that is none of ours."""
    slot = slot_of(pod.spec.hostname)
    return slot and slot[:3]
