"""A round of many gangs on an inventory that nobody else changes: pure.

The order is that of the scheduler process (``order``), and so is what is kept for whom (``reservations``). A minimum
that does not fit blocks nobody else, except on the nodes that are kept for it because it has waited for long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from covey.admission.entitlement import FIRST, Lane
from covey.admission.order import ActiveQueue
from covey.admission.reservation import Kept, Reservations, confine
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal
from covey.placement.planner import LIMIT, plan_minimum, plan_surplus
from covey.placement.question.demands import note_outstanding, place

Answer = Plan | Refusal
#: A gang's number and all gangs with what they have by now → the gang as it is to be planned, or why it is not.
Look = Callable[[int, Sequence[Gang]], Gang | Refusal]
#: A gang's number and one planning of it → its answer; to measure it, say.
Around = Callable[[int, Callable[[], Answer]], Answer]


class Quota(Protocol):
    """The quota of gangs, each known by its UID; ``surplus``: whether its minimum has its places."""

    def lane(self, gang: Gang, *, surplus: bool) -> Lane:
        """The place of a gang among those of other queues."""
        ...

    def confine(self, gang: Gang, *, surplus: bool) -> Gang | Refusal:
        """The part of a gang that may be planned, where it may be; or why nothing of it may."""
        ...

    def charge(self, gang: Gang) -> None:
        """Charge a gang for the places that it has now."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a round for one gang: the minimum's plan or refusal, and the surplus on top when there is a plan.

    ``number`` is its place among the gangs that were given; ``gang`` has the places that it got. ``short``: why there is
    no quota for the rest of its surplus.
    """

    number: int
    gang: Gang
    minimum: Answer
    surplus: Plan | None = None
    short: Refusal | None = None

    @property
    def assignments(self) -> Mapping[str, str]:
        """The node of every pod that got one."""
        plans = (self.minimum, self.surplus)
        return {a.pod: a.node for plan in plans if isinstance(plan, Plan) for a in plan.assignments}

    @property
    def plan(self) -> Answer:
        """The final answer: the last plan that was made (with all that is whole by then), or the refusal."""
        return self.surplus or self.minimum


def plan_round(
    gangs: Sequence[Gang],
    inventory: Inventory,
    *,
    limit: int = LIMIT,
    reserved: Sequence[Kept] = (),
    look: Look = lambda number, gangs: gangs[number],
    around: Around = lambda _number, ask: ask(),
    quota: Quota | None = None,
) -> list[Outcome]:
    """Plan many gangs; what is placed is held in the inventory at once, under the pods' keys.

    Args:
        gangs: all gangs of the round, in any order.
        inventory: what is free; changed by holds.
        limit: see `plan_minimum`.
        reserved: nodes kept for gangs that have waited for long, each gang known by its UID.
        look: called before a gang's minimum is planned.
        around: calls each planning.
        quota: asked before each planning; without it nothing is counted.

    Returns:
        One outcome for each gang, in the order in which their minimums were planned.
    """
    placed = list(gangs)
    kept: Reservations[str] = Reservations()
    for number, each in enumerate(reserved):
        kept.keep(str(number), each)
    line: ActiveQueue[int] = ActiveQueue()
    for number, gang in enumerate(placed):
        line.add(number, gang.order)
    minimums: dict[int, Answer] = {}
    outcomes: dict[int, Outcome] = {}
    for number, gang in enumerate(placed):
        note_outstanding(gang, inventory, number)

    def lane(number: int) -> Lane:
        return FIRST if quota is None else quota.lane(placed[number], surplus=number in minimums)

    def plan(number: int, looked: Gang, planner: Callable[[Gang, Inventory, int], Answer]) -> Answer:
        """The answer to what there is quota for; what it places is held and charged."""
        surplus = number in minimums
        allowed = looked if quota is None else quota.confine(looked, surplus=surplus)
        if isinstance(allowed, Refusal):
            return allowed
        gang, _ = confine(allowed, kept, surplus=surplus)
        answer = around(number, partial(planner, gang, inventory, limit))
        if isinstance(answer, Plan):
            placed[number] = apply(answer, looked, inventory)
            if quota is not None:
                quota.charge(placed[number])
        return answer

    while (turn := line.next(lane=lane)) is not None:
        line.drop(turn)
        if turn in minimums:
            gang, before = placed[turn], outcomes[turn]
            note_outstanding(None, inventory, turn)
            further = plan(turn, gang, plan_surplus)
            if isinstance(further, Refusal):
                outcomes[turn] = replace(before, short=further)
                continue
            assignments = (*(before.surplus.assignments if before.surplus else ()), *further.assignments)
            outcomes[turn] = replace(before, gang=placed[turn], surplus=replace(further, assignments=assignments))
            # Of what borrows there is one replica of each role at a time.
            if further.assignments and (quota is not None or _has_dependent_surplus(placed[turn])):
                line.add(turn, gang.order, surplus=True)
                note_outstanding(placed[turn], inventory, turn)
            continue
        looked = look(turn, placed)
        answer = looked if isinstance(looked, Refusal) else plan(turn, looked, plan_minimum)
        if isinstance(answer, Plan):
            minimums[turn] = answer
            line.add(turn, placed[turn].order, surplus=True)
        note_outstanding(placed[turn] if turn in minimums else None, inventory, turn)
        outcomes[turn] = Outcome(turn, placed[turn], answer)
    return list(outcomes.values())


def _has_dependent_surplus(gang: Gang) -> bool:
    """Tell whether a placed replica may have surplus of its own, which may come now."""
    return any(bool(replica.after) and not replica.placed for role in gang.roles for replica in role.replicas)


def apply(plan: Plan, gang: Gang, inventory: Inventory) -> Gang:
    """Hold what a plan assigns, and return the gang with those pods placed."""
    nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
    for role in gang.roles:
        for replica in role.replicas:
            for pod in replica.pods:
                if pod.key in nodes:
                    inventory.hold(pod.key, nodes[pod.key], pod.shape, pod.meta)
    return place(gang, nodes) if nodes else gang
