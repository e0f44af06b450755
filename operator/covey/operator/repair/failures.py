"""Failures of one replica, as its pods show them.

Causes of failures: the phase of a pod, restarts of its containers, or that it does not get Ready.

What others do to a pod is no failure of it: a deletion, a preemption, an eviction through the API, a node that shuts
down or is lost. Only failures are waited for.

Container restarts of a pod that count as failures.

Main containers count. Init containers, and among them sidecars (``restartPolicy: Always``), do not: they are apart from
the process group of a replica, and what runs next to it may restart as it likes. A template may name further containers
that do not count (``names.ANNOTATION_RESTART_IGNORED``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import read_json
from covey.compile import Slot
from covey.operator.model import podstate
from covey.operator.model.observed import Place


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


def cause_of_end(pod: core.Pod) -> Cause | None:
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
    since = core.seconds(scheduled.last_transition_time) if scheduled and scheduled.status == "True" else None
    since = since if since is not None else core.seconds(pod.status.start_time)
    return None if since is None else since + seconds - now


def counts(pod: core.Pod) -> dict[str, int]:
    """Restarts of each main container, by its name; those that never restarted are left out."""
    return {each.name: each.restart_count for each in pod.status.container_statuses or () if each.restart_count > 0}


def has_restarted(pod: core.Pod) -> bool:
    """Tell whether a container that counts has restarted more often than is known to be no failure."""
    found = counts(pod)
    if not found:
        return False
    ignored = {each.strip() for each in (pod.metadata.annotation(names.ANNOTATION_RESTART_IGNORED) or "").split(",")}
    known = baseline(pod)
    return any(count > known.get(name, 0) for name, count in found.items() if name not in ignored)


def baseline(pod: core.Pod) -> dict[str, int]:
    """Restarts by container that are no failures: before the replica was first Ready, or on purpose."""
    found = read_json(pod.metadata.annotation(names.ANNOTATION_RESTART_BASELINE))
    if not isinstance(found, dict):
        return {}
    return {name: count for name, count in found.items() if isinstance(count, int)}


def dump_baseline(found: Mapping[str, int]) -> str:
    """The annotation of a baseline."""
    return json.dumps(dict(found), sort_keys=True, separators=(",", ":"))


#: On a failed pod that is not replaced yet: since when.
ANNOTATION_SINCE: Final = "covey.dev/failing-since"


@dataclass(frozen=True, slots=True)
class Fault:
    """A pod that has failed."""

    slot: Slot
    pod: core.Pod
    why: Cause


def ended_last(place: Place) -> Fault | None:
    """The fault of an empty place whose last pod has ended by itself; None otherwise."""
    last = max(place.others, key=age, default=None)
    if place.now is not None or last is None or last.metadata.uid in place.retired:
        return None
    why = cause_of_end(last)
    return Fault(place.slot, last, why) if why is not None else None


def ready_since(places: Sequence[Place]) -> float | None:
    """Time since which the replica counts as having been Ready, in seconds since the epoch; None before that.

    Its leader carries it, dead or alive; 0 where only pods that are Ready show it.
    """
    leader = places[0]
    pods = [each for each in (leader.now, *leader.others) if each is not None]
    if pods:
        return podstate.ready_since(max(pods, key=age))
    if leader.grave is not None:
        return leader.grave.started
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
