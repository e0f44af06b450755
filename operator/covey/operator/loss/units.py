"""Losses of all units, and what is given up for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Backend, UnitReport
from covey.compile import Scale
from covey.operator.loss.giving_up import GivenUp, give_up
from covey.operator.loss.minimum import find_shortages
from covey.operator.replicas.scale import States
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.rollout import UnitState


def find_loss(
    inference: DisaggregatedInference,
    backend: Backend,
    scale: Scale,
    rolling: Mapping[int, UnitState | None],
    states: States,
    observed: Observed,
    before: Mapping[str, Any],
) -> GivenUp:
    """Find the units below their minimum, and decide what of them is given up.

    Args:
        inference: the resource, with the spec that is kept up.
        backend: says what could be placed elsewhere.
        scale: what is wanted.
        rolling: the units that there shall be, and what a rollout or an evacuation makes of them.
        states: how far each replica has come.
        observed: the snapshot.
        before: the status so far.
    """
    found = find_shortages(inference.spec, scale, rolling, states, observed, before)
    movable: dict[int, str] = {}
    reports: dict[int, UnitReport | None] = {}
    for unit in found.shortages:
        report = reports[unit] = backend.read_back(inference.metadata.name, unit, observed.of_unit(unit))
        movable[unit] = report.movable if report is not None else ""
    return give_up(
        inference.spec,
        found,
        movable,
        lambda unit: _is_refused(reports[unit], unit, observed),
        states,
        observed,
        before,
    )


def _is_refused(report: UnitReport | None, unit: int, observed: Observed) -> bool:
    """Tell whether the scheduler finds no room, by what it says of the unit or, where it latches that, of its pods."""
    said = report.admitted if report is not None else None
    if said is not None and said.status == "False" and said.reason in names.REFUSALS:
        return True
    return any(podstate.unschedulable(pod) is not None for pod in observed.in_unit(unit).values())
