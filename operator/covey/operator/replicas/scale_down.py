"""The choice of units that stay when there are too many.

Victims are chosen in this order, units like replicas (by their minimum, and the sum over their pods). Of units those go
before that serve nobody, and then those of whose minimum fewer pods hold nodes: one that waits for room takes no nodes
from one that was hit.

1. not admitted, 2. not bound, 3. not Ready, 4. those that lack pods (what was begun goes on),
5. the lowest sum of ``controller.kubernetes.io/pod-deletion-cost`` (KEP-2255),
6. the smallest share of pods that are Ready, bound, admitted,
7. those whose going frees most room (``freed_room``), 8. the highest number.

Growth fills free numbers, lowest first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

from covey.api import constants as names
from covey.compile.layout import Scale
from covey.operator.model.observed import Observed, number
from covey.operator.replicas.freed_room import Rooms
from covey.operator.replicas.progress import ReplicaState, Standing, States

#: Of pods that there should be, those that are Ready, bound, admitted.
_NO_SHARES: Standing = (0.0, 0.0, 0.0)


_NO_PROGRESS: Standing = (0.0, 0.0, 0.0, 0.0)


def choose_units(scale: Scale, observed: Observed, states: States) -> tuple[int, ...]:
    """Choose the units that there shall be, given those that there are."""
    groups = {number(owned.metadata, names.LABEL_UNIT) for owned in observed.objects.values()} - {None}
    existing = {unit for unit in {*states, *groups} if unit is not None}
    rooms = Rooms(observed.current.items()).of_units() if len(existing) > scale.units else {}
    units = {unit: (*_unit_standing(scale, states.get(unit, {})), *rooms.get(unit, ())) for unit in existing}
    return keep_numbers(units, scale.units)


def _unit_standing(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> Standing:
    """Worth of a unit: whether it serves, the nodes that its minimum holds, its worst replica, the cost, and what goes beyond."""
    worst: list[tuple[Standing, Standing]] = []
    beyond = [_NO_SHARES]
    serves, holding = True, 0
    for name, count in scale.roles.items():
        replicas = sorted(roles.get(name, {}).values(), key=lambda state: (state.progress, state.shares), reverse=True)
        if count.minimum:
            serves &= any(state.is_ready for state in replicas)
            holding += sum(state.admitted for state in replicas[: count.minimum])
        best = [(state.progress, state.shares) for state in replicas]
        worst += [*best, *[(_NO_PROGRESS, _NO_SHARES)] * count.minimum][: count.minimum]
        beyond += [shares for _, shares in best[count.minimum :]]
    progress, shares = min(worst, default=(_NO_PROGRESS, _NO_SHARES))
    cost = sum(state.cost for states in roles.values() for state in states.values())
    return (serves, holding, *progress, cost, *shares, *(sum(counts) for counts in zip(*beyond, strict=True)))


def keep_numbers(existing: Mapping[int, Standing], count: int, taken: Collection[int] = ()) -> tuple[int, ...]:
    """``count`` numbers: the best of the existing ones, then free ones from 0 that are not taken."""
    kept = set(sorted(existing, key=lambda n: ([-share for share in existing[n]], n))[:count])
    free = (n for n in range(count + len(kept) + len(taken)) if n not in kept and n not in taken)
    return tuple(sorted({*kept, *islice(free, count - len(kept))}))
