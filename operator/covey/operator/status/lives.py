"""Histograms of the life of gangs, and counts of rollouts and evacuations.

The life is bound → ready and created → ready, each observed once, by any process. And losses are counted. A gang (one
unit: one root group) is ready when its minimum has been Ready for the first time; that a container restarts or a
replica is replaced later is a loss (``covey_gang_degradations_total``) and no new life.

Exactly once. A unit is observed by the operator whose status says so for the first time (``unitStatuses``: phase and
``served``), once the status is written. A restarted operator begins with what the status says, so it observes no gang
again, and does observe one that became ready while no operator ran. The status lists the worst 64 units: one that it
leaves out counts as observed, so that nothing is counted twice. Counters die with their process, as all counters do.

Times are the API's, in whole seconds: of the root's creation, and of the pods' conditions PodScheduled and Ready.

Rollouts and evacuations count once for each change between two statuses, when the later one is written. The status
is the record. What it said before was counted by the process that wrote it, so a restarted operator counts
nothing again, and what happened while none ran is counted by the next one. Within one process the status that was
written last counts, for the watch may still show the one before that.

=============================  ===================================================================================
a rollout (``status.rollout``)
appears, or has another target it has *started*: by the spec, or, when the spec's revision was given up, as a step back
disappears, or has another     it has *finished*: completed, unready, rolled back, superseded, or withdrawn
has a hold of another time     it has begun to wait at the hold's gate
-----------------------------  -----------------------------------------------------------------------------------
an evacuation (conditions ``Evacuating``, ``EvacuationBlocked``)
the first becomes True         it has started
none is True any more          it has finished
EvacuationBlocked becomes True it is blocked
=============================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from prometheus_client import Counter

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.observability import operator_metrics as metrics
from covey.observability.lives import minimum_reached_at, since_true
from covey.operator.model.accepted import leaves_out, recorded_units
from covey.operator.model.observed import Observed
from covey.operator.status.units import Unit
from covey.operator.validation import AcceptedSpec


@dataclass(slots=True)
class _Life:
    """The state of a root group: whether its minimum has been Ready, and whether it is."""

    served: bool = False
    available: bool = False
    #: UID of the root; empty for what only a status tells of.
    root: str = ""


class Lives:
    """The units of the resources that this operator has looked at.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lives: dict[str, dict[int, _Life]] = {}

    def observe_status(
        self,
        owner: str,
        inference: DisaggregatedInference,
        observed: Observed,
        units: Iterable[Unit],
        before: Mapping[str, Any],
    ) -> None:
        """Observe what is new in the status of a resource that has been written.

        Args:
            owner: UID of the resource.
            inference: the resource.
            observed: the snapshot that the status was computed from.
            units: how far each unit has come.
            before: the status until now; it counts for what this process sees for the first time.
        """
        known = self._lives.get(owner)
        lives: dict[int, _Life] = {}
        for unit in units:
            report = unit.report
            life = _read_life(unit.number, before) if known is None else known.get(unit.number, _Life())
            if report is None:
                if life.available and unit.is_available:
                    lives[unit.number] = life
                continue
            if life.root not in {"", report.uid} and not (life.available and unit.is_available):
                # Another unit of this number. One that has never ceased to serve has only lost its root for a moment.
                life = _Life()
            lives[unit.number] = life
            if unit.is_available and not life.served:
                self._observe(inference, observed, unit, report.created)
            elif life.available and not unit.is_available:
                metrics.GANG_DEGRADATIONS.inc()
            life.root = report.uid
            life.available = unit.is_available
            life.served |= unit.is_available
        self._lives[owner] = lives

    def forget(self, owner: str) -> None:
        """Forget a resource that is gone."""
        self._lives.pop(owner, None)

    def _observe(self, inference: DisaggregatedInference, observed: Observed, unit: Unit, created: str) -> None:
        ready = _minimum(inference, observed, unit, "Ready") or self._clock()
        bound = _minimum(inference, observed, unit, "PodScheduled")
        if bound is not None:
            metrics.GANG_BOUND_TO_READY.observe(max(0.0, ready - bound))
        begun = core.seconds(created)
        if begun is not None:
            metrics.GANG_CREATED_TO_READY.observe(max(0.0, ready - begun))


def _read_life(unit: int, status: Mapping[str, Any]) -> _Life:
    """Read the state of a unit from a status that another process has written."""
    found = recorded_units(status).get(unit)
    if found is None:
        return _Life(served=leaves_out(status))
    return _Life(served=found.served, available=found.is_available)


def _minimum(inference: DisaggregatedInference, observed: Observed, unit: Unit, condition: str) -> float | None:
    """Time at which a condition of the unit's pods had become True in the minimum of every role."""
    pods: dict[str, dict[int, list[core.Pod]]] = {role.name: {} for role in inference.spec.roles}
    for slot, pod in observed.in_unit(unit.number).items():
        if slot.role in pods:
            pods[slot.role].setdefault(slot.replica, []).append(pod)
    return minimum_reached_at(
        (role.min_replicas, _whole(pods[role.name].values(), role.size, condition)) for role in inference.spec.roles
    )


