"""Choice of the surplus: the leximin of admitted/desired over the roles, exactly.

The emptiest role is as full as can be, then the next emptiest, and so on; ties go to the role declared first. Taking
replicas one by one from the emptiest role would not do: the first one taken may block two others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, islice
from math import ceil, lcm, prod
from typing import Final

import numpy as np

from covey.placement.capacity.tables import Array, Table, Vector

#: Combinations of counts that are compared one against all; beyond, only maximal ones are, or one by one.
_COMBINATIONS: Final = 1 << 16
#: Subsets of each size that are tried for who may take one more.
_SUBSETS: Final = 8
#: Fills below it, in parts of the common measure, are exact in 64 bits.
_SAFE: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth that one role may take: ``kinds`` are the classes of its next replicas, in the order they are taken."""

    kinds: tuple[int, ...]
    admitted: int
    desired: int


def fullest(table: Table, order: Sequence[int], base: Vector, roles: Sequence[Growth]) -> Vector | None:
    """Compute how many further replicas of each role to admit; None when not even ``base`` fits.

    Args:
        table: what fits, in whole replicas of each class.
        order: the class that each dimension of the table counts.
        base: replicas by class that are there whatever is chosen.
        roles: the roles that may grow.
    """
    sums = [_sums(role, len(base)) for role in roles]
    everything = tuple(len(role.kinds) for role in roles)
    if _fit(table, order, base, sums, [everything])[0]:
        return everything
    if not _fit(table, order, base, sums, [(0,) * len(roles)])[0]:
        return None
    if prod(n + 1 for n in everything) > _COMBINATIONS:
        return _one_by_one(table, order, base, roles, sums)
    counts = np.indices([n + 1 for n in everything]).reshape(len(roles), -1).T
    counts = counts[_fit(table, order, base, sums, counts)]
    return tuple(counts[_best(counts, roles)].tolist())


