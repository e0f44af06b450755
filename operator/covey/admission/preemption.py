"""The search for the least that has to give way to a gang which found no room: pure.

The planner is exact, and what fits still fits when more is gone, so it is the judge of every set of steps; bounds
(``slots``) only say which sets are worth a plan. The lowest priority that suffices comes first, by proof; then the
fewest whole units, the fewest replicas, the fewest devices. Without any one of what is taken the planner finds no room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from operator import sub
from typing import Final, NamedTuple

import msgspec

from covey.admission.cheapest import Cheapest
from covey.admission.ordinary import POD, OrdinaryPod, is_in_the_way
from covey.admission.reprieve import Judge, OutOfPlansError, Reprieve, least_of, most_of, room_of
from covey.admission.slots import Ground, Vector, Wanted
from covey.admission.taking import Cost, Nobody, Rules, Taking, cost_of, sentence
from covey.admission.victims import Candidate, Offer, Step, Terms, is_eligible, lower_priority, measure_taking
from covey.api import core
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Plan, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import LIMIT
from covey.placement.question.demands import unit_anchor
from covey.placement.question.readiness import unready

#: Plans of one search; beyond them the answer is that nobody knows, and nobody gives way.
PLANS: Final = 64
#: Plans for one domain, and domains that are looked at for something cheaper.
_OWN: Final = 30
_DOMAINS: Final = 8
#: Nodes that are looked at first, in each domain; then twice as many, as long as they do not suffice.
_FIRST: Final = 24
#: Steps up to which surplus is looked for in place of each whole unit.
_FEW: Final = 24
#: Victims and nodes that a claim can name, and the bytes of these victims: etcd takes 1.5 MiB for an object.
MOST_STEPS: Final = 256
MOST_NODES: Final = 4096
MOST_BYTES: Final = 256 * 1024


def can_name(victims: Iterable[core.Victim]) -> bool:
    """Tell whether a claim can name these victims."""
    named = tuple(victims)
    return len(named) <= MOST_STEPS and len(msgspec.json.encode(named)) <= MOST_BYTES


def search(
    gang: Gang,
    inventory: Inventory,
    candidates: Iterable[Candidate],
    terms: Terms,
    rules: Rules | None = None,
    *,
    ordinary: Iterable[OrdinaryPod] = (),
    freeing: Collection[str] = (),
    plans: int = PLANS,
    limit: int = LIMIT,
) -> Taking | Nobody:
    """Find the least that must give way for a gang's minimum to have its room.

    Args:
        gang: a gang whose minimum was refused; nodes that it must not use are excluded by it.
        inventory: what is free. Nobody else may look at it meanwhile; it is as it was afterwards.
        candidates: units of which something may be taken, as far as the rules allow.
        terms: the time, and what is spared.
        rules: who may be taken; without them units of other resources, of lower priority, the lowest first.
        ordinary: ordinary pods of a lower priority that may be taken; their rank is their priority.
        freeing: keys of holders whose room comes free anyway, as they terminate or drain.
        plans: how many may be made.
        limit: see `plan_minimum`.
    """
    judge = Judge(least_of(gang), inventory, limit, plans)
    with overlay(inventory) as changes:
        changes.remove(freeing)
        if unready(gang, inventory) is not None:
            return Nobody(Verdict.INFEASIBLE)
        first = judge.plan(())
        if first.verdict is not Verdict.INFEASIBLE:
            return Nobody(first.verdict, judge.plans)
        measured = replace(terms, resource=measure_taking(judge.gang, inventory))
        victim_search = _VictimSearch(
            judge, list(candidates), measured, rules or Rules(lower_priority(gang)), tuple(ordinary)
        )
        try:
            return victim_search.run()
        except OutOfPlansError:
            return victim_search.best() or Nobody(Verdict.UNKNOWN, judge.plans)


@dataclass(frozen=True, slots=True)
class _Solution:
    cost: Cost
    steps: tuple[Step, ...]
    ground: Ground


_NOTHING: Final = (float("inf"), 0.0, 0.0)


class _Estimate(NamedTuple):
    """A node, what it gives at most when it is emptied, and an estimate of the price of that, by what it gives."""

    price: tuple[float, float, float]
    name: str
    gain: Vector


@dataclass(frozen=True, slots=True)
class _Site:
    """A domain, and its nodes in the order in which they are looked at."""

    nodes: list[_Estimate]
    domain: DomainNode
    lacks: Vector

    @property
    def first(self) -> int:
        """The number of nodes that would do, by the sums."""
        left = list(self.lacks)
        for number, estimate in enumerate(self.nodes):
            if not any(more > 0 for more in left):
                return number
            left = [more - gain for more, gain in zip(left, estimate.gain, strict=True)]
        return len(self.nodes)

    @property
    def price(self) -> tuple[float, ...]:
        """An estimate of what it costs to free them."""
        chosen = self.nodes[: self.first]
        totals = (
            tuple(price * sum(estimate.gain) for price in estimate.price)
            for estimate in chosen
            if estimate.price != _NOTHING
        )
        return tuple(map(sum, zip(*totals, strict=True)))


class _VictimSearch:
    """One search. The inventory is without what comes free anyway, and otherwise as it is."""

    def __init__(
        self,
        judge: Judge,
        candidates: Sequence[Candidate],
        terms: Terms,
        rules: Rules,
        ordinary: Sequence[OrdinaryPod],
    ) -> None:
        self._judge = judge
        self._inventory = judge.inventory
        self._terms = terms
        self._rules = rules
        self._candidates: list[Candidate | OrdinaryPod] = [
            candidate for candidate in candidates if rules.may_take(candidate)
        ]
        self._candidates += ordinary
        self._rank_of = {
            candidate.key: candidate.priority if isinstance(candidate, OrdinaryPod) else rules.rank(candidate)
            for candidate in self._candidates
        }
        self._ranks = sorted(set(self._rank_of.values()))
        at = {rank: position for position, rank in enumerate(self._ranks)}
        #: Key of a holder → its unit, and the position of its rank.
        self._owner: dict[str, tuple[int, int]] = {}
        for number, each in enumerate(self._candidates):
            owner = (number, at[self._rank_of[each.key]])
            for pod in each.pods():
                self._owner[pod.metadata.uid] = owner
        #: By node: the holders of these units there.
        self._there: dict[str, list[tuple[str, int, int]]] = {}
        self._offers: dict[int, Offer] = {}
        self._peaks: dict[tuple[str, int], Vector] = {}
        self._found: _Solution | None = None
        self._unproven = False

    @cached_property
    def _wanted(self) -> Wanted:
        return Wanted.of(self._judge.gang, self._inventory)

    def run(self) -> Taking | Nobody:
        """Find the lowest rank that suffices, then the cheapest steps up to it."""
        domains = list(self._domains())
        lowest = {domain.path: self._lowest(domain) for domain in domains}
        ranks = sorted({rank for rank in lowest.values() if rank is not None})
        for rank in range(ranks[0], len(self._ranks)) if ranks else ():
            here = [domain for domain in domains if (low := lowest[domain.path]) is not None and low <= rank]
            if self._at(rank, here):
                break
            self._unproven, self._judge.unknown = self._unproven or self._judge.unknown, False
        if (best := self.best()) is not None:
            return best
        if self._found is not None:
            return Nobody(Verdict.UNKNOWN, self._judge.plans, is_too_large=True)
        return Nobody(Verdict.UNKNOWN if self._unproven else Verdict.INFEASIBLE, self._judge.plans)

    def best(self) -> Taking | None:
        """The best that was found, if a claim can name it."""
        victims = self._found
        if victims is None or len(victims.steps) > MOST_STEPS:
            return None
        steps, proven = Reprieve(victims.ground, self._judge, self._cost).find_needed(victims.steps)
        plan = self._judge.answer_for(key for step in steps for key in step.keys)
        if not isinstance(plan, Plan):
            return None
        nodes, domain = room_of(plan)
        if len(nodes) > MOST_NODES or not can_name(step.victim() for step in steps):
            return None
        return Taking(
            tuple(sorted(steps, key=lambda step: (step.kind == "Unit", step.unit, step.role, step.replica or 0))),
            nodes,
            domain,
            self._cost(steps),
            self._judge.plans,
            self._unproven or not proven,
        )

    def _cost(self, steps: Iterable[Step]) -> Cost:
        return cost_of(steps, lambda step: self._rank_of[step.unit], self._terms.longest)

    def _domains(self) -> Iterator[DomainNode]:
        """The domains that may hold all of the minimum: of the level that it requires, else the whole cluster."""
        gang = self._judge.gang
        tree = self._inventory.trees[gang.topology]
        if gang.required is None or not all(role.follow_unit for role in gang.roles if role.replicas):
            yield tree.root
            return
        depth = tree.topology.depth(gang.required)
        anchor = unit_anchor(gang, self._inventory, depth)
        yield from (domain for domain in tree.at(depth) if anchor is None or domain.path == anchor)

    def _holders(self, state: NodeState) -> list[tuple[str, int, int]]:
        """The holders on a node that are pods of a candidate: key, unit, and position of the rank."""
        holders = self._there.get(state.name)
        if holders is None:
            owner = self._owner
            holders = self._there[state.name] = [(key, *owner[key]) for key in state.held if key in owner]
        return holders

    def _peak(self, state: NodeState, rank: int) -> Vector:
        """Count what a node would hold at most if all that may be taken up to a rank were gone."""
        peak = self._peaks.get((state.name, rank))
        if peak is None:
            gone = {key for key, _, own in self._holders(state) if own <= rank}
            peak = self._wanted.measure(state, gone) if gone else self._wanted.base(state)
            self._peaks[state.name, rank] = peak
        return peak

    def _lowest(self, domain: DomainNode) -> int | None:
        """The position of the lowest rank at which no bound forbids a plan in a domain."""

        def may_hold(rank: int) -> bool:
            return not any(self._short(domain, lambda state: self._peak(state, rank)))

        found = bisect_left(range(len(self._ranks)), 1, key=may_hold)
        return found if found < len(self._ranks) else None

    def _at(self, rank: int, domains: Sequence[DomainNode]) -> bool:
        """Find the cheapest steps up to a rank in some domains; returns whether there are any."""
        sites = [_Site(self._nodes(domain, rank), domain, self._short(domain, self._wanted.base)) for domain in domains]
        ordered = sorted(sites, key=lambda site: site.price)
        for number, site in enumerate(ordered):
            if number == _DOMAINS:
                break
            self._solve(site, rank)
        rest = ordered[_DOMAINS:]
        if self._found is not None or not rest:
            return self._found is not None
        keys = {key for site in rest for step in self._ground(site, rank, len(site.nodes)).steps for key in step.keys}
        plan = self._judge.plan(keys)
        if isinstance(plan, Plan):
            names = {assignment.node for assignment in plan.assignments}
            for site in rest:
                if names & site.domain.nodes.keys():
                    self._solve(site, rank)
            self._unproven = self._unproven or self._found is None
        return self._found is not None

    def _nodes(self, domain: DomainNode, rank: int) -> list[_Estimate]:
        """The nodes of a domain that give anything when they are emptied, those that cost little for it first."""
        estimates: list[_Estimate] = []
        for state in domain.nodes.values():
            holders = self._holders(state)
            if any(own <= rank for _, _, own in holders):
                gain = tuple(map(sub, self._peak(state, rank), self._wanted.base(state)))
                owners, total = {number for _, number, _ in holders}, sum(gain)
                whole = sum(not self._candidates[number].has_surplus for number in owners)
                price = (whole / total, len(owners) / total, 1 / total) if total > 0 else _NOTHING
                estimates.append(_Estimate(price, state.name, gain))
        return self._by_place(sorted(estimates), domain)

    def _by_place(self, estimates: list[_Estimate], domain: DomainNode) -> list[_Estimate]:
        """Nodes in the order of the domains of the narrowest level of a replica, where one costs least first."""
        inner = [each for each in self._wanted.classes if each[0] > domain.depth]
        if not inner:
            return estimates
        depth, pods, _ = max(inner)
        groups: dict[Path, list[_Estimate]] = {}
        for estimate in estimates:
            path = domain.nodes[estimate.name].leaves[self._wanted.topology].path
            groups.setdefault(path[: depth + 1], []).append(estimate)

        def price(group: Sequence[_Estimate]) -> tuple[float, ...]:
            lacks = tuple(map(dict(pods).get, range(len(self._wanted.need)), repeat(0)))
            return _Site(list(group), domain, lacks).price

        return [estimate for group in sorted(groups.values(), key=price) for estimate in group]

    def _ground(self, site: _Site, rank: int, size: int) -> Ground:
        """The steps that hold anything on the first nodes of a site."""
        names = {node.name for node in site.nodes[:size]}
        numbers = {
            number: None
            for node in site.nodes[:size]
            for _, number, own in self._holders(site.domain.nodes[node.name])
            if own <= rank
        }
        steps: list[Step] = []
        offers: dict[object, Offer] = {}
        for number in numbers:
            offer = self._offer(number)
            offers[self._candidates[number].key] = offer
            every = (*offer.replicas, *([offer.whole] if offer.whole is not None else []))
            steps += [
                step
                for step in every
                if self._may_take(step, rank)
                and any(held[0] in names for key in step.keys if (held := self._inventory.hold_of(key)) is not None)
            ]
        return Ground(self._wanted, site.domain, self._inventory, offers, steps)

    def _may_take(self, step: Step, rank: int) -> bool:
        if step.kind != POD:
            return self._rules.may_take_step(step)
        (key,) = step.keys
        held = self._inventory.hold_of(key)
        state = self._inventory.nodes.get(held[0]) if held is not None else None
        return state is not None and is_in_the_way(key, state, self._wanted, self._peak(state, rank))

    def _offer(self, number: int) -> Offer:
        offer = self._offers.get(number)
        if offer is None:
            candidate = self._candidates[number]
            offer = Offer()
            if isinstance(candidate, OrdinaryPod):
                offer = candidate.offer(self._inventory, self._terms)
            elif is_eligible(candidate):
                offer = self._rules.offer(candidate, self._inventory, self._terms)
            self._offers[number] = offer
        return offer

    def _solve(self, site: _Site, rank: int) -> None:
        """Find steps in one domain that cost less than what is known, on more and more of its nodes."""
        size = max(_FIRST, 2 * site.first)
        while True:
            ground = self._ground(site, rank, size)
            if ground.steps and ground.fits(ground.all) and self._look(ground):
                return
            if size >= len(site.nodes):
                return
            size *= 2

    def _short(self, domain: DomainNode, hold: Callable[[NodeState], Vector]) -> Vector:
        """The least that a domain is short of, by what its nodes hold."""
        left = self._wanted.need
        for state in domain.nodes.values():
            left = tuple(map(sub, left, hold(state)))
            if max(left, default=0) <= 0:
                break
        return tuple(max(lack, 0) for lack in left)

    def _look(self, ground: Ground) -> bool:
        """Find steps of a ground that cost less than what is known; returns whether there are any of any cost."""
        until = self._judge.plans + _OWN

        def accept(mask: int) -> bool:
            return self._judge.plans < until and self._judge.fits(ground.steps_of(mask))

        known = self._found.cost if self._found is not None else None
        cheapest = Cheapest(ground, self._cost, accept, known)
        mask = cheapest.find()
        if mask is None and known is None:
            if cheapest.is_complete and self._judge.plans < until:  # there is none
                return False
            full = most_of(ground)
            if not self._judge.fits(ground.steps_of(full)):
                if not ground.allows(ground.all):
                    self._unproven = self._unproven or self._judge.fits(ground.steps)
                return False
            mask = Reprieve(ground, self._judge, self._cost).shrink(full)
            until = self._judge.plans + _OWN
            better = Cheapest(ground, self._cost, accept, self._cost(ground.steps_of(mask))).improve()
            mask = mask if better is None else better
        if mask is not None:
            self._keep(ground, mask)
            if mask.bit_count() <= _FEW:
                mask = Reprieve(ground, self._judge, self._cost).spare_units(mask, self._judge.most - _OWN)
                self._keep(ground, mask)
        return mask is not None or known is not None

    def _keep(self, ground: Ground, mask: int) -> None:
        steps = tuple(ground.steps_of(mask))
        self._found = _Solution(self._cost(steps), steps, ground)


__all__ = ["PLANS", "Nobody", "Rules", "Taking", "search", "sentence"]
