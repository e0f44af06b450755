"""When pins have outlived their reason: pure.

An admitted gang must be bound ``timeoutSeconds`` after ``Admitted=True`` on its root. A pin made later (surplus, a
replacement) has the same time from when it was seen, and one that waited for others to start from when it may; a
restart gives it that time again. And a unit that keeps pins while pods of its minimum do not even exist is given up
after a short while: the pods that were let go are recreated gated, with the rest.

Times are of the process's monotonic clock: when it saw what. Only a process that starts has nothing but the stamp of
the condition, another machine's, perhaps another year's; so whatever it says, pins that are found have a while left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ADMITTED, RELEASE_CONFLICT, RELEASE_TIMEOUT
from covey.model import podstate

#: Seconds that pins wait for missing pods of their minimum to be created.
GRACE: Final = 10.0


#: Seconds that pins have at least when a process finds them: by then kube-scheduler has made its calls again.
AT_START: Final = 15.0


@dataclass(frozen=True, slots=True)
class Due:
    """A pin, when it must be undone (monotonic seconds), and why."""

    pod: core.Pod
    when: float
    reason: str


def due(
    unit: Unit,
    pinned_at: Mapping[str, float],
    admitted_at: float | None,
    torn_since: float | None,
    back_at: float | None = None,
) -> Iterator[Due]:
    """Times at which the unbound pins of a unit run out.

    Args:
        unit: the unit.
        pinned_at: UID → when the pin was first seen.
        admitted_at: when it was first seen that the unit is admitted.
        torn_since: when it was first seen that pods of the minimum do not exist.
        back_at: when kube-scheduler was first heard of after it had been away.
    """
    for pod in unit.pods():
        if podstate.pinned_node(pod) is None:
            continue
        # Who may not start yet is late for nothing.
        waits = podstate.waits_for_start(pod)
        starts = [start for start in (admitted_at, pinned_at.get(pod.metadata.uid)) if start is not None]
        if starts and not waits:
            yield Due(pod, max(*starts, back_at or starts[0]) + unit.timeout, RELEASE_TIMEOUT)
        if torn_since is not None:
            yield Due(pod, torn_since + GRACE, RELEASE_CONFLICT)


def admitted_since(unit: Unit) -> float | None:
    """Since when the root says that the unit is admitted, seconds since the epoch."""
    found = core.condition(unit.root.status.conditions, ADMITTED)
    return core.seconds(found.last_transition_time) if found is not None and found.status == "True" else None


def found_admitted(unit: Unit, now: float, wall: float) -> float | None:
    """Time from which the admission that a starting process finds counts; None for a unit that is not admitted.

    Args:
        unit: the unit.
        now: monotonic seconds.
        wall: seconds since the epoch.
    """
    admitted = admitted_since(unit)
    if admitted is None:
        return None
    return now - min(max(0.0, wall - admitted), max(0.0, unit.timeout - AT_START))


def found_pinned(unit: Unit, now: float, wall: float) -> dict[str, float]:
    """Times from which the pins that a starting process finds count.

    Those of a minimum that is not bound yet count from the unit's admission, which its status has kept. Others, and
    those whose admission was not written any more, count from now.
    """
    admitted = found_admitted(unit, now, wall)
    since = now if admitted is None or unit.minimum_met(podstate.occupies_node) else admitted
    found = (pod for pod in unit.pods() if podstate.pinned_node(pod) and not podstate.waits_for_start(pod))
    return {pod.metadata.uid: since for pod in found}


def torn(unit: Unit) -> bool:
    """The unit has unbound pins, but its minimum lacks pods altogether."""
    return any(podstate.pinned_node(pod) for pod in unit.pods()) and not unit.minimum_met(lambda _pod: True)
