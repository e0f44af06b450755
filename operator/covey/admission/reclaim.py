"""The search for what others have borrowed and must give back to a minimum with a right to it: pure.

Both quota and the planner are the judge: without any one of what is taken one of them refuses. Steps for room are
searched as for preemption, the queue with the largest share first; then steps are added in the order of the charges
until quota suffices, and what is not needed is put back. Whole units give way only where all surplus would not do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from covey.admission.charges import charges_of_pods
from covey.admission.entitlement import Entitlement, has_right, judge_minimum, victims
from covey.admission.ledger import Charge, Flavor, Ledger
from covey.admission.preemption import MOST_NODES, PLANS, can_name, search
from covey.admission.reprieve import Judge, OutOfPlansError, Reprieve, least_of, room_of
from covey.admission.slots import Ground, Wanted
from covey.admission.taking import Cost, Nobody, Rules, Taking, cost_of
from covey.admission.victims import Candidate, Offer, Step, Terms, is_eligible, measure_taking, offer_of
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal, Shape, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import LIMIT
from covey.placement.refusal.exclusions import OVER_QUOTA


@dataclass(frozen=True, slots=True)
class Right:
    """The right of a minimum to quota, on a ledger that nobody else changes.

    Args:
        ledger: all charges.
        mine: what it would be charged for.
        shapes: of the pods that its minimum lacks.
        own: what is charged for its minimum by now.
        nodes: of each flavor; those of none under None.
        charge_of: by the UID of a pod that goes anyway.
        order: the charges that must give way by it, once they were found.
        is_borrowed: whether what gives way has borrowed; else it has a lower priority in the same queue.
    """

    ledger: Ledger
    mine: Charge
    shapes: Sequence[Shape]
    own: Charge | None
    nodes: Mapping[Flavor | None, Collection[str]]
    charge_of: Mapping[str, Charge]
    order: Sequence[Charge] = ()
    is_borrowed: bool = True

    def find_order(self) -> tuple[Charge, ...]:
        """The charges that must give way, in their order; reads all of a cohort's."""
        return tuple(victims(self.ledger, self.mine)) if has_right(self.ledger, self.mine) else ()

    def judge(self, gone: Iterable[str]) -> Entitlement:
        """Judge the minimum once these pods are gone."""
        before = self.ledger.give_up({each for key in gone if (each := self.charge_of.get(key)) is not None})
        try:
            return judge_minimum(self.ledger, self.mine.queue, self.shapes, self.own, free=bool(self.nodes.get(None)))
        finally:
            for unit, charged in before.items():
                self.ledger.enter(unit, charged)

    def confine(self, gang: Gang, gone: Iterable[str]) -> Gang | None:
        """A gang on the nodes where it is within nominal once these pods are gone; None where quota refuses it."""
        found = self.judge(gone)
        if not (found.taken and found.inside):
            return None
        closed = {node: OVER_QUOTA for flavor in found.closed for node in self.nodes.get(flavor, ())}
        return replace(gang, excluded_nodes={**closed, **gang.excluded_nodes}) if closed else gang


@dataclass(slots=True)
class RightJudge(Judge):
    """Plans of a gang without some holders, where quota allows them; ``freeing`` are gone anyway."""

    right: Right = field(kw_only=True)
    freeing: Collection[str] = ()
    _gangs: dict[frozenset[str], Gang | None] = field(default_factory=dict)

    def plan(self, keys: Iterable[str]) -> Plan | Refusal:
        """The answer once these holders are gone; quota is asked first, for it is cheap.

        Raises:
            OutOfPlansError: all plans were made.
        """
        gone = frozenset(keys)
        if gone not in self._gangs:
            self._gangs[gone] = self.right.confine(self.gang, gone | set(self.freeing))
        gang, widest = self._gangs[gone], self.gang
        if gang is None:
            return Refusal(Verdict.INFEASIBLE, ())
        try:
            self.gang = gang
            return Judge.plan(self, gone)
        finally:
            self.gang = widest


def reclaim(
    gang: Gang,
    inventory: Inventory,
    candidates: Iterable[Candidate],
    terms: Terms,
    right: Right,
    *,
    freeing: Collection[str] = (),
    plans: int = PLANS,
    limit: int = LIMIT,
) -> Taking | Nobody:
    """Find what must be given back for a minimum to have its quota and its room.

    Args:
        gang: as of `search`.
        inventory: as of `search`.
        candidates: the units that are charged in the order.
        terms: the time, and what is spared.
        right: of the gang, with its order.
        freeing: as of `search`.
        plans: how many may be made, for room and for quota each.
        limit: see `plan_minimum`.
    """
    offered = [each for each in candidates if is_eligible(each)]
    charge_of = {**right.charge_of, **charges_of_pods((each.unit for each in offered), right.ledger)}
    found = _Reclaim(gang, inventory, offered, terms, replace(right, charge_of=charge_of), freeing)
    answer: Taking | Nobody = Nobody(Verdict.INFEASIBLE)
    for whole in (False, True):
        answer = found.run(plans, limit, whole=whole)
        if isinstance(answer, Taking) or answer.verdict is not Verdict.INFEASIBLE:
            break
    return answer


