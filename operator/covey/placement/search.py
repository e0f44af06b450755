"""Search beyond the exact tables' budget: cheap proofs, placements not proven the best, and surplus in large steps.

Proofs: a role that fits nowhere alone; a resource of which more is asked for than there is; weights under which the
demand is more than all nodes hold together (`sharing.lp_bound`); two roles that fit nowhere together. Placements: role
after role, each exactly, the most demanding first, and by mixtures. What neither settles is left to a last look.

Placements are tried one upon the other: each trial is held in the inventory for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import lcm
from typing import Any

from covey.placement.capacity.tables import Budget, SearchLimit, Vector
from covey.placement.choice.candidates import Solution, fill_singles, nearest
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.resources import rank
from covey.placement.model import Gang, Path, Refusal, Shape, natural
from covey.placement.overlay import Overlay, overlay
from covey.placement.question.demands import Demand, admitted_counts, minimum_demands, place
from covey.placement.question.domain_groups import Aims
from covey.placement.question.problem import build
from covey.placement.refusal.reasons import asked_for, explain, overdrawn, refuse_crowded
from covey.placement.sharing.cost import Place
from covey.placement.sharing.layout import DemandLayout
from covey.placement.sharing.mixture import Mixture


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
    steps: list[list[Demand]] = []
    while len(steps) < most and any(own):
        role = min(
            (role for role, left in enumerate(own) if left), key=lambda role: (counts[role] * weights[role], role)
        )
        demand = own[role].pop()
        mark = demand.replica.together
        step = [demand] if mark is None else sets.pop(mark, [])
        for refused in step:
            counts[refused.role] += 1
        steps += [step] if step else []
    return steps


def alike(demand: Demand, refused: Sequence[Demand]) -> bool:
    """Tell whether a replica is like one that found no room: nothing of it is placed yet, and it comes alone."""
    return any(
        not demand.partial
        and not other.partial
        and demand.replica.together is None
        and other.replica.together is None
        and demand.role == other.role
        and [pod.shape for pod in demand.missing] == [pod.shape for pod in other.missing]
        for other in refused
    )


#: Candidates in which a placement is searched.
_CANDIDATES = 24
#: Orders of the roles that are tried in each.
_ORDERS = 6
#: Looks at further surplus in one plan; what is left then waits for the next one.
_LOOKS = 256
#: More pods than this are placed by mixtures first, which is quicker.
_MANY = 256
#: A mixture that reaches less than this many times the need is tight: it is tried before roles one after another.
_TIGHT = 1.2


@dataclass(frozen=True, slots=True)
class _OpenCandidate:
    """A candidate that no proof rules out; without a mixture where that was too much work."""

    scope: DomainNode
    layout: DemandLayout
    mixture: Mixture[Place] | None
    need: Vector
    reach: float


class Search:
    """One gang that is too large for the exact tables."""

    def __init__(self, gang: Gang, inventory: Inventory, aims: Aims, limit: int) -> None:
        self._gang = gang
        self._inventory = inventory
        self._aims = aims
        self._limit = limit

    def refusal(self) -> Refusal | None:
        """Return a proof that the minimum has no places, or None."""
        needed = minimum_demands(self._gang)
        roles = sorted({demand.role for demand in needed})
        return (
            self._refuse_single_roles(needed, combinations(roles, 1))
            or self._refuse_crowded(needed)
            or self._refuse_single_roles(needed, combinations(roles, 2))
        )

    def find_places(self, demands: Sequence[Demand]) -> dict[str, str] | None:
        """Return nodes for all demands, if such are found."""
        solution = self._solution(self._gang, demands, None)
        confined = solution.problem.structure.scope == self._aims.unit
        many = sum(len(demand.missing) for demand in demands) > _MANY
        candidates = sorted(
            self._open(solution, demands), key=lambda candidate: not solution.leaves_room(candidate.scope)
        )
        for candidate in candidates[:_CANDIDATES]:
            ways: list[Callable[[], dict[str, str] | None]] = [
                partial(self._within, candidate.scope.path if confined else None, demands),
                partial(self._place_mixture, solution, candidate, demands),
            ]
            for way in reversed(ways) if many or candidate.reach < _TIGHT else ways:
                nodes = way()
                if nodes is not None:
                    return nodes
        return None

    def _refuse_single_roles(self, needed: Sequence[Demand], parts: Iterator[tuple[int, ...]]) -> Refusal | None:
        """The refusal of roles that fit nowhere even without the others."""
        for roles in parts:
            part = [demand for demand in needed if demand.role in roles]
            try:
                solution = self._solution(self._gang, part, None)
                if not solution.feasible():
                    return explain(self._gang, self._inventory, solution, part)
            except SearchLimit:
                continue
        return None

    def _refuse_crowded(self, needed: Sequence[Demand]) -> Refusal | None:
        """The refusal of demands that are more than any candidate has, in sum or under some weights."""
        solution = self._solution(self._gang, needed, None)
        if self._open(solution, needed):
            return None
        candidates = _rank_scopes(scope for scope in solution.candidates() if solution.problem.admits(scope))
        if not candidates:
            return None
        scope = candidates[0]
        room = partial(self._room, scope, needed)
        return refuse_crowded(self._gang, self._inventory, scope, needed, room)

    def _room(self, scope: DomainNode, needed: Sequence[Demand], role: int) -> int:
        """Compute an upper bound on the replicas of a role that fit into a candidate next to all others, by sums."""
        own = [demand for demand in needed if demand.role == role]
        total = Counter(asked_for([demand for demand in needed if demand.role != role]))
        for count, demand in enumerate(own):
            total.update(asked_for([demand]))
            if count == len(own) - 1 or overdrawn(scope, total) is not None:
                return count
        return 0

    def _open(self, solution: Solution, demands: Sequence[Demand]) -> list[_OpenCandidate]:
        """The candidates that no cheap proof rules out, the largest first."""
        asked = asked_for(demands)
        opened = []
        budget = Budget(self._limit)
        relaxed: Solution | None = None
        for scope in _rank_scopes(scope for scope in solution.candidates() if solution.problem.admits(scope)):
            if overdrawn(scope, asked) is not None:
                continue
            layout = solution.layout(())
            mixture: Mixture[Place] | None = None
            reach: float | None = 0.0
            need = layout.vector_below(scope, solution.target(demands))
            try:
                mixture = layout.mixture(scope, budget)
                reach = mixture.reach(need)
            except SearchLimit:
                mixture = None
                relaxed = relaxed or self._relax_levels(demands)
                reach = self._reach(relaxed, scope, demands)
            if reach is not None:
                opened.append(_OpenCandidate(scope, layout, mixture, need, reach))
        return opened

    def _relax_levels(self, demands: Sequence[Demand]) -> Solution:
        """The question without the levels inside a candidate: pods alone, wherever they lie."""
        loose = Aims(
            self._aims.unit,
            (-1,) * len(self._gang.roles),
            frozenset(),
            self._aims.spread,
            (-1,) * len(self._gang.rules),
        )
        roles = tuple(replace(role, required=None) for role in self._gang.roles)
        whole = [replace(demand, replica=replace(demand.replica, parts=())) for demand in demands]
        return self._solution(replace(self._gang, roles=roles), whole, None, loose)

    def _reach(self, solution: Solution, scope: DomainNode, demands: Sequence[Demand]) -> float | None:
        layout = solution.layout(())
        try:
            need = layout.vector_below(scope, solution.target(demands))
            return None if layout.mixture(scope, Budget(self._limit)).reach(need) is None else 0.0
        except SearchLimit:
            return 0.0

    def _place_mixture(
        self, solution: Solution, candidate: _OpenCandidate, demands: Sequence[Demand]
    ) -> dict[str, str] | None:
        """Nodes by a mixture in one candidate."""
        with suppress(SearchLimit):
            if candidate.mixture is not None and candidate.mixture.find(candidate.need):
                candidate.layout.follow(candidate.scope, candidate.mixture)
                return solution.place(candidate.scope, candidate.layout, demands)
        return None

    def surplus(self, demands: Sequence[Demand]) -> dict[str, str]:
        """Return nodes for surplus: the fullest that is found, in large steps."""
        if not any(demand.partial or demand.replica.together is not None for demand in demands):
            try:
                places = self._fill(demands)
            except SearchLimit:
                places = None
            if places is not None:
                return places
        return self._step_by_step(demands)

    def _fill(self, demands: Sequence[Demand]) -> dict[str, str] | None:
        """Return surplus of whole replicas by mixtures: what sums allow, else what is found; None without a way."""
        problem = build(self._gang, self._inventory, demands, self._aims, self._aims)
        solution = Solution(self._gang, self._inventory, problem, demands, Budget(self._limit))
        scope = next(iter(_rank_scopes(scope for scope in solution.candidates() if problem.admits(scope))), None)
        if scope is None:
            return {}
        layout = solution.layout(())
        mixture = layout.mixture(scope, Budget(self._limit))

        def need(counts: Vector) -> Vector:
            return layout.vector_below(scope, solution.target(solution.choose(counts, demands)))

        def find(counts: Vector) -> bool:
            with suppress(SearchLimit):
                return mixture.find(need(counts), Budget(self._limit))
            return False

        most = nearest(fill_singles(solution.roles, lambda counts: mixture.reach(need(counts)) is not None), find)
        if most is None or not find(most):
            return None
        layout.follow(scope, mixture)
        return solution.place(scope, layout, solution.choose(most, demands))

    def _step_by_step(self, demands: Sequence[Demand]) -> dict[str, str]:
        """Surplus in the order in which roles are emptiest: as many steps at once as fit, and halved where they do not.

        A replica (or ``together`` set) that finds no room is left out and holds nobody up: room only shrinks.
        """
        nodes: dict[str, str] = {}
        gang, waiting = self._gang, list(demands)
        many = len(waiting)
        with overlay(self._inventory) as changes:
            for _ in range(_LOOKS):
                taking = steps(gang, waiting, many)
                if not taking:
                    break
                part = [demand for step in taking for demand in step]
                placed = self._try(gang, part)
                if placed is not None:
                    gang = hold_placement(changes, gang, part, placed)
                    nodes |= placed
                    taken = {(demand.role, demand.replica.replica) for demand in part}
                    waiting = [demand for demand in waiting if (demand.role, demand.replica.replica) not in taken]
                    many *= 2
                elif len(taking) > 1:
                    many = len(taking) // 2
                else:
                    waiting = [demand for demand in waiting if demand not in part and not alike(demand, part)]
        return nodes

    def _try(self, gang: Gang, part: Sequence[Demand]) -> dict[str, str] | None:
        try:
            return self._place_part(gang, part, None)
        except SearchLimit:
            return None

    def _within(self, scope: Path | None, needed: Sequence[Demand]) -> dict[str, str] | None:
        """Place role after role, inside one candidate where there is one for all of them."""
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
        self, scope: Path | None, needed: Sequence[Demand], order: Sequence[int]
    ) -> tuple[dict[str, str], int | None]:
        nodes: dict[str, str] = {}
        gang = self._gang
        with overlay(self._inventory) as changes:
            for role in order:
                part = [demand for demand in needed if demand.role == role]
                follows = gang.roles[role].follow_unit
                try:
                    placed = self._place_part(gang, part, scope if follows or not scope else None)
                except SearchLimit:
                    placed = None
                if placed is None:
                    return {}, role
                gang = hold_placement(changes, gang, part, placed)
                nodes |= placed
        return nodes, None

    def _place_part(self, gang: Gang, part: Sequence[Demand], within: Path | None) -> dict[str, str] | None:
        solution = self._solution(gang, part, within)
        layout = solution.layout(())

        def rank(scope: DomainNode) -> tuple[Any, ...]:
            return not solution.leaves_room(scope), layout.prices.free(scope), [natural(value) for value in scope.path]

        for scope in sorted(solution.candidates(), key=rank):
            if solution.fits(scope, part):
                return solution.place(scope, layout, part)
        return None

    def _solution(self, gang: Gang, part: Sequence[Demand], within: Path | None, aims: Aims | None = None) -> Solution:
        as_minimum = [Demand(d.role, d.replica, minimum=True) for d in part]
        own = aims or self._aims
        problem = build(gang, self._inventory, as_minimum, own, own, within)
        return Solution(gang, self._inventory, problem, as_minimum, Budget(self._limit))

    def _weight(self, role: int) -> int:
        """Compute the weight of one replica of a role: what it asks of its first resource."""
        replica = self._gang.roles[role].replicas[0]
        return sum(_first(pod.shape) for pod in replica.pods)


def _rank_scopes(scopes: Iterator[DomainNode]) -> list[DomainNode]:
    return sorted(scopes, key=lambda scope: (-len(scope.nodes), [natural(value) for value in scope.path]))


def _first(shape: Shape) -> int:
    return min(shape.requests, key=lambda request: rank(request[0]))[1]
