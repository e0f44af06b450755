"""One pass of admission: by priority, every minimum before any surplus, ties by age.

The order is ``placement.rounds``'s. It is spelled out here, as it is in the scheduler process, because between two
units of one resource that asks for spread the places of the first have to be counted, and because each workload's
planning time is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from covey.cli.planning.answer import Decision
from covey.placement.inventory import Inventory
from covey.placement.model import Gang, Path, Plan, Reason, Refusal, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.rounds import apply
from covey.scheduler import gangs
from covey.scheduler.tree import Unit


@dataclass(frozen=True, slots=True)
class Contender:
    """One gang, and the number of the workload that it is a unit of."""

    workload: int
    unit: Unit
    gang: Gang


class Pass:
    """A pass over an inventory that nobody else changes; what is placed is held there at once.

    Args:
        inventory: what is free.
        reserved: domains kept for gangs that wait: closed to gangs behind them and to all surplus.
        clock: seconds.
    """

    def __init__(self, inventory: Inventory, reserved: Mapping[Path, Gang], clock: Callable[[], float]) -> None:
        self._inventory = inventory
        self._reserved = reserved
        self._clock = clock
        #: Planning time by workload.
        self.seconds: dict[int, float] = {}

    def run(self, contenders: Sequence[Contender]) -> list[Decision]:
        """Decide about all of them; answers in the order of the arguments."""
        placed = [contender.gang for contender in contenders]
        answers: dict[int, Plan | Refusal] = {}
        order = sorted(range(len(contenders)), key=lambda place: placed[place].order)
        for _, peers in groupby(order, key=lambda place: contenders[place].gang.priority):
            mine = list(peers)
            for place in mine:
                gang = self._beside(contenders, placed, place)
                answers[place] = answer = self._minimum(contenders[place], gang)
                if isinstance(answer, Plan):
                    placed[place] = apply(answer, gang, self._inventory)
            for place in mine:
                if isinstance(answers[place], Plan):
                    answers[place] = answer = self._surplus(contenders[place], placed[place])
                    placed[place] = apply(answer, placed[place], self._inventory)
        return [_decision(placed[place], answers[place]) for place in range(len(contenders))]

    def _minimum(self, contender: Contender, gang: Gang) -> Plan | Refusal:
        if contender.unit.absent:
            return _absent(contender.unit, gang)
        closed = [path for path, owner in self._reserved.items() if owner.order < gang.order]
        return self._timed(contender, lambda: plan_minimum(gang, self._inventory, forbidden=closed))

    def _surplus(self, contender: Contender, gang: Gang) -> Plan:
        answer = self._timed(contender, lambda: plan_surplus(gang, self._inventory, forbidden=list(self._reserved)))
        assert isinstance(answer, Plan)
        return answer

    def _timed(self, contender: Contender, plan: Callable[[], Plan | Refusal]) -> Plan | Refusal:
        started = self._clock()
        answer = plan()
        spent = self.seconds.get(contender.workload, 0.0)
        self.seconds[contender.workload] = spent + self._clock() - started
        return answer

    def _beside(self, contenders: Sequence[Contender], placed: Sequence[Gang], place: int) -> Gang:
        """The gang, told in which domains the other units of its workload lie by now."""
        gang = placed[place]
        if gang.spread is None:
            return gang
        depth = self._inventory.topologies[gang.topology].depth(gang.spread.level) + 1
        occupied: dict[Path, int] = {}
        for number, other in enumerate(placed):
            if number != place and contenders[number].workload == contenders[place].workload:
                for path in {self._inventory.path(gang.topology, node)[:depth] for node in _nodes(other)}:
                    occupied[path] = occupied.get(path, 0) + 1
        return replace(gang, spread=replace(gang.spread, occupied=occupied))


def _nodes(gang: Gang) -> set[str]:
    return {pod.node for role in gang.roles for replica in role.replicas for pod in replica.pods if pod.node}


def _absent(unit: Unit, gang: Gang) -> Refusal:
    message = gangs.missing(unit, gang) or "groups do not exist yet"
    reason = Reason("", "unit", None, (), 0, 0, None, None, None, (), message)
    return Refusal(Verdict.INFEASIBLE, (reason,))


def _decision(gang: Gang, answer: Plan | Refusal) -> Decision:
    """``gang`` has all its places by now."""
    if isinstance(answer, Refusal):
        return Decision(gang, answer.verdict, reasons=answer.reasons)
    minimum = frozenset((each.role, each.replica) for each in answer.replicas if each.minimum)
    return Decision(gang, Verdict.ADMITTED, minimum, answer.preferred)
