"""Replicas that were left with exhausted restarts, and serve again: their restarts are forgiven.

A replica whose failures are exhausted is only left: the kubelet starts its containers again, and it may get Ready. Then
nothing of it is given up for that failure any more, whatever becomes of ``maxRestarts``. It is reported as exhausted
until it has been Ready for as long as failures are remembered, or until ``maxRestarts`` allows what has happened. Then
its restarts are noted as no failures, and it counts as Ready since it came back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.model import podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.place import Place
from covey.operator.repair.container_restarts import counts, dump_baseline
from covey.operator.repair.failures import ANNOTATION_SINCE, FailureCause, Fault, annotate, serves

#: On a failed pod that is left as it is, because the restarts of its replica are exhausted.
ANNOTATION_LEFT: Final = "covey.dev/left-failed"


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
