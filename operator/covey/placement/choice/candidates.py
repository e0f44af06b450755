"""Answers a `Problem`: is there a candidate domain that holds the minimum, which is best, and who goes where."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from covey.placement.capacity.engine import Engine
from covey.placement.capacity.frame import Structure
from covey.placement.capacity.tables import Budget, Table, Vector
from covey.placement.choice.surplus import Growth, fill_key, fullest
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, natural
from covey.placement.question.demands import Demand, admitted_counts
from covey.placement.question.problem import Problem, host_depth
from covey.placement.sharing.layout import Layout, counted_depths
from covey.placement.sharing.prices import Prices

#: Structures whose tables are kept between plans.
_ENGINES: Final = 24
#: Bytes that all of them together may take.
_REMEMBERED: Final = 48 << 20


#: How full a choice of surplus makes the roles, and the choice; the larger is the better.
_Rating = tuple[tuple[int, ...], Vector]

#: Cells beyond which a sketch prices nothing (`Layout`).
_SKETCHED: Final = 200_000


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate domain, how much further surplus of each role it takes, and how full that makes the roles."""

    scope: DomainNode
    counts: Vector
    fill: tuple[int, ...]


class Solution:
    """The candidates of a problem that hold its minimum."""

    def __init__(
        self, gang: Gang, inventory: Inventory, problem: Problem, demands: Sequence[Demand], budget: Budget
    ) -> None:
        self.problem = problem
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
            found = self.engine.tree.by_path.get(self.problem.anchor)
            return [found] if found is not None else []
        return self.engine.candidates()

    def feasible(self) -> bool:
        """Tell whether some candidate holds the minimum; all are looked at, as their order is arbitrary."""
        need = self._vector((0,) * len(self.roles))
        tables = {table for _, table in self.tables() if table is not None}
        return any(table.holds(need) for table in tables)

    @cached_property
    def choices(self) -> list[Choice]:
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
        return [Choice(scope, counts, fill) for rating, held in rated if rating == best for scope in held]

    def cheapest(self, scopes: Sequence[DomainNode], layout: Layout, chosen: Sequence[Demand]) -> DomainNode:
        """Choose among equally full candidates: fewest domains, least broken, tightest, then the first by name."""
        if len(scopes) == 1:
            return scopes[0]
        target = self.target(chosen)
        layout.look_at(scopes, target)
        above: dict[Path, int] = {}
        ranked: dict[tuple[Any, ...], list[DomainNode]] = {}
        for scope in scopes:
            domains, rest = layout.prices.split(layout.price(scope, target))
            ranked.setdefault((domains, _free_bits(scope, above), rest), []).append(scope)
        tied = [(layout.prices.free(scope), scope) for scope in ranked[min(ranked)]]
        least = min(free for free, _ in tied)
        tightest = [scope for free, scope in tied if free == least]
        return min(tightest, key=lambda scope: [natural(value) for value in scope.path])

    def layout(self, used: Collection[Path]) -> Layout:
        """Return a layout that charges nothing for domains that are used already."""
        counted = counted_depths(self.engine, self._host)
        self.engine.budget = self._budget
        return Layout(self.engine, self.problem.view, Prices(self.engine, used, counted))

    def sketch(self) -> Layout:
        """Return a layout that looks for some places, not for the best."""
        self.engine.budget = self._budget
        return Layout(self.engine, self.problem.view, Prices(self.engine, (), range(0)), _SKETCHED)

    def choose(self, counts: Vector, demands: Sequence[Demand]) -> list[Demand]:
        """Return the minimum and that many further replicas of each role."""
        left = list(counts)
        found = []
        for demand in demands:
            if not demand.minimum:
                left[demand.role] -= 1
            if demand.minimum or left[demand.role] >= 0:
                found.append(demand)
        return found

    def target(self, chosen: Sequence[Demand]) -> Vector:
        """Count these demands by class, in the order of the candidates' tables."""
        by_class = self.problem.base(chosen)
        return tuple(by_class[kind] for kind in self.order)

    def place(self, scope: DomainNode, layout: Layout, chosen: Sequence[Demand]) -> dict[str, str]:
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


def engine_for(inventory: Inventory, structure: Structure) -> Engine:
    """The engine of a structure, kept with the inventory as long as it is among those used last and all are small."""
    engines: OrderedDict[Any, Engine] = inventory.memo.setdefault("engines", OrderedDict())
    engine = engines.pop(structure, None)
    if engine is None or engine.size > _REMEMBERED:
        engine = Engine(structure, inventory)
    engines[structure] = engine
    while len(engines) > _ENGINES or (len(engines) > 1 and sum(each.size for each in engines.values()) > _REMEMBERED):
        engines.popitem(last=False)
    return engine
