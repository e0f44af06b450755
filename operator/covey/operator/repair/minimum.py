"""Units below their minimum: the replicas that they lack, and since when.

A replica stands for the minimum as long as all its pods are assigned nodes: bound, or pinned and held for others to
start first. It is counted again in every pass and latched nowhere. Since when a unit lacks something is remembered in
the status (``unitStatuses``), which another operator goes on from.

Something is *lost* only against the minimum that was met last (``unitStatuses[].metMinimum``): one that the owner has
raised since, or that a rollout or an evacuation is allowed to go below, is no loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter
from typing import Any

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import ReplicaKey, Scale, UnitCount
from covey.model import podstate
from covey.operator.feature import MinimumShortage
from covey.operator.intent import Intent
from covey.operator.model.observed import Observed
from covey.operator.model.recorded_status import find_served, recorded_units
from covey.operator.replicas.progress import ReplicaState, count_unit
from covey.rollout import RoleState, UnitState

Counts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Minimums:
    """The units below their minimum, and the minimum of each role that units have met last, both by number."""

    shortages: Mapping[int, MinimumShortage] = field(default_factory=dict)
    met: Mapping[int, Counts] = field(default_factory=dict)


def find_shortages(
    spec: DisaggregatedInferenceSpec, intent: Intent, observed: Observed, before: Mapping[str, Any]
) -> Minimums:
    """Find the units below their minimum.

    Args:
        spec: what is kept up.
        intent: what is wanted. Units that are queued like new ones lose nothing.
        observed: the snapshot.
        before: the status so far, which remembers since when.
    """
    scale, states = Scale.of(spec), intent.states
    recorded, served = recorded_units(before), find_served(intent.units, before) - intent.queued
    shortages: dict[int, MinimumShortage] = {}
    met: dict[int, Counts] = {}
    places: Counter[ReplicaKey] | None = None
    for unit, state in intent.units.items():
        count = count_unit(scale.roles, states.get(unit, {}), attrgetter("is_bound"))
        if not count.has_minimum:
            places = _count_in_place(observed) if places is None else places
            count = UnitCount.of(_in_place(states.get(unit, {}), places, unit), scale.roles)
        known = recorded.get(unit)
        owed = _last_met_minimum(count, known.met if known is not None else {}, state)
        if spec.gang.termination_delay_seconds is not None:
            met[unit] = owed
        if not count.has_minimum:
            lost = unit in served and not UnitCount(count.counts, owed).has_minimum
            # Times are written in whole seconds: rounded up, so that what was there before the loss is older than it.
            since = known.below_since if known is not None else None
            shortages[unit] = MinimumShortage(
                unit, count, since if since is not None else float(ceil(observed.now)), lost
            )
    return Minimums(shortages, met)


def _last_met_minimum(count: UnitCount, met: Counts, state: UnitState | None) -> Counts:
    """The minimum that was met last, as far as nobody has asked for less since."""
    minimums: dict[str, int] = {}
    for name, least in count.minimums.items():
        placed = count.counts.get(name, 0)
        before = least if placed >= least else min(met.get(name, least), least)
        role = state.roles.get(name) if state is not None else None
        minimums[name] = min(before, _allowed_minimum(role, placed)) if role is not None else before
    return minimums


def _allowed_minimum(role: RoleState, placed: int) -> int:
    """Fewest replicas of a role that its owner lets a rollout or an evacuation leave."""
    allowed = role.wanted
    if role.outdated:
        allowed -= role.budget.unavailable or 0
    if role.yields and role.leaving:
        allowed = min(allowed, placed - len(role.leaving))
    return max(allowed, 0)


def _count_in_place(observed: Observed) -> Counter[ReplicaKey]:
    """Pods that are assigned nodes, by unit, role and replica: counted once for all units."""
    return Counter(
        (slot.unit, slot.role, slot.replica) for slot, pod in observed.current.items() if podstate.is_in_place(pod)
    )


def _in_place(states: Mapping[str, Mapping[int, ReplicaState]], places: Counter[ReplicaKey], unit: int) -> Counts:
    """Replicas all of whose pods are assigned nodes."""
    return {
        name: sum(places[unit, name, number] >= state.size for number, state in replicas.items())
        for name, replicas in states.items()
    }
