"""Proof of a refusal: for every candidate domain, the numbers of whole replicas of each role that it holds at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from covey.placement.capacity.tables import Array, Table, Vector
from covey.placement.choice.candidates import Solution
from covey.placement.model import Gang, Path, natural

#: Vectors of counts that are tried in one table.
_LISTED: Final = 1 << 16
#: Vectors that are tried in all tables together.
_LISTED_IN_ALL: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class Bound:
    """Upper bound on what one candidate domain holds: numbers of whole replicas of each role, none of which can grow.

    ``roles`` names the roles that the vectors in ``maximal`` count; the domain can hold exactly those vectors and the
    smaller ones, counted up to the minimum.
    """

    path: Path
    roles: tuple[str, ...]
    maximal: tuple[tuple[int, ...], ...]


def bounds(gang: Gang, solution: Solution, kinds: Sequence[Sequence[int]]) -> tuple[Bound, ...]:
    """Compute what every candidate holds at most, the candidates by name; nothing when the list would be too long.

    Args:
        gang: names the roles.
        solution: the candidates and their tables.
        kinds: for each role the classes of the replicas that it lacks, in the order they are taken.
    """
    roles = [i for i, own in enumerate(kinds) if own]
    scopes = sorted(solution.candidates(), key=lambda scope: [natural(value) for value in scope.path])
    if not roles:  # only half placed replicas are missing, and no candidate takes those
        return tuple(Bound(scope.path, (), ()) for scope in scopes)
    shape = [len(kinds[i]) + 1 for i in roles]
    tables = {scope.path: solution.table(scope) for scope in scopes}
    different = {table.number: table for table in tables.values() if table is not None}
    if prod(shape) * max(len(different), 1) > _LISTED_IN_ALL or prod(shape) > _LISTED:
        return ()
    vectors = _by_class(solution, [kinds[i] for i in roles], shape)
    most = {number: _maximal(table, vectors, shape) for number, table in different.items()}
    names = tuple(gang.roles[i].name for i in roles)
    return tuple(Bound(path, names, () if table is None else most[table.number]) for path, table in tables.items())


def _by_class(solution: Solution, kinds: Sequence[Sequence[int]], shape: Sequence[int]) -> Array:
    """Every combination of counts of the roles, as counts of the tables' classes."""
    counts = np.indices(shape).reshape(len(shape), -1)
    total = np.zeros((counts.shape[1], len(solution.order)), dtype=np.int64)
    for own, taken in zip(kinds, counts, strict=True):
        steps = np.array([[kind == of for of in solution.order] for kind in own], dtype=np.int64)
        total += np.concatenate([np.zeros((1, len(solution.order)), dtype=np.int64), np.cumsum(steps, axis=0)])[taken]
    return total


def _maximal(table: Table, vectors: Array, shape: Sequence[int]) -> tuple[Vector, ...]:
    """The combinations that fit of which no count can grow, in ascending order."""
    fits = table.hold(vectors).reshape(shape)
    grows = np.zeros_like(fits)
    for axis in range(len(shape)):
        grows |= np.concatenate(
            [np.take(fits, range(1, shape[axis]), axis), np.zeros_like(np.take(fits, [0], axis))], axis
        )
    return tuple(tuple(row) for row in np.argwhere(fits & ~grows).tolist())
