"""Which pins have outlived their reason: pure.

An admitted gang must be bound ``timeoutSeconds`` after ``Admitted=True`` on its root. A pin made later (surplus, a
replacement) has the same time from when it was seen; a restart gives it that time again. And a unit that keeps pins
while pods of its minimum do not even exist is given up after a short while: the pods that were let go are recreated
gated, with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from covey.api import core
from covey.api.constants import ADMITTED, RELEASE_CONFLICT, RELEASE_TIMEOUT
from covey.scheduler import podstate, times
from covey.scheduler.tree import Unit

#: Seconds that pins wait for missing pods of their minimum to be created.
GRACE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Due:
    """A pin, when it must be undone (seconds since the epoch), and why."""

    pod: core.Pod
    when: float
    reason: str


def due(unit: Unit, pinned_at: Mapping[str, float], torn_since: float | None) -> Iterator[Due]:
    """When each unbound pin of a unit runs out.

    Args:
        unit: the unit.
        pinned_at: UID → when the pin was first seen.
        torn_since: when it was first seen that pods of the minimum do not exist.
    """
    found = core.condition(unit.root.status.conditions, ADMITTED)
    since = times.seconds(found.last_transition_time) if found is not None and found.status == "True" else None
    for pod in unit.pods():
        if podstate.pinned(pod) is None:
            continue
        start = max(since or 0.0, pinned_at.get(pod.metadata.uid, 0.0))
        yield Due(pod, start + unit.timeout, RELEASE_TIMEOUT)
        if torn_since is not None:
            yield Due(pod, torn_since + GRACE, RELEASE_CONFLICT)


def torn(unit: Unit) -> bool:
    """The unit has unbound pins, but its minimum lacks pods altogether."""
    return any(podstate.pinned(pod) for pod in unit.pods()) and not unit.minimum_met(lambda _pod: True)
