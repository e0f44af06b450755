"""Surplus with ``together`` marks: replicas that share a mark are admitted all or none, across roles."""

from __future__ import annotations

from collections.abc import Sequence

from covey.placement.domains import DomainNode
from covey.placement.model import Gang
from covey.placement.request import Demand, admitted_counts
from covey.placement.solve import Solution


def choose_sets(gang: Gang, solution: Solution, demands: Sequence[Demand]) -> tuple[list[Demand], list[DomainNode]]:
    """Which demands to admit, and the candidates that hold them all.

    One replica, or one whole set, at a time, for the role that is least filled; a set that does not fit is left out
    and blocks nothing else. What is left out cannot fit later, as room only shrinks.
    """
    sets: dict[str, list[Demand]] = {}
    for demand in demands:
        if demand.replica.together is not None:
            sets.setdefault(demand.replica.together, []).append(demand)
    admitted = admitted_counts(gang)
    waiting = [[d for d in demands if d.role == role] for role in range(len(gang.roles))]
    scopes = [scope for scope in solution.candidates() if solution.fits(scope, [])]
    chosen: list[Demand] = []
    while scopes and any(waiting):
        role = min(
            (i for i, held in enumerate(waiting) if held),
            key=lambda i: (admitted[i] / max(gang.roles[i].desired, 1), i),
        )
        demand = waiting[role][0]
        mark = demand.replica.together
        increment = [demand] if mark is None else sets[mark]
        waiting = [[d for d in held if d not in increment] for held in waiting]
        fitting = [scope for scope in scopes if solution.fits(scope, [*chosen, *increment])]
        if fitting:
            scopes = fitting
            chosen += increment
            for one in increment:
                admitted[one.role] += 1
    return chosen, scopes
