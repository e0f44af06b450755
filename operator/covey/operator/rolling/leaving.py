"""Replicas that leave their nodes, and pods that are on their way out.

Replicas that have to leave their nodes (``node_drain`` says which nodes are to be empty).

Pods on their way out: meanwhile the clock of a rollout stands still, since successors may wait for their room.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from covey.api import core, times
from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.operator.model import podstate
from covey.operator.model.observed import Observed

#: Seconds that a pod has beyond its time: the clock does not stand still for one that never goes.
_SLACK: Final = 60.0


def is_anything_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> bool:
    """Tell whether a pod drains, or terminates because there is to be none in its place, and is within its time.

    Failed pods that are replaced do not count: a revision that crashes again and again would have no deadline.
    """
    seconds = {role.name: float(role.drain_seconds or 0) for role in spec.roles}
    ends = (_ends(pod, seconds.get(slot.role, 0.0), observed) for slot, pods in observed.pods.items() for pod in pods)
    return any(end is not None and observed.now < end + _SLACK for end in ends)


def _ends(pod: core.Pod, seconds: float, observed: Observed) -> float | None:
    """Time at which a pod that is on its way out should be gone; None for any other."""
    since, deleted = podstate.draining_since(pod), pod.metadata.deletion_timestamp
    if deleted is not None:
        # That is when its grace period ends.
        return times.seconds(deleted) if since is not None or pod.metadata.uid in observed.retired else None
    return since + seconds if since is not None else None


#: ``evacuateAfterSeconds`` where nothing is said.
_PATIENCE: Final = 60.0
#: Seconds that successors keep off candidates, at least; a round time, since it is written on groups.
_TERM: Final = 600.0

#: A replica: unit, role and number.
Place = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Leaving:
    """Replicas that have to leave their nodes: why, by place; and seconds after which there will be more.

    ``patient`` are those that do not go without a successor yet, however many of their role serve; ``patience`` is for
    how long, in seconds since their nodes were cordoned.
    """

    places: Mapping[Place, str] = field(default_factory=dict)
    again: float | None = None
    patient: Collection[Place] = frozenset()
    patience: float = _PATIENCE
    #: What successors keep off: a scheduler keeps them off cordons and hard taints, not off soft ones.
    avoided: tuple[Avoided, ...] = ()


def find_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> Leaving:
    """The replicas of a resource that have to leave.

    Args:
        spec: what is kept up.
        observed: the snapshot; ``notices`` has the nodes in question.
    """
    if not observed.notices:
        return Leaving()
    told = spec.disruption.evacuate_after_seconds if spec.disruption else None
    patience = _PATIENCE if told is None else float(told)
    places: dict[Place, str] = {}
    urgent: set[Place] = set()
    left: list[float] = []
    for slot, pod in _bound_pods(observed):
        node = pod.spec.node_name or ""
        notice = observed.notices[node]
        why = notice.drives(pod)
        due = (observed.now if notice.since is None else notice.since) + patience - observed.now
        waits = due > 0 and (notice.waits_with(pod) if why else bool(notice.candidate))
        if waits:
            left.append(due)
        if not why and notice.candidate and not waits:
            why = f"taint {notice.candidate}"
        if why:
            place = (slot.unit, slot.role, slot.replica)
            places.setdefault(place, f"node {node}: {why}")
            if not waits:
                urgent.add(place)
    until = (observed.now // _TERM + 2) * _TERM
    avoided = (Avoided(until, "an autoscaler may delete it", node) for node in observed.candidates if places)
    return Leaving(places, min(left, default=None), frozenset(places.keys() - urgent), patience, tuple(avoided))


def _bound_pods(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if pod.spec.node_name in observed.notices:
            yield slot, pod
