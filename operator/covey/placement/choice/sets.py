"""Surplus with ``together`` marks: replicas that share a mark are admitted all or none, across roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Final

from covey.placement.capacity.tables import Table, Vector
from covey.placement.choice.candidates import Growth, Solution, fill_key, fullest
from covey.placement.cluster.domains import DomainNode
from covey.placement.model import Gang
from covey.placement.question.demands import Demand, admitted_counts

#: Choices of sets and of single replicas that are compared one against all; beyond, they are taken one by one.
_CHOICES: Final = 1 << 18

#: Sets that are compared with and without each other; each doubles the choices.
_SETS: Final = 6

_Sets = dict[str, list[Demand]]
#: How good a choice is (fill, replicas of each role, which sets), and the choice.
_Rated = tuple[tuple[Vector, Vector, tuple[bool, ...]], list[Demand]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Demands to admit, the candidates that hold them all (none: not even the minimum fits), and how full that is."""

    demands: list[Demand]
    scopes: list[DomainNode]
    fill: Vector = ()


def choose_sets(gang: Gang, solution: Solution, demands: Sequence[Demand]) -> Chosen:
    """Choose the minimum, and of the rest the leximin over all choices of sets, each whole or left out.

    When there is too much to compare: one replica, or one whole set, at a time.
    """
    sets: _Sets = {}
    rest = [demand for demand in demands if not demand.minimum]
    minimum = [demand for demand in demands if demand.minimum]
    for demand in rest:
        if demand.replica.together is not None:
            sets.setdefault(demand.replica.together, []).append(demand)
    singles = [[d for d in rest if d.role == i and d.replica.together is None] for i in range(len(gang.roles))]
    tables = [(scope, solution.table(scope)) for scope in solution.candidates()]
    scoped = [(scope, table) for scope, table in tables if table is not None]
    different = len({table.number for _, table in scoped})
    if len(sets) > _SETS or different * 2 ** len(sets) * prod(len(own) + 1 for own in singles) > _CHOICES:
        return _one_by_one(gang, solution, minimum, rest, sets)
    known: dict[int, _Rated | None] = {}
    for _, table in scoped:
        if table.number not in known:
            known[table.number] = _best(gang, solution, minimum, sets, singles, table)
    rated = max(
        (known_rating for known_rating in known.values() if known_rating is not None),
        key=lambda rating: rating[0],
        default=None,
    )
    if rated is None:
        return Chosen([], [])
    return Chosen(rated[1], [scope for scope, _ in scoped if solution.fits(scope, rated[1])], rated[0][0])


def _best(
    gang: Gang,
    solution: Solution,
    minimum: Sequence[Demand],
    sets: _Sets,
    singles: Sequence[Sequence[Demand]],
    table: Table,
) -> _Rated | None:
    """Choose the best filled of all choices of sets, each with the single replicas that fill best next to it."""
    choices = product((True, False), repeat=len(sets))
    rated = (_choose_sets(gang, solution, minimum, sets, taken, singles, table) for taken in choices)
    return max((rating for rating in rated if rating is not None), key=lambda rating: rating[0], default=None)


def _choose_sets(
    gang: Gang,
    solution: Solution,
    minimum: Sequence[Demand],
    sets: _Sets,
    taken: tuple[bool, ...],
    singles: Sequence[Sequence[Demand]],
    table: Table,
) -> _Rated | None:
    """Choose exactly these sets, and the single replicas that fill best next to them; None when the sets do not fit."""
    chosen = [*minimum, *(replica for held, take in zip(sets.values(), taken, strict=True) if take for replica in held)]
    admitted = admitted_counts(gang)
    for demand in chosen:
        admitted[demand.role] += 1
    kinds = solution.problem.kinds
    growths = [
        Growth(tuple(kinds[d.role, d.replica.replica] for d in own), n, role.desired)
        for own, n, role in zip(singles, admitted, gang.roles, strict=True)
    ]
    counts = fullest(table, solution.order, solution.problem.base(chosen), growths)
    if counts is None:
        return None
    chosen += [demand for own, n in zip(singles, counts, strict=True) for demand in own[:n]]
    after = tuple(a + n for a, n in zip(admitted, counts, strict=True))
    return (fill_key(counts, growths), after, taken), chosen


def _one_by_one(
    gang: Gang, solution: Solution, minimum: Sequence[Demand], rest: Sequence[Demand], sets: _Sets
) -> Chosen:
    """One replica, or one whole set, at a time, for the role that is least filled.

    A set that does not fit is left out and blocks nothing else: it cannot fit later, as room only shrinks.
    """
    admitted = admitted_counts(gang)
    chosen = [*minimum]
    for demand in minimum:
        admitted[demand.role] += 1
    waiting = [[d for d in rest if d.role == role] for role in range(len(gang.roles))]
    scopes = [scope for scope in solution.candidates() if solution.fits(scope, chosen)]
    while scopes and any(waiting):
        role = min(
            (i for i, held in enumerate(waiting) if held),
            key=lambda i: (Fraction(admitted[i], max(gang.roles[i].desired, 1)), i),
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
    growths = [Growth((), n, role.desired) for n, role in zip(admitted, gang.roles, strict=True)]
    return Chosen(chosen if scopes else [], scopes, fill_key([0] * len(growths), growths))
