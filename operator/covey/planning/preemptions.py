"""Victims of what has no place (``covey plan --preempt``), each gang by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from covey.admission.gangs import wants_minimum
from covey.admission.nodes import Key
from covey.admission.ordinary import find_ordinary
from covey.admission.preemption import search
from covey.admission.reclaim import Right, reclaim
from covey.admission.taking import Nobody, Taking
from covey.admission.victims import Candidate, Step, Terms
from covey.api import core
from covey.model import podstate
from covey.placement.model import Gang, Refusal, Verdict
from covey.planning.report import PreemptionReport, VictimReport
from covey.planning.run import Planned
from covey.planning.trees import PlannedWorkload

_NOBODY: Final = {
    Verdict.ADMITTED: "fits once the pods that leave are gone: nobody needs to give way",
    Verdict.INFEASIBLE: "would not fit either if all units that it may take gave way",
    Verdict.UNKNOWN: "the search met its limit: nobody would give way",
}
_BY_QUOTA: Final = "is refused by quota, and nothing that others would have to give back helps"
_NEVER: Final = "its priority class preempts nobody (preemptionPolicy Never)"


def preemptions_of(planned: Planned, now: float, *, ordinary_pods: bool = False) -> Iterator[PreemptionReport]:
    """Preemptions for each unit whose minimum has no place: who would give way to it.

    Args:
        planned: what was planned; its inventory is as it was afterwards.
        now: seconds since the epoch.
        ordinary_pods: whether those of the cluster may be evicted.
    """
    world = planned.world
    candidates, quotas = world.candidates, world.quotas
    classes = planned.facts.classes()
    pods = [*planned.facts.pods, *(pod for workload in planned.workloads for pod in workload.pods.values())]
    leaving = {pod.metadata.uid for pod in pods if leaves(pod)}
    terms = Terms(now)
    for workload, gangs in zip(planned.workloads, planned.gangs, strict=True):
        named = classes.get(workload.priority_class or "")
        for unit, gang in zip(workload.units, gangs, strict=True):
            if not wants_minimum(gang) or unit.absent:
                continue
            entry = world.entry(unit.key)
            allowed = world.allowed(unit.key)
            is_never = named is not None and named.preemption_policy == "Never"
            if (
                taking := _reclaim(planned, gang, candidates, terms, leaving, _in_order(quotas.rights(entry)))
            ) is not None:
                yield _report(workload, gang, taking, reclaims=True)
            elif is_never and not isinstance(allowed, Refusal):
                yield _report(workload, gang, Nobody(Verdict.INFEASIBLE), _NEVER)
            elif isinstance(allowed, Refusal):
                inside = () if is_never else quotas.claims_inside(entry)
                taking = _reclaim(planned, gang, candidates, terms, leaving, inside)
                yield _report(workload, gang, taking or Nobody(Verdict.INFEASIBLE), _BY_QUOTA)
            else:
                ordinary = find_ordinary(planned.facts.pods, gang.priority) if ordinary_pods else []
                own = [candidate for key, candidate in candidates.items() if quotas.shares_queue(key, unit.key)]
                answer = search(allowed, planned.inventory, own, terms, ordinary=ordinary, freeing=leaving)
                yield _report(workload, gang, answer)


def _in_order(rights: Iterable[Right]) -> Iterator[Right]:
    """The rights by which anybody has something to give back."""
    for right in rights:
        if order := right.find_order():
            yield replace(right, order=order)


def _reclaim(
    planned: Planned,
    gang: Gang,
    candidates: Mapping[Key, Candidate],
    terms: Terms,
    leaving: Collection[str],
    rights: Iterable[Right],
) -> Taking | None:
    """Find what others have to give back to a minimum, by one of these rights after another."""
    for right in rights:
        borrowers = [candidates[key] for key in dict.fromkeys(charge.unit for charge in right.order)]
        answer = reclaim(gang, planned.inventory, borrowers, terms, right, freeing=leaving)
        if isinstance(answer, Taking):
            return answer
    return None


def leaves(pod: core.Pod) -> bool:
    """Tell whether the room of a pod comes free by itself."""
    return podstate.is_terminating(pod) or podstate.drains_until(pod) is not None


def _report(
    workload: PlannedWorkload, gang: Gang, answer: Taking | Nobody, message: str = "", *, reclaims: bool = False
) -> PreemptionReport:
    if isinstance(answer, Nobody):
        verdict = answer.verdict.value
        return PreemptionReport(
            workload.namespace, workload.name, gang.unit, verdict, (), (), (), message or _NOBODY[answer.verdict]
        )
    return PreemptionReport(
        workload.namespace,
        workload.name,
        gang.unit,
        "Reclaiming" if reclaims else "Preempting",
        tuple(map(_victim, answer.steps)),
        answer.nodes,
        answer.path,
        answer.sentence,
        answer.unproven,
    )


def _victim(step: Step) -> VictimReport:
    return VictimReport(
        step.kind,
        step.unit.namespace,
        step.resource,
        step.number,
        step.role,
        step.replica,
        step.priority,
        len(step.keys),
    )
