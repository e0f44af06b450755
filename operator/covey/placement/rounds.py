"""A round of many gangs, as the scheduler process makes it: by priority, every minimum before any surplus.

A minimum that does not fit blocks nobody else, except in a domain that is reserved for it because it has waited for
long: there neither gangs behind it nor anybody's surplus may go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from covey.placement.inventory import Inventory
from covey.placement.model import Gang, Path, Plan, Refusal
from covey.placement.planner import LIMIT, plan_minimum, plan_surplus
from covey.placement.request import place


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did for one gang: the minimum's plan or refusal, and the surplus on top when there is a plan."""

    gang: Gang
    minimum: Plan | Refusal
    surplus: Plan | None = None

    @property
    def assignments(self) -> Mapping[str, str]:
        """The node of every pod that got one."""
        plans = (self.minimum, self.surplus)
        return {a.pod: a.node for plan in plans if isinstance(plan, Plan) for a in plan.assignments}

    @property
    def plan(self) -> Plan | Refusal:
        """The final answer: the last plan that was made (with all that is whole by then), or the refusal."""
        return self.surplus or self.minimum


def plan_round(
    gangs: Sequence[Gang],
    inventory: Inventory,
    *,
    limit: int = LIMIT,
    reserved: Mapping[Path, Gang] | None = None,
) -> list[Outcome]:
    """Plan many gangs; what is placed is held in the inventory at once, under the pods' keys.

    Args:
        gangs: all gangs of the round, in any order.
        inventory: what is free; changed by holds.
        limit: see `plan_minimum`.
        reserved: domains kept for gangs that have waited for long. They are closed to gangs that come after
            that gang and to all surplus but its own.

    Returns:
        One outcome for each gang, in the order in which they were planned.
    """
    outcomes: list[Outcome] = []
    ordered = sorted(gangs, key=lambda gang: gang.order)
    for _, peers in groupby(ordered, key=lambda gang: gang.priority):
        tried = [(gang, _minimum(gang, inventory, limit, reserved or {})) for gang in peers]
        outcomes += [_with_surplus(gang, plan, inventory, limit, reserved or {}) for gang, plan in tried]
    return outcomes


def apply(plan: Plan, gang: Gang, inventory: Inventory) -> Gang:
    """Hold what a plan assigns, and return the gang with those pods placed."""
    nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
    for role in gang.roles:
        for replica in role.replicas:
            for pod in replica.pods:
                if pod.key in nodes:
                    inventory.hold(pod.key, nodes[pod.key], pod.shape)
    return place(gang, nodes) if nodes else gang


def _minimum(
    gang: Gang, inventory: Inventory, limit: int, reserved: Mapping[Path, Gang]
) -> tuple[Gang, Plan | Refusal]:
    closed = [path for path, owner in reserved.items() if owner.order < gang.order]
    answer = plan_minimum(gang, inventory, limit, forbidden=closed)
    return (apply(answer, gang, inventory) if isinstance(answer, Plan) else gang, answer)


def _with_surplus(
    gang: Gang, tried: tuple[Gang, Plan | Refusal], inventory: Inventory, limit: int, reserved: Mapping[Path, Gang]
) -> Outcome:
    placed, answer = tried
    if isinstance(answer, Refusal):
        return Outcome(gang, answer)
    closed = [path for path, owner in reserved.items() if owner.order != gang.order]
    surplus = plan_surplus(placed, inventory, limit, forbidden=closed)
    apply(surplus, placed, inventory)
    return Outcome(gang, answer, surplus)
