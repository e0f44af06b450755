"""Pods on their way out: while there are any the clock of a rollout stands still, since successors may wait for their room."""

from __future__ import annotations

from typing import Final

from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.model import podstate
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
        return core.seconds(deleted) if since is not None or pod.metadata.uid in observed.retired else None
    until = podstate.drain_deadline(pod)
    return until if until is not None or since is None else since + seconds
