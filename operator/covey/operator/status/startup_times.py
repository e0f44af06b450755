"""Start-up times of gangs: histograms of bound → ready and created → ready, each observed once, by any process.

A gang (one unit: one root group) is ready when its minimum has been Ready for the first time; that a container restarts
or a replica is replaced later is a loss (``covey_gang_degradations_total``) and no new start-up.

Exactly once. A unit is observed by the operator whose status says so for the first time (``unitStatuses``: phase and
``served``), once the status is written. A restarted operator begins with what the status says, so it observes no gang
again, and does observe one that became ready while no operator ran. The status lists the worst 64 units: one that it
leaves out counts as observed, so that nothing is counted twice. Counters die with their process, as all counters do.

Times are the API's, in whole seconds: of the root's creation, and of the pods' conditions PodScheduled and Ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.observability import operator_metrics as metrics
from covey.observability.stage_times import minimum_reached_at, since_true
from covey.operator.model.observed import Observed
from covey.operator.model.recorded_status import leaves_out, recorded_units
from covey.operator.status.units import UnitSummary


@dataclass(slots=True)
class _UnitState:
    """The state of a root group: whether its minimum has been Ready, and whether it is."""

    served: bool = False
    available: bool = False
    #: UID of the root; empty for what only a status tells of.
    root: str = ""


class StartupTimes:
    """The units of the resources that this operator has looked at.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._units: dict[str, dict[int, _UnitState]] = {}

    def observe_status(
        self,
        owner: str,
        inference: DisaggregatedInference,
        observed: Observed,
        units: Iterable[UnitSummary],
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
        known = self._units.get(owner)
        states: dict[int, _UnitState] = {}
        for unit in units:
            report = unit.report
            state = _read_state(unit.number, before) if known is None else known.get(unit.number, _UnitState())
            if report is None:
                if state.available and unit.is_available:
                    states[unit.number] = state
                continue
            if state.root not in {"", report.uid} and not (state.available and unit.is_available):
                # Another unit of this number. One that has never ceased to serve has only lost its root for a moment.
                state = _UnitState()
            states[unit.number] = state
            if unit.is_available and not state.served:
                self._observe(inference, observed, unit, report.created)
            elif state.available and not unit.is_available:
                metrics.GANG_DEGRADATIONS.inc()
            state.root = report.uid
            state.available = unit.is_available
            state.served |= unit.is_available
        self._units[owner] = states

    def forget(self, owner: str) -> None:
        """Forget a resource that is gone."""
        self._units.pop(owner, None)

    def _observe(self, inference: DisaggregatedInference, observed: Observed, unit: UnitSummary, created: str) -> None:
        ready = _minimum(inference, observed, unit, "Ready") or self._clock()
        bound = _minimum(inference, observed, unit, "PodScheduled")
        if bound is not None:
            metrics.GANG_BOUND_TO_READY.observe(max(0.0, ready - bound))
        begun = core.seconds(created)
        if begun is not None:
            metrics.GANG_CREATED_TO_READY.observe(max(0.0, ready - begun))


def _read_state(unit: int, status: Mapping[str, Any]) -> _UnitState:
    """Read the state of a unit from a status that another process has written."""
    recorded = recorded_units(status).get(unit)
    if recorded is None:
        return _UnitState(served=leaves_out(status))
    return _UnitState(served=recorded.served, available=recorded.is_available)


def _minimum(inference: DisaggregatedInference, observed: Observed, unit: UnitSummary, condition: str) -> float | None:
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
