"""Judging sets of steps by plans, and putting steps back that are not needed: pure.

What fits still fits when more is gone. So one pass over the steps in any order, which puts back each whose room is not
needed, ends with a set of which each step is needed; the order decides which set that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from covey.admission.slots import Ground
from covey.admission.taking import Cost
from covey.admission.victims import Step
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Domain, Gang, Plan, Refusal, RoleRequest, Verdict, natural
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum
from covey.placement.question.demands import minimum_demands

T = TypeVar("T")


class OutOfPlansError(Exception):
    """All plans were made."""


@dataclass(slots=True)
class Judge:
    """Plans of a gang without some holders."""

    gang: Gang
    inventory: Inventory
    limit: int
    most: int
    plans: int = 0
    unknown: bool = False
    _known: dict[frozenset[str], Plan | Refusal] = field(default_factory=dict)

    def plan(self, keys: Iterable[str]) -> Plan | Refusal:
        """The answer once these holders are gone.

        Raises:
            OutOfPlansError: all plans were made.
        """
        gone = frozenset(keys)
        answer = self._known.get(gone)
        if answer is None:
            if self.plans >= self.most:
                raise OutOfPlansError
            self.plans += 1
            with overlay(self.inventory) as changes:
                changes.remove(gone)
                answer = self._known[gone] = plan_minimum(self.gang, self.inventory, self.limit, reasons=False)
        self.unknown = self.unknown or answer.verdict is Verdict.UNKNOWN
        return answer

    def answer_for(self, keys: Iterable[str]) -> Plan | Refusal | None:
        """The answer once these holders are gone, if it was asked for."""
        return self._known.get(frozenset(keys))

    def fits(self, steps: Iterable[Step]) -> bool:
        """Tell whether there is a plan without these steps."""
        return isinstance(self.plan(key for step in steps for key in step.keys), Plan)


def least_of(gang: Gang) -> Gang:
    """A gang that wants nothing but its minimum, and prefers nothing: what it lacks has a plan just if the gang's has."""
    needed = {(demand.role, demand.replica.replica) for demand in minimum_demands(gang)}

    def role_of(number: int, role: RoleRequest) -> RoleRequest:
        if role.free:
            return replace(role, preferred=None)
        kept = tuple(
            replica
            for replica in role.replicas
            if (number, replica.replica) in needed or any(pod.node is not None for pod in replica.pods)
        )
        return replace(role, preferred=None, replicas=kept, desired=max(role.minimum, len(kept)))

    spread = gang.spread if gang.spread is not None and gang.spread.required else None
    return replace(
        gang,
        preferred=None,
        roles=tuple(role_of(number, role) for number, role in enumerate(gang.roles)),
        proximity=tuple(rule for rule in gang.proximity if rule.required),
        rules=tuple(replace(rule, preferred=None) for rule in gang.rules),
        spread=spread,
    )


def most_of(ground: Ground, mask: int = 0, *, units: bool = True) -> int:
    """The most of a ground that may be taken beside some steps: whole units, and replicas that others can spare."""
    for number in sorted(range(len(ground.steps)), key=lambda number: _by_weight(ground.steps[number])):
        if not units and ground.steps[number].kind == "Unit":
            continue
        step = ground.steps[number]
        own = sum(1 << bit for bit in ground.bits(mask) if ground.steps[bit].unit == step.unit)
        if step.kind == "Unit":
            mask = mask & ~own | 1 << number
        elif ground.allows(own | 1 << number):
            mask |= 1 << number
    return mask


def _by_weight(step: Step) -> tuple[bool, int]:
    return step.kind == "Unit", -step.count


def room_of(plan: Plan) -> tuple[tuple[str, ...], Domain | None]:
    """The nodes that a minimum lies on by a plan, and the narrowest domain that holds them."""
    nodes = sorted({assignment.node for assignment in plan.assignments}, key=natural)
    return tuple(nodes), plan.placement[-1] if plan.placement else None


def put_back(order: Sequence[T], suffices: Callable[[Sequence[T]], bool]) -> list[T]:
    """The steps that stay when all others, many at once as far as that goes, are put back in this order."""
    kept: list[T] = []
    left = list(order)
    size = max(1, len(left) // 2)
    while left:
        if suffices([*kept, *left[size:]]):
            del left[:size]
            size *= 2
        elif size > 1:
            size //= 2
        else:
            kept.append(left.pop(0))
    return kept


class Reprieve:
    """Steps of a ground that are put back, by bounds where they prove enough, else by plans."""

    def __init__(self, ground: Ground, judge: Judge, cost: Callable[[Iterable[Step]], Cost]) -> None:
        self._ground = ground
        self._judge = judge
        self._cost = cost
        self._bits = {id(step): 1 << number for number, step in enumerate(ground.steps)}

    def shrink(self, mask: int) -> int:
        """Steps of a set with which there is a plan, as many as are needed: the dearest are put back first."""
        kept = put_back(self._dearest(self._ground.steps_of(mask)), self.suffices)
        return sum(self._bits[id(step)] for step in kept)

    def _dearest(self, steps: Sequence[Step]) -> list[Step]:
        return sorted(steps, key=lambda step: self._cost([step]), reverse=True)

    def spare_units(self, mask: int, until: int) -> int:
        """Take surplus replicas for whole units, one unit after another, where that is cheaper.

        Args:
            mask: steps with which there is a plan.
            until: plans of the judge beyond which no further unit is tried.
        """
        for step in self._dearest(self._ground.steps_of(mask)):
            if step.kind != "Unit" or self._judge.plans >= until:
                continue
            more = most_of(self._ground, mask & ~self._bits[id(step)], units=False)
            if self.suffices(self._ground.steps_of(more)):
                shrunk = self.shrink(more)
                mask = min(mask, shrunk, key=lambda candidate: self._cost(self._ground.steps_of(candidate)))
        return mask

    def suffices(self, steps: Sequence[Step]) -> bool:
        """Tell whether there is a plan without these steps."""
        mask = sum(self._bits[id(step)] for step in steps)
        if not self._ground.fits(mask) and self._ground.is_closed(mask):
            return False
        return self._judge.fits(steps)

    def find_needed(self, steps: Sequence[Step]) -> tuple[list[Step], bool]:
        """Those of some steps that are needed, all of which together suffice; and whether that is proven of each."""
        self._judge.unknown = False
        try:
            kept = put_back(self._dearest(steps), self.suffices)
        except OutOfPlansError:
            return list(steps), False
        return kept, not self._judge.unknown
