"""Victims of what has no place (``covey plan --preempt``), each gang by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
    candidates = candidates_of(planned)
    classes = planned.facts.classes()
    pods = [*planned.facts.pods, *(pod for workload in planned.workloads for pod in workload.pods.values())]
    leaving = {pod.metadata.uid for pod in pods if leaves(pod)}
    terms, tenants = Terms(now), planned.tenants
    for workload, gangs in zip(planned.workloads, planned.gangs, strict=True):
        named = classes.get(workload.priority_class or "")
        for unit, gang in zip(workload.units, gangs, strict=True):
            if not wants_minimum(gang) or unit.absent:
                continue
            allowed = gang if tenants is None else tenants.confine(gang, surplus=False)
            rights = tenants.rights(gang) if tenants is not None else ()
            is_never = named is not None and named.preemption_policy == "Never"
            if (taking := _reclaim(planned, gang, candidates, terms, leaving, rights)) is not None:
                yield _report(workload, gang, taking, reclaims=True)
            elif is_never and not isinstance(allowed, Refusal):
                yield _report(workload, gang, Nobody(Verdict.INFEASIBLE), _NEVER)
            elif isinstance(allowed, Refusal):
                inside = tenants.rights_inside(gang) if tenants is not None and not is_never else ()
                taking = _reclaim(planned, gang, candidates, terms, leaving, inside)
                yield _report(workload, gang, taking or Nobody(Verdict.INFEASIBLE), _BY_QUOTA)
            else:
                ordinary = find_ordinary(planned.facts.pods, gang.priority) if ordinary_pods else []
                own = [
                    candidate
                    for key, candidate in candidates.items()
                    if tenants is None or tenants.has_queue_of(key, gang)
                ]
                answer = search(allowed, planned.inventory, own, terms, ordinary=ordinary, freeing=leaving)
                yield _report(workload, gang, answer)


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


def candidates_of(planned: Planned) -> Mapping[Key, Candidate]:
    """Units of the cluster and of the files, by the keys of their roots; a unit of a file stands for that of the cluster."""
    units = planned.facts.units()
    for workload, gangs in zip(planned.workloads, planned.gangs, strict=True):
        for unit, gang in zip(workload.units, gangs, strict=True):
            units[unit.key] = Candidate(unit, gang.priority)
    return units


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
