"""Units that are below their minimum: what of it is lacking, since when, and what is to come of it.

A replica stands for the minimum as long as all its pods have their places: bound, or pinned and held for others to start
first. It is counted anew in every pass and latched nowhere. Since when a unit lacks something is remembered in the status
(``unitStatuses``), which another operator goes on from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from covey.api import constants as names
from covey.api import core
from covey.compile import Layout, Scale
from covey.operator.replicas.scale import States
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.snapshot.recorded import had_served, recorded_units


@dataclass(frozen=True, slots=True)
class Shortage:
    """A unit below its minimum.

    ``roles``: replicas that have their places and the minimum, of every role that has too few. ``since``: seconds since
    the epoch. ``served``: its minimum has been Ready before, so that something was lost.
    """

    unit: int
    roles: Mapping[str, tuple[int, int]]
    since: float
    served: bool

    @property
    def text(self) -> str:
        """``prefill 1/2, decode 0/1``."""
        return ", ".join(f"{name} {count}/{minimum}" for name, (count, minimum) in self.roles.items())


def find_shortages(
    scale: Scale, layout: Layout, states: States, observed: Observed, before: Mapping[str, Any]
) -> dict[int, Shortage]:
    """The units below their minimum, by number.

    Args:
        scale: what is wanted.
        layout: the units that there shall be.
        states: how far each replica has come.
        observed: the snapshot.
        before: the status so far, which remembers since when.
    """
    recorded = recorded_units(before)
    found: dict[int, Shortage] = {}
    short = [unit for unit in layout.units if _lacking(scale, _bound(scale, states, unit))]
    places = _count_in_place(observed) if short else Counter()
    for unit in short:
        roles = _lacking(scale, _in_place(scale, states, places, unit))
        if roles:
            # Times are told in whole seconds: rounded up, so that what was there before the loss is older than it.
            known = recorded[unit].below_since if unit in recorded else None
            since = known if known is not None else float(ceil(observed.now))
            found[unit] = Shortage(unit, roles, since, had_served(unit, before))
    return found


def _lacking(scale: Scale, counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (counts[name], count.minimum) for name, count in scale.roles.items() if counts[name] < count.minimum}


def _bound(scale: Scale, states: States, unit: int) -> dict[str, int]:
    roles = states.get(unit, {})
    return {name: sum(state.is_bound for state in roles.get(name, {}).values()) for name in scale.roles}


def _count_in_place(observed: Observed) -> Counter[tuple[int, str, int]]:
    """Pods that have their places, by unit, role and replica: counted once for all units."""
    return Counter((slot.unit, slot.role, slot.replica) for slot, pod in observed.current.items() if is_in_place(pod))


def _in_place(scale: Scale, states: States, places: Counter[tuple[int, str, int]], unit: int) -> dict[str, int]:
    """Replicas all of whose pods have their places."""
    return {
        name: sum(
            places[unit, name, number] >= state.size for number, state in states.get(unit, {}).get(name, {}).items()
        )
        for name in scale.roles
    }


def is_in_place(pod: core.Pod) -> bool:
    """It has its node for good: what is pinned and may start is bound in seconds, or gives its pin up."""
    held = names.GATE_START in core.gates(pod) and podstate.is_admitted(pod)
    return podstate.is_bound(pod) or held
