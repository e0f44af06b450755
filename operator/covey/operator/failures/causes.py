"""Causes of failures: the phase of a pod, restarts of its containers, or that it does not get Ready.

What others do to a pod is no failure of it: a deletion, a preemption, an eviction through the API, a node that shuts
down or is lost. Only failures are waited for.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from covey.api import core, times
from covey.operator.snapshot import podstate


class Cause(StrEnum):
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


def ended(pod: core.Pod) -> Cause | None:
    """Cause for which a pod that had its node has ended by itself; None where it has not, or others have ended it."""
    if podstate.course(pod) is not podstate.Course.ENDED or not pod.spec.node_name:
        return None
    target = core.condition(pod.status.conditions, "DisruptionTarget")
    if target is not None and target.status == "True" and target.reason in _DISRUPTED:
        return None
    if pod.status.reason in _SHUT_DOWN:
        return None
    reason = pod.status.reason if pod.status.phase == "Failed" else ""
    return Cause.REFUSED if reason in _REFUSED or reason.startswith("OutOf") else Cause.FAILED


def overdue(pod: core.Pod, seconds: int, now: float) -> float | None:
    """Seconds that a bound pod still has until it should be Ready; None where that is not known, or it is."""
    scheduled, ready = (core.condition(pod.status.conditions, each) for each in ("PodScheduled", "Ready"))
    if not pod.spec.node_name or (ready is not None and ready.status == "True"):
        return None
    since = times.seconds(scheduled.last_transition_time) if scheduled and scheduled.status == "True" else None
    since = since if since is not None else times.seconds(pod.status.start_time)
    return None if since is None else since + seconds - now
