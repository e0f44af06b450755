"""Trial placements, held in the inventory for a while, and surplus in the order in which it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from covey.placement.model import Gang
from covey.placement.overlay import Overlay
from covey.placement.question.demands import Demand, admitted_counts, place


def hold_placement(changes: Overlay, gang: Gang, part: Sequence[Demand], nodes: dict[str, str]) -> Gang:
    """Hold what was placed, for the time of an overlay, and return the gang with it."""
    for demand in part:
        for pod in demand.missing:
            changes.hold(f"trial/{pod.key}", nodes[pod.key], pod.shape, pod.meta)
    return place(gang, nodes)


def steps(gang: Gang, waiting: Sequence[Demand], most: int) -> list[list[Demand]]:
    """Return the steps in which surplus is taken if all of it fits, the emptiest role first: replicas or whole sets."""
    counts = admitted_counts(gang)
    own = [[demand for demand in waiting if demand.role == role][::-1] for role in range(len(gang.roles))]
    sets: dict[str, list[Demand]] = {}
    for demand in waiting:
        if demand.replica.together is not None:
            sets.setdefault(demand.replica.together, []).append(demand)
    common = lcm(*(max(role.desired, 1) for role in gang.roles))
    weights = [common // max(role.desired, 1) for role in gang.roles]
    found: list[list[Demand]] = []
    while len(found) < most and any(own):
        role = min(
            (role for role, left in enumerate(own) if left), key=lambda role: (counts[role] * weights[role], role)
        )
        demand = own[role].pop()
        mark = demand.replica.together
        step = [demand] if mark is None else sets.pop(mark, [])
        for each in step:
            counts[each.role] += 1
        found += [step] if step else []
    return found


def alike(demand: Demand, refused: Sequence[Demand]) -> bool:
    """Tell whether a replica is like one that found no room: nothing of it is placed yet, and it comes alone."""
    return any(
        not demand.partial
        and not each.partial
        and demand.replica.together is None
        and each.replica.together is None
        and demand.role == each.role
        and [pod.shape for pod in demand.missing] == [pod.shape for pod in each.missing]
        for each in refused
    )