class _Reclaim:
    """One search, first among surplus, then among all."""

    def __init__(
        self,
        gang: Gang,
        inventory: Inventory,
        candidates: Sequence[Candidate],
        terms: Terms,
        right: Right,
        freeing: Collection[str],
    ) -> None:
        self._gang, self._inventory = gang, inventory
        self._terms = replace(terms, resource=measure_taking(gang, inventory))
        self._right, self._freeing, self._candidates = right, freeing, candidates
        self._offers: dict[object, Offer] = {
            each.unit.key: offer_of(each, inventory, self._terms) for each in self._candidates
        }
        self._place = {(each.unit, each.member): number for number, each in enumerate(right.order)}

    def _position(self, step: Step) -> int:
        return self._place[step.unit, None if step.kind == "Unit" else (step.role, step.replica or 0)]

    def _steps(self, *, whole: bool) -> list[Step]:
        """The steps that must give way, in the order of their charges; what is held for lost pods is none of them."""
        found = [step for offer in self._offers.values() for step in offer.replicas]
        found += [offer.whole for offer in self._offers.values() if whole and offer.whole is not None]
        there = [step for step in found if self._key_of(step) in self._place]
        return sorted(there, key=self._position)

    @staticmethod
    def _key_of(step: Step) -> object:
        return step.unit, None if step.kind == "Unit" else (step.role, step.replica or 0)

    def _ranks(self, steps: Sequence[Step]) -> dict[object, int]:
        """Ranks of units: by queue, that with the largest share first, and by priority there, as one number."""
        queues = list({self._right.order[self._position(step)].queue: None for step in steps})
        ranks = {
            step.unit: (queues.index(self._right.order[self._position(step)].queue), step.priority) for step in steps
        }
        dense = sorted(set(ranks.values()))
        return {unit: dense.index(rank) for unit, rank in ranks.items()}

    def run(self, plans: int, limit: int, *, whole: bool) -> Taking | Nobody:
        """Find what is needed of surplus, or of all."""
        steps = self._steps(whole=whole)
        every = {key for step in steps for key in step.keys}
        widest = self._right.confine(self._gang, every | set(self._freeing))
        if widest is None:
            return Nobody(Verdict.INFEASIBLE)
        ranks, allowed = self._ranks(steps), {(step.unit, step.role, step.replica) for step in steps}
        rules = Rules(
            lambda each: each.unit.key in ranks,
            lambda each: ranks[each.unit.key],
            lambda step: (step.unit, step.role, step.replica) in allowed,
        )
        room = search(
            widest,
            self._inventory,
            self._candidates,
            self._terms,
            rules,
            freeing=self._freeing,
            plans=plans,
            limit=limit,
        )
        if isinstance(room, Nobody) and room.verdict is not Verdict.ADMITTED:
            return room
        first, proven = (room.steps, not room.unproven) if isinstance(room, Taking) else ((), True)
        with overlay(self._inventory) as changes:
            changes.remove(self._freeing)
            gang = least_of(self._gang)
            judge = RightJudge(gang, self._inventory, limit, plans, right=self._right, freeing=self._freeing)
            return self._with_quota(judge, self._with_others(first, steps), len(first), proven=proven)

    def _with_others(self, first: Sequence[Step], steps: Sequence[Step]) -> list[Step]:
        """Some steps, and behind them all others that may be taken beside them, in their order."""
        found, names, own = list(first), {self._key_of(step) for step in first}, dict[object, list[Step]]()
        for step in first:
            own.setdefault(step.unit, []).extend([step] if step.kind == "Replica" else [])
        for step in steps:
            beside = own.setdefault(step.unit, [])
            if self._key_of(step) in names or not (
                step.kind == "Unit" or self._offers[step.unit].allows([*beside, step])
            ):
                continue
            found.append(step)
            beside.extend([step] if step.kind == "Replica" else [])
        return found

    def _with_quota(self, judge: RightJudge, steps: list[Step], least: int, *, proven: bool) -> Taking | Nobody:
        """The first steps that suffice, without those of them that are not needed."""
        try:
            if isinstance(judge.plan(()), Plan):
                return Nobody(Verdict.ADMITTED, judge.plans)
            most = max(least, 1)
            while most < len(steps) and not judge.fits(steps[:most]):
                least, most = most + 1, 2 * most
            last = min(most, len(steps)) + 1
            count = bisect_left(range(last), 1, lo=least, key=lambda n: judge.fits(steps[:n]))
        except OutOfPlansError:
            return Nobody(Verdict.UNKNOWN, judge.plans)
        if count > len(steps):
            return Nobody(Verdict.UNKNOWN if judge.unknown else Verdict.INFEASIBLE, judge.plans)
        tree = self._inventory.trees[self._gang.topology]
        wanted = Wanted.of(judge.gang, self._inventory)
        ground = Ground(wanted, tree.root, self._inventory, self._offers, steps[:count])
        kept, needed = Reprieve(ground, judge, self._cost_of).find_needed(steps[:count])
        try:
            plan = judge.plan(key for step in kept for key in step.keys)
        except OutOfPlansError:
            return Nobody(Verdict.UNKNOWN, judge.plans)
        nodes, domain = room_of(plan) if isinstance(plan, Plan) else ((), None)
        units = {step.unit for step in kept if step.kind == "Unit"}
        taken = tuple(step for step in kept if step.kind == "Unit" or step.unit not in units)
        if not nodes or len(nodes) > MOST_NODES or not can_name(step.victim() for step in taken):
            return Nobody(Verdict.UNKNOWN, judge.plans, is_too_large=bool(nodes))
        ordered = tuple(sorted(taken, key=lambda step: (step.kind, step.unit, step.role, step.replica or 0)))
        verb = "takes back" if self._right.is_borrowed else "takes"
        return Taking(ordered, nodes, domain, self._cost_of(taken), judge.plans, not (proven and needed), verb)

    def _cost_of(self, steps: Iterable[Step]) -> Cost:
        return cost_of(steps, self._position, self._terms.longest)


__all__ = ["Right", "RightJudge", "reclaim"]
