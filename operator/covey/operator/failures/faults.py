"""Failures of one replica, as its pods show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names
from covey.api import core, times
from covey.compile import Slot
from covey.operator.failures.causes import Cause, ended
from covey.operator.snapshot import podstate
from covey.operator.snapshot.places import Place

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
    why = ended(last)
    return Fault(place.slot, last, why) if why is not None else None


def started(places: Sequence[Place]) -> float | None:
    """Time since which the replica counts as having been Ready, in seconds since the epoch; None before that.

    Its leader carries it, dead or alive; 0 where only pods that are Ready show it.
    """
    leader = places[0]
    pods = [each for each in (leader.now, *leader.others) if each is not None]
    if pods:
        return podstate.started(max(pods, key=age))
    if leader.grave is not None:
        return leader.grave.started
    # The pod that carried it is gone without a trace. What still serves was Ready.
    return 0.0 if any(place.now is not None and podstate.is_ready(place.now) for place in places) else None


def pods_of(places: Iterable[Place]) -> list[core.Pod]:
    """All pods that there are in these places."""
    return [pod for place in places for pod in (place.now, *place.others) if pod is not None]


def failing_since(faults: Iterable[Fault]) -> float | None:
    """Time since which a failure is known that was not acted on; None for one that is seen for the first time."""
    marks = (times.seconds(fault.pod.metadata.annotation(ANNOTATION_SINCE)) for fault in faults)
    return min((at for at in marks if at is not None), default=None)


def age(pod: core.Pod) -> tuple[str, str]:
    """Orders pods by their creation, the youngest last."""
    return pod.metadata.creation_timestamp, pod.metadata.uid


def created(pod: core.Pod) -> float:
    """Creation time of a pod, in seconds since the epoch."""
    return times.seconds(pod.metadata.creation_timestamp) or 0.0


def revision_of(pod: core.Pod) -> str:
    """Hash of the revision that a pod was made from."""
    return pod.metadata.label(names.LABEL_REVISION) or ""
