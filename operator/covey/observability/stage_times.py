"""Times at which a gang reached the stages of its start, from the times in pods' conditions: pure.

A gang (one unit: one root group) goes created → admitted → bound → ready once. The scheduler process
observes created → admitted → bound, the operator bound → ready and created → ready; what a gang loses later and gets
back is no part of it. Both observe each transition exactly once, whichever process leads: see
``covey.scheduler.admission_times`` and ``covey.operator.status.startup_times``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from covey.api import core

#: A role: its minimum, and for each replica the times at which its pods reached the stage, None for one that has not.
Role = tuple[int, Iterable[Sequence[float | None]]]


def since_true(pod: core.Pod, kind: str) -> float | None:
    """Return since when a condition of a pod has been True, in seconds since the epoch; None when it is not."""
    condition = core.condition(pod.status.conditions, kind)
    if condition is None or condition.status != "True":
        return None
    return core.seconds(condition.last_transition_time)


def minimum_reached_at(roles: Iterable[Role]) -> float | None:
    """Return when all roles had as many complete replicas as their minimums; None while one has fewer.

    Roles without a minimum do not count; None where no role has one.
    """
    latest: float | None = None
    for minimum, replicas in roles:
        if minimum <= 0:
            continue
        complete = sorted(time for pods in replicas if (time := _last(pods)) is not None)
        if len(complete) < minimum:
            return None
        latest = max(complete[minimum - 1], latest or 0.0)
    return latest


def _last(pods: Sequence[float | None]) -> float | None:
    """Return when the last pod got there; None while one has not."""
    known = [time for time in pods if time is not None]
    return max(known) if known and len(known) == len(pods) else None