def _whole(replicas: Iterable[list[core.Pod]], size: int, condition: str) -> list[list[float | None]]:
    return [[since_true(pod, condition) for pod in pods] for pods in replicas if len(pods) >= size]


#: A counter and the values of its labels.
Milestone = tuple[Counter, tuple[str, ...]]

_EVACUATES: Final = (names.EVACUATING, names.EVACUATION_BLOCKED)


class Start(StrEnum):
    """Cause for which a rollout has begun."""

    SPEC = "Spec"
    STEP_BACK = "StepBack"


class Result(StrEnum):
    """Result with which a rollout has ended."""

    COMPLETED = "Completed"
    UNREADY = "Unready"
    ROLLED_BACK = "RolledBack"
    SUPERSEDED = "Superseded"
    WITHDRAWN = "Withdrawn"


class Milestones:
    """Counts for the resources that this operator has looked at."""

    def __init__(self) -> None:
        self._written: dict[str, Mapping[str, Any]] = {}

    def count_status(
        self, owner: str, verdict: AcceptedSpec, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Count what is new in the status of a resource that has been written.

        Args:
            owner: UID of the resource.
            verdict: what is kept up of it.
            before: the status until now; it counts for what this process sees for the first time.
            after: the status that was written.
        """
        for counter, labels in find_milestones(verdict, self._written.get(owner, before), after):
            (counter.labels(*labels) if labels else counter).inc()
            if len(labels) == 1 and labels[0] in metrics.FORMER:
                counter.labels(metrics.FORMER[labels[0]]).inc()
        seconds = find_seconds_to_nodes(self._written.get(owner, before), after)
        if seconds is not None:
            metrics.CAPACITY_SECONDS.observe(seconds)
        self._written[owner] = after

    def forget(self, owner: str) -> None:
        """Forget a resource that is gone."""
        self._written.pop(owner, None)


def find_milestones(verdict: AcceptedSpec, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Milestone]:
    """Find the milestones between two statuses.

    Args:
        verdict: what is kept up of the resource.
        before: the status until now.
        after: the one that follows it.
    """
    yield from _of_rollout(verdict, before.get("rollout") or {}, after)
    yield from _of_evacuation(_true(before), _true(after))
    was, now = (_find_condition(each, names.CAPACITY_ASKED).get("reason") for each in (before, after))
    if now and now != was:
        yield metrics.CAPACITY_ANSWERS, (str(now),)


def find_seconds_to_nodes(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Find how long nodes were asked for that have come: everything is admitted now, and was not; None otherwise."""
    asked, admitted = _find_condition(before, names.CAPACITY_ASKED), _find_condition(after, names.ADMITTED)
    if (
        asked.get("reason") != names.REASON_COMING
        or admitted.get("status") != "True"
        or _find_condition(after, asked["type"])
    ):
        return None
    if _find_condition(before, names.ADMITTED).get("status") == "True":
        return None
    begun, ended = (core.seconds(each.get("lastTransitionTime")) for each in (asked, admitted))
    return max(0.0, ended - begun) if begun is not None and ended is not None else None


def _find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each["type"] == kind), {})


def _of_rollout(verdict: AcceptedSpec, old: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Milestone]:
    new = after.get("rollout") or {}
    was, now = old.get("toRevision"), new.get("toRevision")
    if was and was != now:
        yield metrics.ROLLOUTS_FINISHED, (_result(verdict, str(was), after),)
    if now and was != now:
        cause = Start.STEP_BACK if verdict.failed and now != verdict.wanted.hash else Start.SPEC
        yield metrics.ROLLOUTS_STARTED, (cause,)
    hold = new.get("hold")
    if hold and (was != now or _begun(hold) != _begun(old.get("hold") or {})):
        yield metrics.ROLLOUT_HOLDS, (str(hold["gate"]),)


def _result(verdict: AcceptedSpec, target: str, after: Mapping[str, Any]) -> Result:
    accepted = verdict.accepted
    if verdict.failed and target == verdict.wanted.hash:
        return Result.ROLLED_BACK
    if accepted is None or verdict.inference.spec.suspend:
        return Result.WITHDRAWN
    if accepted.revision.hash != target:
        return Result.SUPERSEDED
    lacks = any(role["ready"] < role["replicas"] for role in after.get("roles", ()))
    return Result.UNREADY if lacks else Result.COMPLETED


def _begun(hold: Mapping[str, Any]) -> tuple[object, object]:
    return hold.get("gate"), hold.get("since")


def _of_evacuation(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Milestone]:
    was, now = (any(kind in found for kind in _EVACUATES) for found in (old, new))
    if now and not was:
        yield metrics.EVACUATIONS_STARTED, ()
    if was and not now:
        yield metrics.EVACUATIONS_FINISHED, ()
    if names.EVACUATION_BLOCKED in new and names.EVACUATION_BLOCKED not in old:
        yield metrics.EVACUATIONS_BLOCKED, (new[names.EVACUATION_BLOCKED],)


def _true(status: Mapping[str, Any]) -> dict[str, str]:
    """The reasons of the conditions that are True."""
    return {each["type"]: each["reason"] for each in status.get("conditions") or () if each["status"] == "True"}
