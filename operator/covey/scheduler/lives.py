"""The life of every gang (created → admitted → bound) as histograms, and the preferred levels that it reached.

Each transition is observed exactly once, whoever leads.

The API object is the record. A transition is observed by the leader that has written it into the root's status, once
the write is known to have arrived: by its answer, or because the watch shows it. The status tells every later leader
what was observed: a condition that is True, or is False since another moment than the root's creation, has been True
before (``status`` dates a condition that was never True by the creation). So a restart observes no gang again, and a
gang that was admitted or bound while nobody led is observed by the next leader. Losing the minimum and getting it back
is no new life: that is counted as a replan, by whoever has written the pins. Counters die with their process, as all
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

from covey.admission.levels import Preference
from covey.admission.tree import Key, Unit, key_of
from covey.api import core
from covey.api.constants import ADMITTED, ANNOTATION_ROOM, SCHEDULED
from covey.model import podstate
from covey.observability import scheduler_metrics as metrics
from covey.observability.lives import minimum_reached_at, since_true
from covey.placement.model import Topology

#: A preferred level that the topology does not have: upstream groups name label keys, which anybody can make up.
OTHER: Final = "Other"


def count_level(preference: Preference, topology: Topology) -> None:
    """Count a preference of a gang that has its places."""
    known = any(level.name == preference.level for level in topology.levels)
    reached = preference.reached_level(topology)
    met = str(preference.is_met(topology)).lower()
    metrics.PREFERRED_LEVELS.labels(preference.scope, preference.level if known else OTHER, reached, met).inc()


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
class _Life:
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


class Lives:
    """The gangs that this leader has looked at.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lives: dict[Key, _Life] = {}

    def note_admission(self, unit: Unit, pods: Iterable[core.Pod]) -> None:
        """The minimum's pins have just been written: those of these pods."""
        life = self._of(unit.root)
        if life.has_been_admitted:
            metrics.GANG_REPLANS.labels(_cause(life, pods)).inc()
        life.admitted = life.admitted or self._clock()

    def look(self, unit: Unit) -> None:
        """Something of a unit has changed: perhaps its minimum is bound now. Costs nothing but while a gang is bound."""
        life = self._lives.get(unit.key)
        if life is not None and life.admitted and not life.bound and unit.minimum_met(podstate.occupies_node):
            life.bound = self._clock()

    def before(self, root: core.Group) -> None:
        """A root's status is about to be written: what it says until now counts as observed."""
        self._of(root)

    def observe_status(self, unit: Unit, status: Mapping[str, Any]) -> bool:
        """The root's status is on the API server: observe what is new in it. Returns whether that is an admission."""
        life = self._of(unit.root)
        true = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
        for stage in _STAGES:
            if stage in true and stage not in life.recorded:
                life.recorded.add(stage)
                self._observe(stage, unit, life)
        stood, life.stands = life.stands, ADMITTED in true
        return life.stands and not stood

    def forget(self, root: Key) -> None:
        """The unit is gone."""
        self._lives.pop(root, None)

    def _observe(self, stage: str, unit: Unit, life: _Life) -> None:
        admitted = life.admitted or self._first_bind(unit)
        if stage == ADMITTED:
            created = core.seconds(unit.root.metadata.creation_timestamp)
            if created is not None:
                metrics.GANG_CREATED_TO_ADMITTED.observe(max(0.0, admitted - created))
            return
        bound = life.bound or _minimum_bound(unit) or self._clock()
        metrics.GANG_ADMITTED_TO_BOUND.observe(max(0.0, bound - admitted))

    def _first_bind(self, unit: Unit) -> float:
        bound = (since_true(pod, _BOUND) for pod in unit.pods())
        return min((each for each in bound if each is not None), default=self._clock())

    def _of(self, root: core.Group) -> _Life:
        life = self._lives.get(key_of(root))
        if life is None or life.uid != root.metadata.uid:
            said = core.condition(root.status.conditions, ADMITTED)
            stands = said is not None and said.status == "True"
            life = self._lives[key_of(root)] = _Life(root.metadata.uid, set(_recorded_stages(root)), stands)
        return life


def _cause(life: _Life, pods: Iterable[core.Pod]) -> Cause:
    """The reason for which an admitted minimum had to be planned again; ``pods`` are those that got their places now."""
    if any(pod.metadata.annotation(ANNOTATION_ROOM) for pod in pods):
        return Cause.LOST
    return Cause.OTHER if life.has_been_bound else Cause.RELEASED


def _recorded_stages(root: core.Group) -> list[str]:
    """The stages that a root's status says were reached, now or before."""
    found = (core.condition(root.status.conditions, stage) for stage in _STAGES)
    return [
        each.type
        for each in found
        if each and (each.status == "True" or each.last_transition_time != root.metadata.creation_timestamp)
    ]


def _minimum_bound(unit: Unit) -> float | None:
    return minimum_reached_at(
        (
            role.minimum,
            [[since_true(pod, _BOUND) for pod in replica.pods] for replica in role.replicas if replica.whole],
        )
        for role in unit.roles
    )
