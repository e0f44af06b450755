"""The minimum of a unit before its surplus, and what to say where kube-scheduler says nothing.

kube-scheduler 1.37 queues a tree as one, and keeps it from the queue as long as one of its pods has a gate. So surplus
cannot wait there: its pods are created once every group of the minimum was placed and has its pods bound. When that is
lost again, surplus without a node gives way: in one cycle a group of an earlier name would be served first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.core import seconds
from covey.backends.kubernetes.shared import POD_GROUPS
from covey.backends.kubernetes.units import scheduled_condition
from covey.backends.seam import Identity, Owned, Release, ReleaseFacts, ReplicaProgress
from covey.compile.identity import Slot, group_name

#: Seconds without any word of kube-scheduler, with all pods of the minimum there.
_SILENCE: Final = 60.0
#: Seconds that a pod may be bound before its group's condition is seen.
_LAG: Final = 10.0
#: Seconds that a group may be going, without a pod that keeps it.
_GOING: Final = 120.0

REASON_IGNORED: Final = "GroupsIgnored"
REASON_STUCK: Final = "GroupTerminating"

_GATES: Final = "GenericWorkload, TopologyAwareWorkloadScheduling and CompositePodGroup"


@dataclass(frozen=True, slots=True)
class _GroupedReplica:
    """A replica with its PodGroup; single pods outside the gang have none."""

    progress: ReplicaProgress
    group: Owned | None

    @property
    def said(self) -> core.Condition | None:
        return scheduled_condition(self.group) if self.group is not None else None

    @property
    def is_placed(self) -> bool:
        return self.progress.is_bound and self.said is not None and self.said.status == "True"


def release(progress: ReleaseFacts) -> Release:
    """Decide which surplus is not created yet, and report what is wrong with a unit whose minimum does not come."""
    withheld: set[Slot] = set()
    waits: dict[int, core.Condition] = {}
    faults: dict[int, core.Condition] = {}
    later: list[float] = []
    now = progress.now
    units = {
        number: tuple(_GroupedReplica(replica, _group_of(progress, replica)) for replica in replicas)
        for number, replicas in progress.units.items()
    }
    minimums = {
        number: tuple(replica for replica in unit if replica.progress.in_minimum) for number, unit in units.items()
    }
    # Another unit's minimum comes before surplus, too, as long as it may be placed at once.
    undecided = any(_is_undecided(minimum, now) for minimum in minimums.values())
    for number, unit in units.items():
        minimum = minimums[number]
        if undecided or not all(replica.is_placed for replica in minimum):
            withheld |= {slot for replica in unit if not replica.progress.in_minimum for slot in replica.progress.slots}
        for finding in (
            _stuck(unit, now),
            _check_gangs_ignored(minimum, now),
            _silent(minimum, now),
            _refusal_of_successors(minimum),
        ):
            if isinstance(finding, core.Condition):
                waits.setdefault(number, finding)
                if finding.reason in {REASON_IGNORED, REASON_STUCK}:
                    faults.setdefault(number, finding)
            elif finding is not None:
                later.append(finding)
    return Release(withheld=frozenset(withheld), waits=waits, faults=faults, again=min(later, default=None))


def _is_undecided(minimum: Sequence[_GroupedReplica], now: float) -> bool:
    """Tell whether kube-scheduler has neither placed nor refused all of a minimum, and may be about to."""
    if all(replica.is_placed for replica in minimum) or any(
        replica.said and replica.said.status == "False" for replica in minimum
    ):
        return False
    return not any(isinstance(check(minimum, now), core.Condition) for check in (_check_gangs_ignored, _silent))


def _group_of(progress: ReleaseFacts, replica: ReplicaProgress) -> Owned | None:
    return progress.objects.get(group_identity(progress.inference.metadata.name, replica))


def group_identity(inference: str, replica: ReplicaProgress) -> Identity:
    """The PodGroup of a replica: its own, or the role's where replicas are single pods."""
    slot = replica.slots[0]
    number = slot.replica if len(replica.slots) > 1 else None
    return POD_GROUPS.type, group_name(inference, slot.unit, slot.role, number)


