"""Failures of one replica, as its pods show them, and restarts that are forgiven.

Causes of failures: the phase of a pod, restarts of its containers, or that it does not get Ready.

What others do to a pod is no failure of it: a deletion, a preemption, an eviction through the API, a node that shuts
down or is lost. Only failures are waited for: the back-off is ``compile.pods.delay``, with the seconds of
``api.roles.Backoff``.

Container restarts of a pod that count as failures.

Containers of the template count, and sidecars (init containers with ``restartPolicy: Always``) that ask for a device, in
which engines may run. Others do not, nor what was injected into the pod without a device: what runs next to the process group
of a replica may restart as it likes. A template may name further ones (``names.ANNOTATION_RESTART_IGNORED``).

Restarts of containers that are over: the replica was left as it was, and serves again.

A replica whose failures are exhausted is only left: the kubelet starts its containers again, and it may get Ready. Then
nothing of it is given up for that failure any more, whatever becomes of ``maxRestarts``. It is reported as exhausted
until it has been Ready for as long as failures are remembered, or until ``maxRestarts`` allows what has happened. Then
its restarts are noted as no failures, and it counts as Ready since it came back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import read_json
from covey.api.roles import Role
from covey.compile import Slot, Tree
from covey.compile.revision import RoleRevision
from covey.kube.resources import PODS
from covey.model import image_update, podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.observed import Observed, Place
from covey.placement.cluster.resources import asks_for_device
from covey.rollout.model import RolloutBudget


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


def counts(pod: core.Pod) -> dict[str, int]:
    """Restarts of containers by name: of those that have restarted, and of sidecars with a device in any case."""
    statuses = image_update.container_statuses(pod)
    return dict.fromkeys(_device_sidecars(pod), 0) | {
        status.name: status.restart_count for status in statuses if status.restart_count > 0
    }


def restarted(
    pod: core.Pod, revision: RoleRevision, index: int, since: float | None = None
) -> core.ContainerStatus | None:
    """The first container that counts and has restarted more often than is known to be no failure, or was replaced.

    Args:
        pod: any pod of the replica.
        revision: of the replica. Containers that its template lacks were injected.
        index: of the pod in its replica.
        since: when the replica was Ready, where containers that were replaced since count (seconds since the epoch).
    """
    if not image_update.container_statuses(pod):
        return None
    written = {container["name"] for container in revision.template_of(index)["spec"]["containers"]}
    same = revision_of(pod) == revision.hash
    known = baseline(pod)
    counted = {
        container.name
        for container in pod.spec.containers
        if not same or container.name in written or asks_for_device(container)
    }
    # A sidecar without a baseline was made ready under a release that did not count it.
    counted |= {name for name in _device_sidecars(pod) if name in known}
    counted -= {name.strip() for name in (pod.metadata.annotation(names.ANNOTATION_RESTART_IGNORED) or "").split(",")}
    return next(
        (
            status
            for status in image_update.container_statuses(pod)
            if status.name in counted
            and (status.restart_count > known.get(status.name, 0) or _is_replaced(pod, status, since))
        ),
        None,
    )


def replacements_count_since(places: Sequence[Place]) -> float | None:
    """Time since which containers of a replica that were replaced count, in seconds since the epoch; None where none do.

    A replica that a former release made Ready keeps what was replaced before anybody looked.
    """
    pods = [pod for pod in (places[0].now, *places[0].others) if pod is not None]
    leader = max(pods, key=age, default=None)
    is_noted = leader is not None and leader.metadata.annotation(names.ANNOTATION_REPLACED) is not None
    return podstate.ready_since(leader) if leader is not None and is_noted else None


def _is_replaced(pod: core.Pod, status: core.ContainerStatus, since: float | None) -> bool:
    """Tell whether another container runs in the place of one that was Ready, and the kubelet counts no restart.

    So it is where a machine was imaged anew under its node. The container began later after its pod than its replica was
    Ready: two durations, one by the node's clock, one by the cluster's.
    """
    scheduled = core.condition(pod.status.conditions, "PodScheduled")
    placed = core.seconds(scheduled.last_transition_time) if scheduled is not None else None
    if since is None or placed is None or placed > since or status.restart_count:
        return False
    late = core.seconds_until_running(status, pod.status.start_time)
    return late is not None and late > since - placed + _SKEW


def lacks_baseline(pod: core.Pod) -> bool:
    """Tell whether a sidecar with a device has no baseline yet."""
    sidecars = _device_sidecars(pod)
    return bool(sidecars) and not baseline(pod).keys() >= sidecars


def add_sidecars(places: Iterable[Place]) -> Iterator[Annotate]:
    """Take the present restarts of sidecars with a device as no failures, where a former release made the replica Ready."""
    for place in places:
        pod = place.now
        if pod is not None and lacks_baseline(pod):
            sidecars = {name: count for name, count in counts(pod).items() if name in _device_sidecars(pod)}
            yield annotate(pod, {names.ANNOTATION_RESTART_BASELINE: dump_baseline(sidecars | baseline(pod))})


def _device_sidecars(pod: core.Pod) -> frozenset[str]:
    return frozenset(
        container.name
        for container in pod.spec.init_containers or ()
        if container.restart_policy == "Always" and asks_for_device(container)
    )


def baseline(pod: core.Pod) -> dict[str, int]:
    """Restarts by container that are no failures: before the replica was first Ready, or on purpose."""
    counts = read_json(pod.metadata.annotation(names.ANNOTATION_RESTART_BASELINE))
    if not isinstance(counts, dict):
        return {}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def dump_baseline(counts: Mapping[str, int]) -> str:
    """The annotation of a baseline."""
    return json.dumps(dict(counts), sort_keys=True, separators=(",", ":"))


#: Seconds by which the times of one thing may differ, by one clock and another.
_SKEW: Final = 60.0
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


#: On a failed pod that is left as it is, because the restarts of its replica are exhausted.
ANNOTATION_LEFT: Final = "covey.dev/left-failed"


def serves(places: Sequence[Place]) -> bool:
    """Tell whether every pod of a replica is Ready."""
    return all(place.now is not None and podstate.is_ready(place.now) for place in places)


def is_over(places: Sequence[Place], faults: Sequence[Fault]) -> bool:
    """Tell whether a replica whose containers restarted was left as it was, and all of it is Ready again."""
    left = all(
        fault.why is FailureCause.RESTARTED and fault.pod.metadata.annotation(ANNOTATION_LEFT) is not None
        for fault in faults
    )
    return left and serves(places)


def serves_since(places: Sequence[Place], failed_at: float) -> float:
    """Time since which a replica that had failed is Ready again, in seconds since the epoch: later than it failed."""
    ready = [podstate.readiness(place.now) for place in places if place.now is not None]
    times = (
        core.seconds(condition.last_transition_time)
        for conditions in ready
        for condition in conditions
        if condition is not None
    )
    return max([failed_at + 1, *(at for at in times if at is not None)])


def forgive(places: Sequence[Place], since: float) -> Iterator[Annotate]:
    """Note that the restarts of a replica are no failures, and that it counts as Ready since ``since``."""
    for place in places:
        pod = place.now
        if pod is None:
            continue
        marks: dict[str, str | None] = {
            names.ANNOTATION_RESTART_BASELINE: dump_baseline(counts(pod)),
            ANNOTATION_SINCE: None,
            ANNOTATION_LEFT: None,
        }
        if place is places[0]:
            marks |= dict.fromkeys((names.ANNOTATION_STARTED, names.ANNOTATION_SERVES_SINCE), core.rfc3339(since))
        yield annotate(pod, marks)


def is_untold(leader: core.Pod) -> bool:
    """Tell whether a replica has served since a former release, which noted for itself alone since when."""
    noted = leader.metadata.annotation
    return noted(names.ANNOTATION_STARTED) is not None and noted(names.ANNOTATION_SERVES_SINCE) is None


def tell_scheduler(places: Sequence[Place], now: float) -> Iterator[Annotate]:
    """Note for the scheduler process since when a replica of a former release serves."""
    leader = places[0].now
    if leader is not None and is_untold(leader):
        since = min(now, podstate.ready_since(leader) or now)
        yield annotate(leader, {names.ANNOTATION_SERVES_SINCE: core.rfc3339(since)})


def mark_left(faults: Sequence[Fault], failed_at: float, *, exhausted: bool) -> Iterator[Annotate]:
    """Note on failed pods that are not replaced for now since when they have failed, and whether they are left."""
    for fault in faults:
        marks: dict[str, str | None] = {}
        if fault.pod.metadata.annotation(ANNOTATION_SINCE) is None:
            marks[ANNOTATION_SINCE] = core.rfc3339(failed_at)
        if exhausted and fault.pod.metadata.annotation(ANNOTATION_LEFT) is None:
            marks[ANNOTATION_LEFT] = "true"
        if marks:
            yield annotate(fault.pod, marks)


def annotate(pod: core.Pod, annotations: Mapping[str, str | None]) -> Annotate:
    """The action that writes annotations of a pod."""
    return Annotate(PODS.type, pod.metadata.name, pod.metadata.uid, annotations)


class Spare:
    """Limit on Ready replicas of a role that are given up at once because their containers have restarted.

    A dependency that fails for a moment restarts containers of all replicas together. Those that are Ready all the same
    go one after another: as many of a unit at once as ``maxUnavailable`` says, else down to ``minReplicas``, and one at
    least.

    Args:
        tree: what is wanted.
        observed: the snapshot.
    """

    def __init__(self, tree: Tree, observed: Observed) -> None:
        self._tree = tree
        self._observed = observed
        self._left: dict[tuple[int, str], int] = {}
        self._recovering: Counter[tuple[int, str]] | None = None

    def take(self, unit: int, role: Role) -> bool:
        """Count one more replica that goes, and tell whether it may."""
        key = (unit, role.name)
        if key not in self._left:
            wanted = len(self._tree.layout.units[unit][role.name])
            missing = RolloutBudget.of(role, wanted).unavailable
            most = max(1, wanted - role.min_replicas if missing is None else missing)
            if self._recovering is None:
                self._recovering = self._count()
            self._left[key] = most - self._recovering[key]
        self._left[key] -= 1
        return self._left[key] >= 0

    def _count(self) -> Counter[tuple[int, str]]:
        """Count replicas that have failed and are not Ready yet, by unit and role."""
        failing: Counter[tuple[int, str]] = Counter()
        for (unit, role, _), slots in self._tree.replicas.items():
            places = [self._observed.place(slot) for slot in slots]
            failing[unit, role] += not serves(places) and any(map(_has_failed, places))
        return failing


def _has_failed(place: Place) -> bool:
    if place.now is not None:
        return podstate.past(place.now).failures > 0
    return bool(place.others) or place.tombstone is not None
