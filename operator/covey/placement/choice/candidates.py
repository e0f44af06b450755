"""Answers a `PlacementProblem`: is there a candidate domain that holds the minimum, which is best, and who goes where.

The surplus is the leximin of admitted/desired over the roles, exactly: the emptiest role is as full as can be, then the
next emptiest, and so on; ties go to the role declared first. Taking replicas one by one from the emptiest role would not
do: the first one taken may block two others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations, islice
from math import ceil, lcm, prod
from typing import Any, Final

import numpy as np

from covey.placement.capacity.engine import engine_for
from covey.placement.capacity.tables import Array, Budget, Table, Vector
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Shape, natural
from covey.placement.question.demands import Demand, admitted_counts, lacking_pods
from covey.placement.question.problem import PlacementProblem, host_depth
from covey.placement.sharing.cost import Prices
from covey.placement.sharing.layout import Beside, DemandLayout, counted_depths

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


def nearest(counts: Vector, has_plan: Callable[[Vector], bool]) -> Vector | None:
    """Cut all counts by the least number with which a way is found; None when nothing is left."""
    low, high, cut = 0, max(counts, default=0), 0
    while cut < high and not has_plan(tuple(max(n - cut, 0) for n in counts)):
        low, cut = cut + 1, min(2 * cut + 1, high)
    if cut == high:
        return None
    while low < cut:
        middle = (low + cut) // 2
        low, cut = (low, middle) if has_plan(tuple(max(n - middle, 0) for n in counts)) else (middle + 1, cut)
    return tuple(max(n - cut, 0) for n in counts)


def _fill(role: Growth, count: int) -> Fraction:
    return Fraction(role.admitted + count, max(role.desired, 1))


def _level(roles: Sequence[Growth], growing: Sequence[int], counts: Vector, fill: Fraction) -> Vector:
    """Return the counts when growing roles are filled up to ``fill``, or as far as they go."""
    raised = list(counts)
    for i in growing:
        wanted = ceil(fill * max(roles[i].desired, 1)) - roles[i].admitted
        raised[i] = max(counts[i], min(wanted, len(roles[i].kinds)))
    return tuple(raised)


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


#: How full a choice of surplus makes the roles, and the choice; the larger is the better.
_Rating = tuple[tuple[int, ...], Vector]

#: Cells beyond which a sketch prices nothing (`DemandLayout`).
_SKETCHED: Final = 200_000


@dataclass(frozen=True, slots=True)
class DomainChoice:
    """A candidate domain, how much further surplus of each role it takes, and how full that makes the roles."""

    scope: DomainNode
    counts: Vector
    fill: tuple[int, ...]


class Solution:
    """The candidates of a problem that hold its minimum."""

    def __init__(
        self, gang: Gang, inventory: Inventory, problem: PlacementProblem, demands: Sequence[Demand], budget: Budget
    ) -> None:
        self.problem = problem
        self._gang = gang
        self._inventory = inventory
        self.engine = engine_for(inventory, problem.structure)
        self._budget = budget
        #: What was asked, and for which candidates alike this look has paid.
        self._tables: dict[Path, Table | None] = {}
        self._seen: set[int | None] = set()
        self._host = host_depth(inventory.topologies[gang.topology])
        streams = len(problem.structure.streams)
        self._frame = self.engine.frames[problem.structure.scope]
        #: The class that each dimension of the final tables counts.
        self.order = tuple(dimension - streams for dimension in self._frame.dimensions)
        self.base = problem.base([demand for demand in demands if demand.minimum])
        admitted = admitted_counts(gang)
        for demand in demands:
            admitted[demand.role] += demand.minimum
        kinds: list[list[int]] = [[] for _ in gang.roles]
        for demand in demands:
            if not demand.minimum:
                kinds[demand.role].append(problem.kinds[demand.role, demand.replica.replica])
        self.roles = [Growth(tuple(k), n, role.desired) for k, n, role in zip(kinds, admitted, gang.roles, strict=True)]
        self._fullest: dict[int, _Rating | None] = self.engine.fullest.setdefault((self.base, tuple(self.roles)), {})

    def table(self, scope: DomainNode) -> Table | None:
        """Compute what a candidate holds, in whole replicas by class; None when it cannot hold fixed parts."""
        if not self.problem.admits(scope):
            return None
        if scope.path not in self._tables:
            self.engine.budget = self._budget
            self._tables[scope.path] = self.engine.final(scope, self.problem.view, self._seen)
        table = self._tables[scope.path]
        barred = self.problem.barred_classes(scope) if self.problem.wide else []
        if table is None or not barred:
            return table
        return self._frame.tables.without(table, [self.order.index(kind) for kind in barred])

    def tables(self) -> Iterable[tuple[DomainNode, Table | None]]:
        """All candidates, and what each holds."""
        problem = self.problem
        if problem.view.plain and problem.anchor is None and not problem.wide:
            self.engine.budget = self._budget
            return self.engine.finals(self._seen)
        return ((scope, self.table(scope)) for scope in self.candidates())

    def candidates(self) -> Sequence[DomainNode]:
        """The candidate domains, in no order that matters."""
        if self.problem.anchor is not None:
            domain = self.engine.tree.by_path.get(self.problem.anchor)
            return [domain] if domain is not None else []
        return self.engine.candidates()

    def feasible(self) -> bool:
        """Tell whether some candidate holds the minimum; all are looked at, as their order is arbitrary."""
        need = self._vector((0,) * len(self.roles))
        tables = {table for _, table in self.tables() if table is not None}
        return any(table.holds(need) for table in tables)

    @cached_property
    def choices(self) -> list[DomainChoice]:
        """Return the candidates that allow the best filled surplus."""
        scopes: dict[Table, list[DomainNode]] = {}
        for scope, table in self.tables():
            if table is not None:
                scopes.setdefault(table, []).append(scope)
        rated = [(rating, held) for table, held in scopes.items() if (rating := self._best(table)) is not None]
        best = max((rating for rating, _ in rated), default=None)
        if best is None:
            return []
        fill, counts = best
        return [DomainChoice(scope, counts, fill) for rating, held in rated if rating == best for scope in held]

    def cheapest(self, scopes: Sequence[DomainNode], layout: DemandLayout, chosen: Sequence[Demand]) -> DomainNode:
        """Choose among equally full candidates: fewest domains, least broken, tightest, then the first by name.

        Before all that, one in which the whole gang fits beside what others in it lack, where there is such a one.
        """
        if len(scopes) == 1:
            return scopes[0]
        target = self.target(chosen)
        layout.look_at(scopes, target)
        above: dict[Path, int] = {}
        ranked: dict[tuple[Any, ...], list[DomainNode]] = {}
        for scope in scopes:
            domains, rest = layout.prices.split(layout.price(scope, target))
            ranked.setdefault((domains, _free_bits(scope, above), rest), []).append(scope)
        for rank in sorted(ranked) if self._inventory.outstanding else ():
            roomy = [scope for scope in ranked[rank] if self.leaves_room(scope)]
            if roomy:
                return self._tightest(roomy, layout)
        return self._tightest(ranked[min(ranked)], layout)

    def leaves_room(self, scope: DomainNode) -> bool:
        """Tell whether the whole gang fits into a candidate beside what the units that are pinned there lack."""
        gang, outstanding = self._gang, self._inventory.outstanding
        return not outstanding or outstanding.leaves_room(gang.topology, scope, self._lacking, gang.excluded_nodes)

    @cached_property
    def _lacking(self) -> Counter[Shape]:
        return lacking_pods(self._gang)

    def _tightest(self, scopes: Sequence[DomainNode], layout: DemandLayout) -> DomainNode:
        requests = partial(self._inventory.outstanding.requests, self._gang.topology)
        free = {scope: layout.prices.free(scope, requests(scope)) for scope in scopes}
        least = min(free.values())
        tied = (scope for scope in scopes if free[scope] == least)
        return min(tied, key=lambda scope: [natural(value) for value in scope.path])

    def layout(self, used: Collection[Path]) -> DemandLayout:
        """Return a layout that charges nothing for domains that are used already."""
        counted = counted_depths(self.engine, self._host)
        self.engine.budget = self._budget
        return DemandLayout(self.engine, self.problem.view, Prices(self.engine, used, counted), beside=self._beside())

    def _beside(self) -> Beside | None:
        """Return what the unit's domain is ranked by that lies inside a candidate, because not all its roles follow it."""
        gang, structure, outstanding = self._gang, self.problem.structure, self._inventory.outstanding
        if not outstanding or gang.required is None:
            return None
        depth = self._inventory.topologies[gang.topology].depth(gang.required)
        if depth <= structure.scope or structure.groups[:1] != (depth,) or 0 in self.problem.view.anchors:
            return None
        return Beside(depth, 1, partial(outstanding.requests, gang.topology), self.leaves_room)

    def sketch(self) -> DemandLayout:
        """Return a layout that looks for some places, not for the best."""
        self.engine.budget = self._budget
        return DemandLayout(self.engine, self.problem.view, Prices(self.engine, (), range(0)), _SKETCHED)

    def choose(self, counts: Vector, demands: Sequence[Demand]) -> list[Demand]:
        """Return the minimum and that many further replicas of each role."""
        left = list(counts)
        kept = []
        for demand in demands:
            if not demand.minimum:
                left[demand.role] -= 1
            if demand.minimum or left[demand.role] >= 0:
                kept.append(demand)
        return kept

    def target(self, chosen: Sequence[Demand]) -> Vector:
        """Count these demands by class, in the order of the candidates' tables."""
        by_class = self.problem.base(chosen)
        return tuple(by_class[kind] for kind in self.order)

    def place(self, scope: DomainNode, layout: DemandLayout, chosen: Sequence[Demand]) -> dict[str, str]:
        """Return the node of every missing pod of these demands, all of which fit together in a candidate."""
        keys = {(demand.role, demand.replica.replica) for demand in chosen}
        items = {
            kind: [item for item in held if (item.role, item.replica) in keys]
            for kind, held in self.problem.items.items()
        }
        return layout.place(scope, self.target(chosen), items, self.problem.fixed)

    def fits(self, scope: DomainNode, chosen: Sequence[Demand]) -> bool:
        """Tell whether these demands fit together in a candidate."""
        table = self.table(scope)
        return table is not None and table.holds(self.target(chosen))

    def _best(self, table: Table) -> _Rating | None:
        if table.number not in self._fullest:
            counts = fullest(table, self.order, self.base, self.roles)
            self._fullest[table.number] = None if counts is None else (fill_key(counts, self.roles), counts)
        return self._fullest[table.number]

    def _vector(self, counts: Vector) -> Vector:
        by_class = list(self.base)
        for role, count in zip(self.roles, counts, strict=True):
            for kind in role.kinds[:count]:
                by_class[kind] += 1
        return tuple(by_class[kind] for kind in self.order)


def _free_bits(domain: DomainNode, known: dict[Path, int]) -> int:
    """Return which of a domain and those above it are wholly free, as bits; the broadest has the highest bit."""
    parent = domain.parent
    if parent is None:
        return int(domain.broken == 0)
    if parent.path not in known:
        known[parent.path] = _free_bits(parent, known)
    return known[parent.path] << 1 | (domain.broken == 0)
