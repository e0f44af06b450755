"""A round of many gangs on an inventory that nobody else changes: the planner alone, in the order of the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from covey.admission.order import ActiveQueue
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.question.demands import note_outstanding, place

Answer = Plan | Refusal
#: A gang's number and one planning of it → its answer; to measure it, say.
Around = Callable[[int, Callable[[], Answer]], Answer]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a round for one gang: the minimum's plan or refusal, and the surplus on top when there is a plan.

    ``number`` is its place among the gangs that were given; ``gang`` has the places that it got.
    """

    number: int
    gang: Gang
    minimum: Answer
    surplus: Plan | None = None

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
    gangs: Sequence[Gang], inventory: Inventory, *, around: Around = lambda _number, ask: ask()
) -> list[Outcome]:
    """Plan many gangs; what is placed is held in the inventory at once, under the pods' keys.

    Args:
        gangs: all gangs of the round, in any order.
        inventory: what is free; changed by holds.
        around: calls each planning.

    Returns:
        One outcome for each gang, in the order in which their minimums were planned.
    """
    placed = list(gangs)
    queue: ActiveQueue[int] = ActiveQueue()
    for number, gang in enumerate(placed):
        queue.add(number, gang.order)
        note_outstanding(gang, inventory, number)
    outcomes: dict[int, Outcome] = {}
    while (turn := queue.next()) is not None:
        queue.drop(turn)
        before, gang = outcomes.get(turn), placed[turn]
        if before is None:
            answer = around(turn, partial(plan_minimum, gang, inventory))
            if isinstance(answer, Plan):
                placed[turn] = apply(answer, gang, inventory)
                queue.add(turn, gang.order, surplus=True)
            note_outstanding(placed[turn] if isinstance(answer, Plan) else None, inventory, turn)
            outcomes[turn] = Outcome(turn, placed[turn], answer)
            continue
        note_outstanding(None, inventory, turn)
        further = around(turn, partial(plan_surplus, gang, inventory))
        assert isinstance(further, Plan)
        placed[turn] = apply(further, gang, inventory)
        assignments = (*(before.surplus.assignments if before.surplus else ()), *further.assignments)
        outcomes[turn] = replace(before, gang=placed[turn], surplus=replace(further, assignments=assignments))
        if further.assignments and _has_dependent_surplus(placed[turn]):
            queue.add(turn, gang.order, surplus=True)
            note_outstanding(placed[turn], inventory, turn)
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