def fill_key(counts: Sequence[int], roles: Sequence[Growth]) -> tuple[int, ...]:
    """Return a key for comparing choices: the larger key is the better filled choice."""
    scale = _scale(roles)
    fills = [(role.admitted + n) * (scale // max(role.desired, 1)) for n, role in zip(counts, roles, strict=True)]
    return tuple(sorted(fills))


def _best(counts: Array, roles: Sequence[Growth]) -> int:
    scale = _scale(roles)
    if scale >= _SAFE:  # many roles of odd sizes have no common measure that 64 bits hold
        return max(range(len(counts)), key=lambda row: (fill_key(counts[row].tolist(), roles), counts[row].tolist()))
    weights = np.array([scale // max(role.desired, 1) for role in roles])
    fills = np.sort((counts + np.array([role.admitted for role in roles])) * weights, axis=1)
    keys = np.concatenate([fills, counts], axis=1)
    return int(np.lexsort(keys.T[::-1])[-1])


def _one_by_one(
    table: Table, order: Sequence[int], base: Vector, roles: Sequence[Growth], sums: Sequence[Array]
) -> Vector:
    """The leximin among the table's maximal points when each role has a class to itself, else one by one."""
    counts = [0] * len(roles)
    kinds = [set(role.kinds) for role in roles]
    if all(len(own) <= 1 for own in kinds) and sum(len(own) for own in kinds) == len(set().union(*kinds)):
        place = {kind: axis for axis, kind in enumerate(order)}
        own = [place[next(iter(kind))] if kind else None for kind in kinds]
        start = [base[next(iter(kind))] if kind else 0 for kind in kinds]
        floor = np.array([base[kind] for kind in order])
        points = np.array([p for p in table.points if (np.array(p) >= floor).all()])
        options = np.array(
            [
                [
                    min(p[axis] - s, len(r.kinds)) if axis is not None else 0
                    for axis, s, r in zip(own, start, roles, strict=True)
                ]
                for p in points
            ]
        )
        return tuple(options[_best(options, roles)].tolist())
    open_roles = set(range(len(roles)))
    while open_roles:
        role = min(open_roles, key=lambda i: ((roles[i].admitted + counts[i]) / max(roles[i].desired, 1), i))
        counts[role] += 1
        if counts[role] > len(roles[role].kinds) or not _fit(table, order, base, sums, [counts])[0]:
            counts[role] -= 1
            open_roles.remove(role)
    return tuple(counts)


def _sums(role: Growth, classes: int) -> Array:
    """Compute, in row n, what the role's first n further replicas are, by class."""
    steps = np.zeros((len(role.kinds) + 1, classes), dtype=np.int64)
    for row, kind in enumerate(role.kinds, start=1):
        steps[row, kind] = 1
    return np.cumsum(steps, axis=0)


def _fit(
    table: Table,
    order: Sequence[int],
    base: Vector,
    sums: Sequence[Array],
    counts: Array | list[Vector] | list[list[int]],
) -> Array:
    rows = np.asarray(counts, dtype=np.int64).reshape(-1, len(sums))
    vectors = np.tile(np.array(base, dtype=np.int64), (len(rows), 1))
    for role, steps in enumerate(sums):
        vectors += steps[rows[:, role]]
    return table.hold(vectors[:, list(order)])


def _scale(roles: Sequence[Growth]) -> int:
    return lcm(*(max(role.desired, 1) for role in roles)) if roles else 1


def fill_singles(roles: Sequence[Growth], fits: Callable[[Vector], bool]) -> Vector:
    """Compute how many further replicas of each role to admit when only single choices can be tried.

    All roles are filled alike as far as that fits; a role that can go no further stays where it is, and the others go
    on. That is the leximin of what fits.
    """
    counts: Vector = (0,) * len(roles)
    growing = [i for i, role in enumerate(roles) if role.kinds]
    while growing:
        fills = sorted({_fill(roles[i], n) for i in growing for n in range(counts[i] + 1, len(roles[i].kinds) + 1)})
        levels = [counts, *(_level(roles, growing, counts, fill) for fill in fills)]
        reached = _largest(levels, fits)
        counts = levels[reached]
        if reached == len(fills):
            return counts
        rising = [i for i in growing if levels[reached + 1][i] > counts[i]]
        raised = _raise_together(rising, counts, fits)
        counts = tuple(n + (i in raised) for i, n in enumerate(counts))
        growing = [i for i in growing if i not in rising or i in raised]
    return counts


def nearest(counts: Vector, found: Callable[[Vector], bool]) -> Vector | None:
    """Cut all counts by the least number with which a way is found; None when nothing is left."""
    low, high, cut = 0, max(counts, default=0), 0
    while cut < high and not found(tuple(max(n - cut, 0) for n in counts)):
        low, cut = cut + 1, min(2 * cut + 1, high)
    if cut == high:
        return None
    while low < cut:
        middle = (low + cut) // 2
        low, cut = (low, middle) if found(tuple(max(n - middle, 0) for n in counts)) else (middle + 1, cut)
    return tuple(max(n - cut, 0) for n in counts)


def _fill(role: Growth, count: int) -> Fraction:
    return Fraction(role.admitted + count, max(role.desired, 1))


def _level(roles: Sequence[Growth], growing: Sequence[int], counts: Vector, fill: Fraction) -> Vector:
    """Return the counts when growing roles are filled up to ``fill``, or as far as they go."""
    found = list(counts)
    for i in growing:
        wanted = ceil(fill * max(roles[i].desired, 1)) - roles[i].admitted
        found[i] = max(counts[i], min(wanted, len(roles[i].kinds)))
    return tuple(found)


def _largest(levels: Sequence[Vector], fits: Callable[[Vector], bool]) -> int:
    """Return the index of the last of ascending levels that fits; the first is assumed to fit."""
    low, high = 0, len(levels)
    if high > 1 and fits(levels[-1]):
        return high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(levels[middle]) else (low, middle)
    return low


def _raise_together(rising: Sequence[int], counts: Sequence[int], fits: Callable[[Vector], bool]) -> Sequence[int]:
    """Return as many roles as can take one replica more together; among equal numbers those declared first."""
    for number in range(len(rising) - 1, 0, -1):
        for some in islice(combinations(rising, number), _SUBSETS):
            if fits(tuple(n + (i in some) for i, n in enumerate(counts))):
                return some
    return ()