def _stuck(unit: Sequence[_GroupedReplica], now: float) -> core.Condition | float | None:
    """Report a group that was deleted and that nothing keeps, but that does not go."""
    kept = {name for replica in unit if replica.progress.pods and (name := _name(replica.group))}
    for replica in unit:
        group = replica.group
        if group is None or group.metadata.name in kept or not group.metadata.deletion_timestamp:
            continue
        wait = _GOING - (now - (seconds(group.metadata.deletion_timestamp) or now))
        if wait > 0:
            return wait
        return _condition(
            REASON_STUCK,
            f"PodGroup {group.metadata.name} was deleted and does not go, though no pod is of it: see whether "
            "kube-controller-manager runs with the feature gate GenericWorkload, whose controller removes its finalizer",
        )
    return None


def _name(group: Owned | None) -> str:
    return group.metadata.name if group is not None else ""


def _check_gangs_ignored(minimum: Sequence[_GroupedReplica], now: float) -> core.Condition | float | None:
    """Report pods of the gang that were bound without their groups having been placed."""
    since = [
        at
        for replica in minimum
        if replica.said is None or replica.said.status != "True"
        for pod in replica.progress.pods
        if (at := _bound_at(pod)) is not None
    ]
    if not since:
        return None
    wait = _LAG - (now - min(since))
    if wait > 0:
        return wait
    return _condition(
        REASON_IGNORED,
        "kube-scheduler has bound pods of the unit without regard to their groups: it has to run with the feature gates "
        f"{_GATES}, as kube-apiserver does",
    )


def _bound_at(pod: core.Pod) -> float | None:
    condition = core.condition(pod.status.conditions, "PodScheduled")
    if not pod.spec.node_name or condition is None or condition.status != "True":
        return None
    return seconds(condition.last_transition_time)


def _silent(minimum: Sequence[_GroupedReplica], now: float) -> core.Condition | float | None:
    """Report a minimum all of whose pods are there, while kube-scheduler has said nothing of any of its groups."""
    if (
        not minimum
        or any(replica.said for replica in minimum)
        or not all(replica.progress.is_complete for replica in minimum)
    ):
        return None
    pods = [pod for replica in minimum for pod in replica.progress.pods]
    if any(pod.spec.node_name for pod in pods):
        return None
    created = [at for pod in pods if (at := seconds(pod.metadata.creation_timestamp)) is not None]
    wait = _SILENCE - (now - max(created, default=now))
    if wait > 0:
        return wait
    message = next(_unschedulable_messages(pods), "")
    return _condition(
        REASON_IGNORED,
        f"kube-scheduler has not tried the unit for {_SILENCE:.0f} seconds{f' ({message})' if message else ''}: see whether it "
        f"runs, under the scheduler name of the pods, with the feature gates {_GATES}",
    )


def _refusal_of_successors(minimum: Sequence[_GroupedReplica]) -> core.Condition | None:
    """Report a group that was placed once and has lost pods, with what kube-scheduler says against their successors."""
    for replica in minimum:
        if replica.said is None or replica.said.status != "True":
            continue
        for pod in replica.progress.pods:
            condition = core.condition(pod.status.conditions, "PodScheduled")
            if not pod.spec.node_name and condition is not None and condition.status == "False" and condition.message:
                return _condition(condition.reason or names.REASON_WAITING, condition.message)
    return None


def _unschedulable_messages(pods: Sequence[core.Pod]) -> Iterator[str]:
    """Yield what the scheduler says of pods that it has not tried."""
    for pod in pods:
        condition = core.condition(pod.status.conditions, "PodScheduled")
        if condition is not None and condition.message:
            yield condition.message


def _condition(reason: str, message: str) -> core.Condition:
    return core.Condition(names.ADMITTED, "False", reason, message)
