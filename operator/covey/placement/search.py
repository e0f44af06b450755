"""Beyond the exact method's budget: relaxations that prove infeasibility, and a bounded search for a placement.

Relaxation: when one role, or two together, fit in no candidate domain, neither does the gang. Search: the roles are
placed one after another, each exactly, the most demanding first; a role that finds no room is moved to the front and
all is tried again, a bounded number of times in each candidate. What neither settles is *unknown*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

from covey.placement.capacity.tables import Budget, SearchLimit
from covey.placement.choice.candidates import Solution
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.resources import rank
from covey.placement.model import Gang, Path, Refusal, Shape
from covey.placement.question.demands import Demand, admitted_counts, minimum_demands, place
from covey.placement.question.problem import Aims, build
from covey.placement.question.readiness import no_common_domain
from covey.placement.refusal.reasons import explain
from covey.placement.sharing.layout import natural

#: Candidates in which a placement is searched.
_CANDIDATES = 24
#: Orders of the roles that are tried in each.
_ORDERS = 6


class Search:
    """One gang that is too large for the exact method."""

    def __init__(self, gang: Gang, inventory: Inventory, aims: Aims, forbidden: Collection[Path], limit: int) -> None:
        self._gang = gang
        self._inventory = inventory
        self._aims = aims
        self._forbidden = forbidden
        self._limit = limit

    def minimum(self) -> dict[str, str] | Refusal | None:
        """Nodes for the minimum's missing pods, a proof that there are none, or None: unknown."""
        needed = minimum_demands(self._gang)
        roles = sorted({demand.role for demand in needed})
        unit = self._aims.unit if any(self._gang.roles[role].follow_unit for role in roles) else -1
        possible: dict[Path, DomainNode] | None = None
        for some in [*combinations(roles, 1), *combinations(roles, 2)]:
            part = [demand for demand in needed if demand.role in some]
            try:
                solution = self._solution(self._gang, part, None)
                fitting = {scope.path: scope for scope in solution.candidates() if solution.fits(scope, part)}
            except SearchLimit:
                continue
            if not fitting:
                return explain(self._gang, self._inventory, solution, part, self._forbidden)
            if solution.problem.structure.scope == unit:
                possible = fitting if possible is None else {p: d for p, d in possible.items() if p in fitting}
        if possible is None:
            return None
        if not possible:
            return no_common_domain(self._gang)
        return self._in_some(possible.values(), needed)

    def everything(self, demands: Sequence[Demand]) -> dict[str, str] | None:
        """Nodes for all demands, surplus too, if that is easily done."""
        try:
            solution = self._solution(self._gang, demands, None)
        except SearchLimit:
            return None
        followers = [scope for scope in solution.candidates() if solution.problem.admits(scope)]
        return self._in_some(followers, demands) if solution.problem.structure.scope == self._aims.unit else None

    def _in_some(self, candidates: Collection[DomainNode], demands: Sequence[Demand]) -> dict[str, str] | None:
        """Place everything in one of the candidates, the largest tried first."""
        ranked = sorted(candidates, key=lambda d: (-len(d.nodes), [natural(value) for value in d.path]))
        for scope in ranked[:_CANDIDATES]:
            nodes = self._within(scope.path, demands)
            if nodes is not None:
                return nodes
        return None

    def surplus(self, demands: Sequence[Demand]) -> dict[str, str]:
        """Nodes for surplus, one replica (or ``together`` set) at a time, the emptiest role first."""
        nodes: dict[str, str] = {}
        gang, waiting = self._gang, list(demands)
        with self._trial() as held:
            while waiting:
                admitted = admitted_counts(gang)
                first = min(waiting, key=lambda d: (admitted[d.role] / max(gang.roles[d.role].desired, 1), d.role))
                mark = first.replica.together
                increment = [d for d in waiting if d is first or (mark is not None and d.replica.together == mark)]
                waiting = [d for d in waiting if d not in increment]
                try:
                    found = self._placed(gang, increment, None)
                except SearchLimit:
                    found = None
                if found is not None:
                    gang = held(gang, increment, found)
                    nodes |= found
        return nodes

    def _within(self, scope: Path, needed: Sequence[Demand]) -> dict[str, str] | None:
        """Place role after role inside one candidate."""
        order = sorted({demand.role for demand in needed}, key=lambda role: (-self._weight(role), role))
        for _ in range(_ORDERS):
            nodes, failed = self._one_order(scope, needed, order)
            if failed is None:
                return nodes
            if order[0] == failed:
                return None
            order = [failed, *(role for role in order if role != failed)]
        return None

    def _one_order(
        self, scope: Path, needed: Sequence[Demand], order: Sequence[int]
    ) -> tuple[dict[str, str], int | None]:
        nodes: dict[str, str] = {}
        gang = self._gang
        with self._trial() as held:
            for role in order:
                part = [demand for demand in needed if demand.role == role]
                follows = gang.roles[role].follow_unit
                try:
                    found = self._placed(gang, part, scope if follows or not scope else None)
                except SearchLimit:
                    found = None
                if found is None:
                    return {}, role
                gang = held(gang, part, found)
                nodes |= found
        return nodes, None

    @contextmanager
    def _trial(self) -> Iterator[_Held]:
        """Placements made meanwhile are held in the inventory, and released at the end."""
        held = _Held(self._inventory)
        try:
            yield held
        finally:
            held.release()

    def _placed(self, gang: Gang, part: Sequence[Demand], within: Path | None) -> dict[str, str] | None:
        solution = self._solution(gang, part, within)
        layout = solution.layout(())
        for scope in sorted(solution.candidates(), key=lambda d: (layout.prices.free(d), [natural(v) for v in d.path])):
            if solution.fits(scope, part):
                return solution.place(scope, layout, part)
        return None

    def _solution(self, gang: Gang, part: Sequence[Demand], within: Path | None) -> Solution:
        as_minimum = [Demand(d.role, d.replica, minimum=True) for d in part]
        problem = build(gang, self._inventory, as_minimum, self._aims, self._aims, self._forbidden, within)
        return Solution(gang, self._inventory, problem, as_minimum, Budget(self._limit))

    def _weight(self, role: int) -> int:
        """How demanding one replica of a role is: what it asks of its first resource."""
        replica = self._gang.roles[role].replicas[0]
        return sum(_first(pod.shape) for pod in replica.pods)


class _Held:
    """Holds of a trial."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._keys: list[str] = []

    def __call__(self, gang: Gang, part: Sequence[Demand], nodes: dict[str, str]) -> Gang:
        """Hold what was placed, and return the gang with it."""
        for demand in part:
            for pod in demand.missing:
                self._keys.append(f"trial/{pod.key}")
                self._inventory.hold(self._keys[-1], nodes[pod.key], pod.shape, pod.meta)
        return place(gang, nodes)

    def release(self) -> None:
        for key in self._keys:
            self._inventory.release(key)


def _first(shape: Shape) -> int:
    return min(shape.requests, key=lambda request: rank(request[0]))[1]
