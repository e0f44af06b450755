"""Failures of the pods of one replica, and since when it has failed or been Ready.

What others do to a pod is no failure of it: a deletion, a preemption, an eviction through the API, a node that shuts
down or is lost. Only failures are waited for: the back-off is ``compile.restarts.delay``, with the seconds of
``api.roles.Backoff``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.compile import Slot
from covey.kube.resources import PODS
from covey.model import podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.place import Place


class FailureCause(StrEnum):
    """Cause of a replica's restart: the label ``reason`` of a metric, and a word in Events."""

    #: Its phase is Failed, or Succeeded.
    FAILED = "PodFailed"
    #: The kubelet did not take it: ``OutOfcpu``, ``UnexpectedAdmissionError``.
    REFUSED = "PodRefused"
    #: A container restarted in a replica that had been Ready.
    RESTARTED = "ContainerRestarted"
    #: It was not Ready in time.
    DEADLINE = "StartDeadlineExceeded"


#: What the kubelet says of pods that it ends when its node shuts down (``nodeshutdown`` of ``k8s.io/kubernetes``).
_SHUT_DOWN: Final = frozenset({"Terminated", "NodeShutdown", "Shutdown", "NodeLost"})
#: What it says of pods that it does not take because of the node (``k8s.io/kubernetes/pkg/kubelet/lifecycle``,
#: ``…/cm``), next to ``OutOf`` and the name of a resource. Others, such as ``SysctlForbidden``, are about the pod.
_REFUSED: Final = frozenset(
    {"UnexpectedAdmissionError", "TopologyAffinityError", "SMTAlignmentError", "NodeAffinity", "InvalidNodeInfo"}
)
#: ``DisruptionTarget`` of pods that others end (``k8s.io/api/core/v1``); ``TerminationByKubelet`` is not among them.
_DISRUPTED: Final = frozenset(
    {"PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"}
)


def cause_of_end(pod: core.Pod) -> FailureCause | None:
    """Cause for which a pod that had its node has ended by itself; None where it has not, or others have ended it."""
    if podstate.course(pod) is not podstate.Course.ENDED or not pod.spec.node_name:
        return None
    target = core.condition(pod.status.conditions, "DisruptionTarget")
    if target is not None and target.status == "True" and target.reason in _DISRUPTED:
        return None
    if pod.status.reason in _SHUT_DOWN:
        return None
    reason = pod.status.reason if pod.status.phase == "Failed" else ""
    return FailureCause.REFUSED if reason in _REFUSED or reason.startswith("OutOf") else FailureCause.FAILED


def overdue(pod: core.Pod, seconds: int, now: float) -> float | None:
    """Seconds that a bound pod still has until it should be Ready; None where that is not known, or it is."""
    scheduled, ready = (core.condition(pod.status.conditions, kind) for kind in ("PodScheduled", "Ready"))
    if not pod.spec.node_name or (ready is not None and ready.status == "True"):
        return None
    since = core.seconds(scheduled.last_transition_time) if scheduled and scheduled.status == "True" else None
    since = since if since is not None else core.seconds(pod.status.start_time)
    return None if since is None else since + seconds - now


#: On a failed pod that is not replaced yet: since when.
ANNOTATION_SINCE: Final = "covey.dev/failing-since"


@dataclass(frozen=True, slots=True)
class Fault:
    """A pod that has failed. ``detail`` says which container, and how it ended, where that is known."""

    slot: Slot
    pod: core.Pod
    why: FailureCause
    detail: str = ""


def ended_last(place: Place) -> Fault | None:
    """The fault of an empty place whose last pod has ended by itself; None otherwise."""
    last = max(place.others, key=age, default=None)
    if place.now is not None or last is None or last.metadata.uid in place.retired:
        return None
    why = cause_of_end(last)
    return Fault(place.slot, last, why, trouble_of(last)) if why is not None else None


def trouble_of(pod: core.Pod, container: str = "") -> str:
    """Say which container of a pod does not run, and why; empty where nothing is known to be wrong."""
    trouble = core.container_trouble(pod, container)
    return trouble.message if trouble is not None else ""


def ready_since(places: Sequence[Place]) -> float | None:
    """Time since which the replica counts as having been Ready, in seconds since the epoch; None before that.

    Its leader carries it, dead or alive; 0 where only pods that are Ready show it.
    """
    leader = places[0]
    pods = [pod for pod in (leader.now, *leader.others) if pod is not None]
    if pods:
        return podstate.ready_since(max(pods, key=age))
    if leader.tombstone is not None:
        return leader.tombstone.started
    # The pod that carried it is gone without a trace. What still serves was Ready.
    return 0.0 if any(place.now is not None and podstate.is_ready(place.now) for place in places) else None


def pods_of(places: Iterable[Place]) -> list[core.Pod]:
    """All pods that there are in these places."""
    return [pod for place in places for pod in (place.now, *place.others) if pod is not None]


def failing_since(faults: Iterable[Fault]) -> float | None:
    """Time since which a failure is known that was not acted on; None for one that is seen for the first time."""
    marks = (core.seconds(fault.pod.metadata.annotation(ANNOTATION_SINCE)) for fault in faults)
    return min((at for at in marks if at is not None), default=None)


def age(pod: core.Pod) -> tuple[str, str]:
    """Orders pods by their creation, the youngest last."""
    return pod.metadata.creation_timestamp, pod.metadata.uid


def creation_time(pod: core.Pod) -> float:
    """Creation time of a pod, in seconds since the epoch."""
    return core.seconds(pod.metadata.creation_timestamp) or 0.0


def revision_of(pod: core.Pod) -> str:
    """Hash of the revision that a pod was made from."""
    return pod.metadata.label(names.LABEL_REVISION) or ""


def serves(places: Sequence[Place]) -> bool:
    """Tell whether every pod of a replica is Ready."""
    return all(place.now is not None and podstate.is_ready(place.now) for place in places)


def annotate(pod: core.Pod, annotations: Mapping[str, str | None]) -> Annotate:
    """The action that writes annotations of a pod."""
    return Annotate(PODS.type, pod.metadata.name, pod.metadata.uid, annotations)
