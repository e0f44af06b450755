"""One pass of admission, as ``admission.round`` makes it.

What is added here: between two units of one resource that asks for spread the places of the first are counted, groups
that do not exist yet are named, and each workload's planning time is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from covey.admission import gangs
from covey.admission.levels import with_occupied_domains
from covey.admission.reservation import Kept
from covey.admission.round import plan_round
from covey.admission.tree import Unit
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Reason, Refusal, Verdict
from covey.planning.answer import Decision


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
        reserved: nodes kept for gangs that wait, see `plan_round`.
        clock: seconds.
    """

    def __init__(self, inventory: Inventory, reserved: Sequence[Kept], clock: Callable[[], float]) -> None:
        self._inventory = inventory
        self._reserved = reserved
        self._clock = clock
        #: Planning time by workload.
        self.seconds: dict[int, float] = {}

    def run(self, contenders: Sequence[Contender]) -> list[Decision]:
        """Decide about all of them; answers in the order of the arguments."""

        def look(number: int, placed: Sequence[Gang]) -> Gang | Refusal:
            unit = contenders[number].unit
            return (
                _absent(unit, placed[number])
                if unit.absent
                else self._with_neighbour_domains(contenders, placed, number)
            )

        def plan_timed(number: int, ask: Callable[[], Plan | Refusal]) -> Plan | Refusal:
            started = self._clock()
            answer = ask()
            workload = contenders[number].workload
            self.seconds[workload] = self.seconds.get(workload, 0.0) + self._clock() - started
            return answer

        gangs = [contender.gang for contender in contenders]
        outcomes = plan_round(gangs, self._inventory, reserved=self._reserved, look=look, around=plan_timed)
        return [_decision(outcome.gang, outcome.plan) for outcome in sorted(outcomes, key=lambda each: each.number)]

    def _with_neighbour_domains(self, contenders: Sequence[Contender], placed: Sequence[Gang], place: int) -> Gang:
        """Return the gang with the domains in which the other units of its workload lie by now."""
        mine, gang = contenders[place], placed[place]
        others = [
            number for number, each in enumerate(contenders) if each.workload == mine.workload and number != place
        ]
        pods = (pod for n in others for role in placed[n].roles for replica in role.replicas for pod in replica.pods)
        return with_occupied_domains(
            gang,
            self._inventory.topologies[gang.topology],
            (contenders[number].unit for number in others),
            {pod.key: pod.node for pod in pods if pod.node is not None},
            partial(self._inventory.path, gang.topology),
        )


def _absent(unit: Unit, gang: Gang) -> Refusal:
    message = gangs.missing(unit, gang) or "groups do not exist yet"
    reason = Reason("", "unit", None, (), 0, 0, None, None, None, (), message)
    return Refusal(Verdict.INFEASIBLE, (reason,))


def _decision(gang: Gang, answer: Plan | Refusal) -> Decision:
    """Return the decision about a gang; ``gang`` has all its places by now."""
    if isinstance(answer, Refusal):
        return Decision(gang, answer.verdict, reasons=answer.reasons)
    minimum = frozenset((each.role, each.replica) for each in answer.replicas if each.minimum)
    return Decision(gang, Verdict.ADMITTED, minimum, answer.preferred)
