"""The state of a pod, from the only fields that tell the truth: the gate, the node, the phase, the deletion.

The condition ``PodScheduled`` does not: it says ``SchedulingGated`` while a bind is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import chain

from covey.api import constants as names
from covey.api import core, times
from covey.compile.pods import Past
from covey.operator.model import exchange


class Course(Enum):
    """The course of a pod: it stays, drains, goes, or has ended."""

    #: Nobody has said otherwise.
    STAYS = auto()
    #: It is marked: its replica is to go, and never comes back.
    DRAINS = auto()
    #: Its deletion was asked for, by this process (``Observed.condemned``) or as the API server says.
    GOES = auto()
    #: It has ended by itself.
    ENDED = auto()


def course(pod: core.Pod) -> Course:
    """The course of a pod of a snapshot: the one answer for all that ask."""
    if is_going(pod):
        return Course.GOES
    if core.is_terminal(pod):
        return Course.ENDED
    return Course.DRAINS if is_draining(pod) else Course.STAYS


def is_going(pod: core.Pod) -> bool:
    """Tell whether the deletion of a pod was asked for; it need not be asked for again."""
    return pod.metadata.deletion_timestamp is not None


def is_dead(pod: core.Pod) -> bool:
    """Tell whether a pod has ended, or is about to: its place needs a successor."""
    return is_going(pod) or core.is_terminal(pod)


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


def is_released(pod: core.Pod) -> bool:
    """Tell whether the pin of a pod must be undone, which only deletion can do."""
    return not is_bound(pod) and pod.metadata.annotation(names.ANNOTATION_RELEASE) is not None


def domains(pod: core.Pod) -> dict[str, str]:
    """Levels and domains that a pod's node lies in, as the pin says; for pods of former releases as labels say."""
    prefix = names.TOPOLOGY_PREFIX
    said = {**(pod.metadata.labels or {}), **(pod.metadata.annotations or {})}
    return {key.removeprefix(prefix): value for key, value in said.items() if key.startswith(prefix)}


def is_ready(pod: core.Pod) -> bool:
    """Tell whether a pod serves, with the images that it was given last."""
    return says_ready(pod) and exchange.is_restarted(pod)


def says_ready(pod: core.Pod) -> bool:
    """Tell whether the conditions of a pod say that it serves.

    The gates are read, too: the kubelet takes them over into the condition Ready a moment later only.
    """
    if course(pod) is not Course.STAYS:
        return False
    if not pod.spec.readiness_gates:
        found = core.condition(pod.status.conditions, "Ready")
        return found is not None and found.status == "True"
    return all(each is not None and each.status == "True" for each in readiness(pod))


def readiness(pod: core.Pod) -> tuple[core.Condition | None, ...]:
    """The condition Ready and those of its readiness gates; None for one that nobody has set."""
    conditions, gates = pod.status.conditions, pod.spec.readiness_gates or ()
    found = (core.condition(conditions, gate.condition_type) for gate in gates)
    return (core.condition(conditions, "Ready"), *found) if gates else (core.condition(conditions, "Ready"),)


def stands_since(pods: Iterable[core.Pod], now: float) -> float:
    """Time at which those that are not Ready got any further last, as far as known; ``now`` where all are Ready."""
    told = (_times(pod) for pod in pods if not is_ready(pod))
    return max(chain.from_iterable(told), default=now)


def _times(pod: core.Pod) -> Iterator[float]:
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    told = (each.last_transition_time for each in (*readiness(pod), scheduled) if each is not None)
    for each in (pod.metadata.creation_timestamp, pod.status.start_time, *told):
        at = times.seconds(each)
        if at is not None:
            yield at


def runs(pod: core.Pod) -> bool:
    """Tell whether the containers of a pod are Ready, whatever its readiness gates say."""
    found = core.condition(pod.status.conditions, "ContainersReady") or core.condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True" and not is_dead(pod)


def is_draining(pod: core.Pod) -> bool:
    """Tell whether a pod is marked: its replica is to go, and never comes back."""
    return pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE) is not None


def draining_since(pod: core.Pod) -> float | None:
    """Time at which a pod was marked, in seconds since the epoch: 0 where unreadable, None where it is not marked."""
    return (
        (times.seconds(pod.metadata.annotation(names.ANNOTATION_DRAINING_SINCE)) or 0.0) if is_draining(pod) else None
    )


def is_gated_by_us(pod: core.Pod) -> bool:
    """Tell whether a pod has Covey's own readiness gate, so that Covey, too, decides when it is Ready."""
    return any(gate.condition_type == names.GATE_SERVING for gate in pod.spec.readiness_gates or ())


def unschedulable(pod: core.Pod) -> str | None:
    """Reason for which its scheduler, which has looked at a pod, finds no node; None where it has not said so."""
    said = core.condition(pod.status.conditions, "PodScheduled")
    if is_bound(pod) or core.gates(pod) or said is None or (said.status, said.reason) != ("False", "Unschedulable"):
        return None
    return said.message


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
    return times.seconds(pod.metadata.annotation(names.ANNOTATION_STARTED))


def past(pod: core.Pod) -> Past:
    """Restarts and failures of those before a pod, as it carries them."""
    return Past.read(pod.metadata.annotations)
