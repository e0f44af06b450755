"""Histograms of created → admitted → bound of every gang.

Each transition is observed exactly once, whoever leads.

The API object is the record. A transition is observed by the leader that has written it into the root's status, once
the write is known to have arrived: by its answer, or because the watch shows it. The status tells every later leader
what was observed: a condition that is True, or is False since another moment than the root's creation, has been True
before (``status`` dates a condition that was never True by the creation). So a restart observes no gang again, and a
gang that was admitted or bound while nobody led is observed by the next leader. Losing the minimum and getting it back
is no new admission: that is counted as a replan, by whoever has written the pins. Counters die with their process, as all
counters do: what was observed since the last scrape is lost.

Times are those of this process where it has seen the moment, else the API's, in whole seconds: a gang that another
process has admitted counts as admitted by the time of its first bind at the latest. Differences of clocks never show as
less than nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from covey.admission.nodes import Key, key_of
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import ADMITTED, ANNOTATION_ROOM, SCHEDULED
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.stage_times import minimum_reached_at, since_true

_STAGES: Final = (ADMITTED, SCHEDULED)
_BOUND: Final = "PodScheduled"


class Cause(StrEnum):
    """The reasons for which the minimum of a gang is admitted again."""

    #: Pins were given up before all of it was bound.
    RELEASED = "PinsReleased"
    #: Pods that were bound were lost.
    LOST = "PodsLost"
    OTHER = "Other"


@dataclass(slots=True)
class _GangTimes:
    """One root group: what its status has recorded, and the moments that were seen here."""

    uid: str
    recorded: set[str]
    #: Its status says that its minimum is admitted now.
    stands: bool = False
    admitted: float | None = None
    bound: float | None = None

    @property
    def has_been_admitted(self) -> bool:
        """Now or before."""
        return self.admitted is not None or ADMITTED in self.recorded

    @property
    def has_been_bound(self) -> bool:
        """Its whole minimum at once, now or before."""
        return self.bound is not None or SCHEDULED in self.recorded


class AdmissionTimes:
    """The gangs that this leader has looked at.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._gangs: dict[Key, _GangTimes] = {}

    def note_admission(self, unit: Unit, pods: Iterable[core.Pod]) -> None:
        """The minimum's pins have just been written: those of these pods."""
        times = self._of(unit.root)
        if times.has_been_admitted:
            metrics.GANG_REPLANS.labels(_cause(times, pods)).inc()
        times.admitted = times.admitted or self._clock()

    def look(self, unit: Unit) -> None:
        """Something of a unit has changed: perhaps its minimum is bound now. Costs nothing but while a gang is bound."""
        times = self._gangs.get(unit.key)
        if times is not None and times.admitted and not times.bound and unit.minimum_met(podstate.occupies_node):
            times.bound = self._clock()

    def before(self, root: core.Group) -> None:
        """A root's status is about to be written: what it says until now counts as observed."""
        self._of(root)

    def observe_status(self, unit: Unit, status: Mapping[str, Any]) -> bool:
        """The root's status is on the API server: observe what is new in it. Returns whether that is an admission."""
        times = self._of(unit.root)
        true = {condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"}
        for stage in _STAGES:
            if stage in true and stage not in times.recorded:
                times.recorded.add(stage)
                self._observe(stage, unit, times)
        stood, times.stands = times.stands, ADMITTED in true
        return times.stands and not stood

    def forget(self, root: Key) -> None:
        """The unit is gone."""
        self._gangs.pop(root, None)

    def _observe(self, stage: str, unit: Unit, times: _GangTimes) -> None:
        admitted = times.admitted or self._first_bind(unit)
        if stage == ADMITTED:
            created = core.seconds(unit.root.metadata.creation_timestamp)
            if created is not None:
                metrics.GANG_CREATED_TO_ADMITTED.observe(max(0.0, admitted - created))
            return
        bound = times.bound or _minimum_bound(unit) or self._clock()
        metrics.GANG_ADMITTED_TO_BOUND.observe(max(0.0, bound - admitted))

    def _first_bind(self, unit: Unit) -> float:
        bound = (since_true(pod, _BOUND) for pod in unit.pods())
        return min((time for time in bound if time is not None), default=self._clock())

    def _of(self, root: core.Group) -> _GangTimes:
        times = self._gangs.get(key_of(root))
        if times is None or times.uid != root.metadata.uid:
            admitted = core.condition(root.status.conditions, ADMITTED)
            stands = admitted is not None and admitted.status == "True"
            times = self._gangs[key_of(root)] = _GangTimes(root.metadata.uid, set(_recorded_stages(root)), stands)
        return times


def _cause(times: _GangTimes, pods: Iterable[core.Pod]) -> Cause:
    """The reason for which an admitted minimum had to be planned again; ``pods`` are those that got their places now."""
    if any(pod.metadata.annotation(ANNOTATION_ROOM) for pod in pods):
        return Cause.LOST
    return Cause.OTHER if times.has_been_bound else Cause.RELEASED


def _recorded_stages(root: core.Group) -> list[str]:
    """The stages that a root's status says were reached, now or before."""
    conditions = filter(None, (core.condition(root.status.conditions, stage) for stage in _STAGES))
    created = root.metadata.creation_timestamp
    return [
        condition.type
        for condition in conditions
        if condition.status == "True" or condition.last_transition_time != created
    ]


def _minimum_bound(unit: Unit) -> float | None:
    return minimum_reached_at(
        (
            role.minimum,
            [[since_true(pod, _BOUND) for pod in replica.pods] for replica in role.replicas if replica.whole],
        )
        for role in unit.roles
    )
