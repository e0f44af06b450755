"""Plans one gang: every missing pod of its minimum, or as much surplus as fits.

The order of aims is lexicographic: the minimum; its preferred levels, finest first; the best filled surplus;
proximity; room beside what other units lack there; fewest domains; least fragmentation; a fixed order. Each is decided
before the next is looked at, and exactly, but for the room beside others, which is counted by pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from covey.placement.capacity.tables import Budget, SearchLimit
from covey.placement.choice.candidates import Solution
from covey.placement.choice.outcome import make_plan
from covey.placement.choice.sets import choose_sets
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import off_devices, with_terms
from covey.placement.model import Gang, Path, Plan, PodRequest, Refusal, Topology, Verdict
from covey.placement.overlay import overlay
from covey.placement.question.demands import (
    Demand,
    followers,
    in_view,
    minimum_demands,
    minimum_paths,
    minimum_replicas,
    place,
    placed_paths,
    replica_paths,
    rule_paths,
    surplus_demands,
    together,
)
from covey.placement.question.domain_groups import Aims
from covey.placement.question.minimum_choice import choose_plan, count_achieved, too_many, without_rules
from covey.placement.question.problem import build, depth_of, required_aims
from covey.placement.question.readiness import (
    incomplete_refusal,
    no_spread_domains,
    spread_refusal,
    unknown_refusal,
    unready,
)
from covey.placement.question.spreads import (
    count_spread,
    find_domains,
    keeps_spread,
    spread_pods,
    with_floors,
    without_spread,
)
from covey.placement.question.torn import allowed_demands, refusal_of, torn
from covey.placement.refusal.reasons import explain
from covey.placement.search import Search

#: Bound on the work of one search by exact tables (`capacity.tables.Budget`), whatever the gang; and the same again for
#: every ``NODES`` nodes, as all of them must be looked at once.
LIMIT = 40_000_000
NODES = 5_000
#: Multiple of that bound for the last search for a gang that nothing else has settled.
LAST = 12
#: Pods times nodes, and shapes, up to which a plan takes some milliseconds.
SMALL = 500
FEW = 2
#: Numbers of pods in the domains of required spreads that are tried one after another; each costs a plan.
FLOORS = 16
#: Half placed replicas of the surplus up to which they are weighed against each other; beyond, one after another.
HALF = 2


def plan_minimum(gang: Gang, inventory: Inventory, limit: int = LIMIT, *, reasons: bool = True) -> Plan | Refusal:
    """Place every missing pod of the minimum; the domain is chosen with the surplus in view.

    Args:
        gang: what is asked.
        inventory: what is free; not changed.
        limit: the work that a look by exact tables may be in a small cluster.
        reasons: whether those of a refusal will be read.
    """
    refusal = unready(gang, inventory)
    if refusal is not None:
        return refusal
    full = with_terms(gang, inventory.terms)

    # Pods without devices go to nodes without devices first, unless that costs a preference.
    apart = _off_devices(full, inventory)
    first = (
        choose_plan(apart, lambda choice, _told: _plan_minimum(choice, inventory, limit, told=False))
        if apart is not None
        else None
    )
    if isinstance(first, Plan) and count_achieved(first) == len(first.preferred):
        return first
    answer = choose_plan(full, lambda choice, told: _plan_minimum(choice, inventory, limit, told=told and reasons))
    return first if isinstance(first, Plan) and not _is_better(answer, first) else answer


def plan_surplus(gang: Gang, inventory: Inventory, limit: int = LIMIT) -> Plan:
    """Place as much surplus as fits, the minimum being placed: whole replicas, best filled first; perhaps none."""
    if unready(gang, inventory) is not None:
        return make_plan(gang, inventory, {})
    full = with_terms(gang, inventory.terms)
    apart = _off_devices(full, inventory)
    first = _plan_surplus(apart, inventory, limit) if apart is not None else None
    if first is not None and len(first.assignments) == len(_waiting(full)):
        return first
    answer = _plan_surplus(full, inventory, limit)
    return first if first is not None and len(first.assignments) >= len(answer.assignments) else answer


def _plan_minimum(gang: Gang, inventory: Inventory, limit: int, *, told: bool) -> Plan | Refusal:
    """Plan a minimum, with each number of pods that the domains of a required spread may have in turn."""
    if not spread_pods(gang):
        return _Planner(gang, inventory, limit).minimum(told=told)
    kept = _with_domains(gang, inventory)
    if isinstance(kept, Refusal):
        return kept
    best: Plan | None = None
    variants = with_floors(kept, inventory, minimum_demands(kept))
    proven = True
    for variant in islice(variants, FLOORS):
        answer = _Planner(variant, inventory, limit).minimum(told=False)
        if isinstance(answer, Plan) and keeps_spread(variant, inventory, _nodes_of(answer)):
            best = answer if best is None or _is_better(answer, best) else best
            if count_achieved(best) == len(best.preferred):
                return best
        proven = proven and answer.verdict is Verdict.INFEASIBLE
    if best is not None:
        return best
    free = _Planner(without_spread(kept, spread_pods(kept)), inventory, limit).minimum(told=told)
    if isinstance(free, Refusal):
        return free
    if not proven or next(variants, None) is not None:
        return unknown_refusal(gang, inventory)
    return spread_refusal(
        kept, [(pod, count_spread(kept, inventory, pod, _nodes_of(free))) for pod in spread_pods(kept)]
    )


def _plan_surplus(gang: Gang, inventory: Inventory, limit: int) -> Plan:
    """Plan surplus; where its pods are spread, as much at a time as the domain with the fewest of them allows."""
    kept = _with_domains(gang, inventory) if spread_pods(gang) else gang
    if isinstance(kept, Refusal):
        return make_plan(gang, inventory, {})
    if not spread_pods(kept):
        return _Planner(kept, inventory, limit).surplus()
    nodes: dict[str, str] = {}
    with overlay(inventory) as changes:
        waiting = {pod.key: pod for pod in _waiting(kept)}
        while len(nodes) < len(waiting):
            (variant,) = with_floors(place(kept, nodes), inventory, ())
            more = _nodes_of(_Planner(variant, inventory, limit).surplus())
            if not more or not keeps_spread(variant, inventory, more):
                break
            nodes |= more
            for key, node in more.items():
                changes.hold(f"trial/{key}", node, waiting[key].shape, waiting[key].meta)
    return make_plan(gang, inventory, nodes)


def _with_domains(gang: Gang, inventory: Inventory) -> Gang | Refusal:
    """The gang with spreads that can be kept. Of what has places by a former release others are left out."""
    lost = [pod for pod in spread_pods(gang) if find_domains(pod.shape, gang.topology, inventory) is None]
    if not lost:
        return gang
    if any(pod.node is not None for role in gang.roles for replica in role.replicas for pod in replica.pods):
        return without_spread(gang, lost)
    return no_spread_domains(gang, lost[0], inventory.topologies[gang.topology])


def _nodes_of(plan: Plan) -> dict[str, str]:
    return {assignment.pod: assignment.node for assignment in plan.assignments}


def _off_devices(gang: Gang, inventory: Inventory) -> Gang | None:
    """The gang with what asks for no device kept off nodes with some; None where that makes no difference, or no plan."""
    apart = off_devices(gang)
    kinds = {bool(node.devices) for node in inventory.nodes.values()} if apart is not None else set()
    return apart if len(kinds) > 1 else None


def _is_better(answer: Plan | Refusal, first: Plan) -> bool:
    return isinstance(answer, Plan) and count_achieved(answer) > count_achieved(first)


def _waiting(gang: Gang) -> list[PodRequest]:
    return [pod for role in gang.roles for replica in role.replicas for pod in replica.pods if pod.node is None]


def is_small(gang: Gang, inventory: Inventory) -> bool:
    """Tell whether a plan takes so little work that it may be made while everything else waits."""
    pods = [pod for role in gang.roles for replica in role.replicas for pod in replica.pods]
    if (
        len(pods) * len(inventory.nodes) > SMALL
        or gang.rules
        or any(role.free for role in gang.roles)
        or spread_pods(gang)
    ):
        return False
    return len({pod.shape for pod in pods}) <= FEW


@dataclass(frozen=True, slots=True)
class _Best:
    """Demands that are chosen to be placed, and the candidates for them; none when not even the minimum fits."""

    solution: Solution
    chosen: list[Demand]
    scopes: list[DomainNode]
    fill: tuple[int, ...]


class _Planner:
    """Planning of one gang."""

    def __init__(self, gang: Gang, inventory: Inventory, limit: int) -> None:
        self._gang = gang
        self._inventory = inventory
        self._topology: Topology = inventory.topologies[gang.topology]
        self._required = required_aims(gang, self._topology)
        self._limit = limit + limit * len(inventory.nodes) // NODES
        self._torn = torn(gang, inventory)

    def minimum(self, *, told: bool = True) -> Plan | Refusal:
        gang = self._gang
        needed = minimum_demands(gang)
        if not needed:
            return make_plan(gang, self._inventory, {})
        refusal = refusal_of(gang, self._torn, needed)
        if refusal is not None:
            return refusal
        view = allowed_demands(self._torn, in_view(gang))
        everything = [*needed, *view]
        if too_many(gang, everything):
            everything = [*needed, *without_rules(gang, view)]
        nodes = self._looked_for(needed, everything)
        if isinstance(nodes, Solution):
            if not told:
                return Refusal(Verdict.INFEASIBLE, ())
            return explain(gang, self._inventory, nodes, needed)
        if isinstance(nodes, Refusal):
            return nodes
        missing = {pod.key for demand in needed for pod in demand.missing}
        placed = {pod: node for pod, node in nodes.items() if pod in missing and node in self._inventory.nodes}
        if len(placed) < len(missing):  # never an admission that lacks anything
            return incomplete_refusal(len(missing) - len(placed))
        return make_plan(gang, self._inventory, placed)

    def surplus(self) -> Plan:
        gang = self._gang
        demands = allowed_demands(self._torn, surplus_demands(gang))
        if not demands:
            return make_plan(gang, self._inventory, {})
        half = sum(demand.partial for demand in demands)
        nodes: Mapping[str, str] | None = None
        if half <= HALF and not too_many(gang, demands):  # each has a domain of its own: choices double with each
            with suppress(SearchLimit):
                best = self._fullest_of(demands, self._required, self._required, Budget(self._limit))
                nodes = self._nodes(best)
        if nodes is None or (half and len(nodes) < sum(len(demand.missing) for demand in demands)):
            # The exact choice takes replicas in their order; one that is stuck must hold up none behind it.
            nodes = max((nodes or {}, self._search().surplus(demands)), key=self._fill)
        return make_plan(gang, self._inventory, nodes if self._complete(demands, nodes) else {})

    def _fill(self, nodes: Mapping[str, str]) -> list[Fraction]:
        """Compute how full the roles are with these nodes, the emptiest first."""
        return sorted(
            Fraction(sum(replica.placed for replica in role.replicas), max(role.desired, 1))
            for role in place(self._gang, nodes).roles
        )

    def _complete(self, demands: Sequence[Demand], nodes: Mapping[str, str]) -> bool:
        """Tell whether every replica, and every ``together`` set, has all of its nodes or none."""
        wholes: dict[tuple[int, int] | str, set[bool]] = {}
        for demand in demands:
            mark = demand.replica.together
            marks = wholes.setdefault((demand.role, demand.replica.replica) if mark is None else mark, set())
            marks |= {nodes.get(pod.key) in self._inventory.nodes for pod in demand.missing}
        count = sum(pod.key in nodes for demand in demands for pod in demand.missing)
        return count == len(nodes) and all(len(marks) <= 1 for marks in wholes.values())

    def _search(self) -> Search:
        return Search(self._gang, self._inventory, self._required, self._limit)

    def _wishes(self) -> bool:
        """Tell whether the gang prefers anything, so that preferences must be tried one after another."""
        gang = self._gang
        soft = any(not rule.required for rule in gang.proximity) or (gang.spread and not gang.spread.required)
        near = any(rule.preferred for rule in gang.rules)
        return bool(gang.preferred or soft or near or any(role.preferred for role in gang.roles))

    def _looked_for(
        self, needed: Sequence[Demand], everything: Sequence[Demand]
    ) -> dict[str, str] | Solution | Refusal:
        """Return the nodes of the minimum (and of surplus next to it), or what shows that it has none.

        Exact tables as far as a look may go; then the cheap proofs, and placements that are not proven the best.
        """
        with suppress(SearchLimit):
            # At last minimum and surplus in one search, whatever is preferred.
            return (
                self._place_with_preferences(needed, everything)
                or self._with_torn()
                or self._laid_out(everything, Budget(self._limit))
            )
        search = self._search()
        nodes = search.find_places(everything)
        if nodes is not None:
            return nodes
        with suppress(SearchLimit):
            return self._at_least(needed, everything, self._limit)
        places = search.refusal() or search.find_places(needed)
        if places is not None:
            return places
        with suppress(SearchLimit):
            return self._at_least(needed, everything, LAST * self._limit)
        return unknown_refusal(self._gang, self._inventory)

    def _place_with_preferences(
        self, needed: Sequence[Demand], everything: Sequence[Demand]
    ) -> dict[str, str] | Solution | None:
        """The nodes of a gang that prefers anything, or the solution that shows that its minimum does not fit.

        None when there is no wish, or when this look does not settle it: what follows asks for no wish, and so has all
        that a gang without any has to find its places.
        """
        if not self._wishes():
            return None
        with suppress(SearchLimit):
            return self._at_least(needed, everything, self._limit)
        return None

    def _at_least(
        self, needed: Sequence[Demand], everything: Sequence[Demand], limit: int
    ) -> dict[str, str] | Solution:
        """Return the nodes of the minimum, whose verdict comes first; or the solution that shows that it does not fit.

        Raises:
            SearchLimit: neither was found.
        """
        least = self._solution(needed, self._required, self._required, Budget(limit))
        return self._place(needed, everything, self._reachable_aims(needed), limit) if least.feasible() else least

    def _with_torn(self) -> dict[str, str] | None:
        """Return the nodes of all that is missing, where the surplus has half placed replicas and all of it fits."""
        torn = [Demand(d.role, d.replica, minimum=True) for d in surplus_demands(self._gang)]
        if not any(demand.partial for demand in torn):
            return None
        with suppress(SearchLimit):
            laid_out = self._laid_out([*minimum_demands(self._gang), *torn], Budget(self._limit))
            return laid_out if isinstance(laid_out, dict) else None
        return None

    def _laid_out(self, everything: Sequence[Demand], budget: Budget) -> dict[str, str] | Solution:
        best = self._fullest_of(everything, self._required, self._required, budget)
        return self._nodes(best) if best.scopes else best.solution

    def _place(self, needed: Sequence[Demand], everything: Sequence[Demand], aims: Aims, limit: int) -> dict[str, str]:
        """Return the minimum's nodes, laid out together with as much surplus as fits."""
        try:
            best = self._fullest(everything, aims)
            for index, rule in enumerate(self._gang.proximity):
                if not rule.required:
                    near = replace(aims, proximity=aims.proximity | {index})
                    with suppress(SearchLimit):  # it is only a wish
                        tried = self._fullest(everything, near)
                        if tried.scopes and tried.fill == best.fill:
                            best, aims = tried, near
            return self._nodes(best)
        except SearchLimit:
            return self._nodes(self._fullest_of(needed, aims, aims, Budget(limit)))

    def _fullest(self, demands: Sequence[Demand], aims: Aims) -> _Best:
        """Choose the best filled surplus: under the minimum's aims if that costs nothing."""
        close = self._fullest_of(demands, aims, aims, Budget(self._limit))
        if aims == self._required or len(close.chosen) == len(demands):
            return close
        return self._fullest_of(demands, aims, self._required, Budget(self._limit))

    def _fullest_of(self, demands: Sequence[Demand], aims: Aims, loose: Aims, budget: Budget) -> _Best:
        """The minimum and the best filled surplus, sets whole or left out, and the candidates that allow it."""
        solution = self._solution(demands, aims, loose, budget)
        if any(demand.replica.together is not None for demand in demands if not demand.minimum):
            sets = choose_sets(self._gang, solution, demands)
            return _Best(solution, sets.demands, sets.scopes, sets.fill)
        choices = solution.choices
        if not choices:
            return _Best(solution, [], [], ())
        chosen = solution.choose(choices[0].counts, demands)
        return _Best(solution, chosen, [choice.scope for choice in choices], choices[0].fill)

    def _nodes(self, best: _Best) -> dict[str, str]:
        """Return the nodes of what was chosen, in the cheapest of the candidates that hold it."""
        if not best.scopes or not best.chosen:
            return {}
        used = {path[:end] for path in self._present() for end in range(len(path) + 1)}
        layout = best.solution.layout(used)
        scope = best.solution.cheapest(best.scopes, layout, best.chosen)
        return best.solution.place(scope, layout, best.chosen)

    def _present(self) -> Iterable[Path]:
        return placed_paths(self._gang, self._inventory, range(len(self._gang.roles)))

    def _solution(self, demands: Sequence[Demand], aims: Aims, loose: Aims, budget: Budget) -> Solution:
        problem = build(self._gang, self._inventory, demands, aims, loose)
        return Solution(self._gang, self._inventory, problem, demands, budget)

    def _reachable_aims(self, needed: Sequence[Demand]) -> Aims:
        """Return the finest levels that the minimum can reach, one wish after another, each on top of those granted."""
        aims = self._required
        for depth in range(len(self._topology.levels) - 1, -1, -1):
            for scope in range(-1, len(self._gang.roles) + len(self._gang.rules)):  # -1 is the unit
                wish = self._wish(aims, scope, depth)
                if wish is not None and self._is_feasible_wish(needed, wish):
                    aims = wish
        spread = self._gang.spread
        wish = replace(aims, spread=True)
        return wish if spread is not None and not spread.required and self._is_feasible_wish(needed, wish) else aims

    def _is_feasible_wish(self, needed: Sequence[Demand], wish: Aims) -> bool:
        """Tell whether a preference can be met; one that cannot be decided within its own budget counts as not met."""
        try:
            return self._solution(needed, wish, wish, Budget(self._limit)).feasible()
        except SearchLimit:
            return False

    def _wish(self, aims: Aims, scope: int, depth: int) -> Aims | None:
        """Return the aims with one more wish at a depth: of the unit (scope -1), a role or a rule; None without one."""
        if scope < 0:
            wanted = depth_of(self._topology, self._gang.preferred)
            parts = [minimum_paths(self._gang, self._inventory, followers(self._gang))]
            useful = aims.unit < depth <= wanted and together(parts, depth)
            return replace(aims, unit=depth) if useful else None
        if scope >= len(self._gang.roles):
            return self._ruled_wish(aims, scope - len(self._gang.roles), depth)
        role = self._gang.roles[scope]
        wanted = depth_of(self._topology, role.preferred)
        reached = max(aims.roles[scope], aims.unit if role.follow_unit else -1)
        if not reached < depth <= wanted or not together(
            [replica_paths(self._gang, self._inventory, r) for r in minimum_replicas(role)], depth
        ):
            return None
        roles = (*aims.roles[:scope], depth, *aims.roles[scope + 1 :])
        return replace(aims, roles=roles)

    def _ruled_wish(self, aims: Aims, number: int, depth: int) -> Aims | None:
        rule = self._gang.rules[number]
        wanted = depth_of(self._topology, rule.preferred)
        paths = rule_paths(self._gang, self._inventory, rule, minimum=True)
        if not aims.rules[number] < depth <= wanted or not together([paths], depth):
            return None
        return replace(aims, rules=(*aims.rules[:number], depth, *aims.rules[number + 1 :]))
