"""A round of many gangs, as the scheduler process makes it: by priority, every minimum before any surplus.

A minimum that does not fit blocks nobody else, except in a domain that is reserved for it because it has waited for
long: there neither gangs behind it nor the surplus of its priority and of lower ones may go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, Plan, Refusal
from covey.placement.planner import LIMIT, plan_minimum, plan_surplus
from covey.placement.question.demands import place

Answer = Plan | Refusal
#: A gang's number and all gangs with what they have by now → the gang as it is to be planned, or why it is not.
Look = Callable[[int, Sequence[Gang]], Gang | Refusal]
#: A gang's number and one planning of it → its answer; to measure it, say.
Around = Callable[[int, Callable[[], Answer]], Answer]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did for one gang: the minimum's plan or refusal, and the surplus on top when there is a plan.

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
    gangs: Sequence[Gang],
    inventory: Inventory,
    *,
    limit: int = LIMIT,
    reserved: Sequence[tuple[Path, Gang]] = (),
    look: Look = lambda number, gangs: gangs[number],
    around: Around = lambda _number, ask: ask(),
) -> list[Outcome]:
    """Plan many gangs; what is placed is held in the inventory at once, under the pods' keys.

    Args:
        gangs: all gangs of the round, in any order.
        inventory: what is free; changed by holds.
        limit: see `plan_minimum`.
        reserved: domains kept for gangs that have waited for long, each known by its UID. They are closed to gangs
            that come after that gang (one that runs already may still replace what it lost), and to all surplus
            of no higher priority but its own.
        look: called before a gang's minimum is planned.
        around: calls each planning.

    Returns:
        One outcome for each gang, in the order in which they were planned.
    """
    placed = list(gangs)
    outcomes: list[Outcome] = []
    ordered = sorted(range(len(placed)), key=lambda number: placed[number].order)
    for _, peers in groupby(ordered, key=lambda number: placed[number].priority):
        minimums: dict[int, Answer] = {}
        for number in peers:
            gang = look(number, placed)
            answer: Answer = (
                gang if isinstance(gang, Refusal) else around(number, _minimum(gang, inventory, limit, reserved))
            )
            minimums[number] = answer
            if isinstance(answer, Plan):
                assert isinstance(gang, Gang)
                placed[number] = apply(answer, gang, inventory)
        for number, minimum in minimums.items():
            surplus: Plan | None = None
            if isinstance(minimum, Plan):
                more = True
                while more:
                    further = around(number, _surplus(placed[number], inventory, limit, reserved))
                    assert isinstance(further, Plan)
                    before = surplus.assignments if surplus else ()
                    surplus = replace(further, assignments=(*before, *further.assignments))
                    placed[number] = apply(further, placed[number], inventory)
                    more = bool(further.assignments) and _followed(placed[number])
            outcomes.append(Outcome(number, placed[number], minimum, surplus))
    return outcomes


def _followed(gang: Gang) -> bool:
    """What came may have surplus of its own, which may come now."""
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


def _minimum(
    gang: Gang, inventory: Inventory, limit: int, reserved: Sequence[tuple[Path, Gang]]
) -> Callable[[], Answer]:
    running = any(pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods)
    closed = [path for path, owner in reserved if owner.uid != gang.uid and not running and owner.order < gang.order]
    return lambda: plan_minimum(gang, inventory, limit, forbidden=closed)


def _surplus(
    gang: Gang, inventory: Inventory, limit: int, reserved: Sequence[tuple[Path, Gang]]
) -> Callable[[], Answer]:
    closed = [path for path, owner in reserved if owner.uid != gang.uid and owner.priority >= gang.priority]
    return lambda: plan_surplus(gang, inventory, limit, forbidden=closed)
