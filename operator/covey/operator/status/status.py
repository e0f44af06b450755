"""The status of a resource, computed whole from the observed state; nobody else writes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.model import StatusCondition
from covey.api.status import DisaggregatedInferenceStatus, RoleStatus, Summary, UnitStatus
from covey.compile import ReplicaKey, Scale
from covey.model import podstate
from covey.operator.model.observed import Observed, number
from covey.operator.model.phase import Phase
from covey.operator.model.problem import Problem
from covey.operator.model.recorded_status import find_served, read_complete
from covey.operator.plan import Plan
from covey.operator.replicas.progress import ReplicaState
from covey.operator.status.conditions import Situation, find_conditions, summarize
from covey.operator.status.units import UnitSummary
from covey.operator.validation import AcceptedSpec

#: Units that the status lists.
_LISTED = 64
_ORDER = {phase: position for position, phase in enumerate(Phase)}

Status = dict[str, Any]


def compute(
    verdict: AcceptedSpec,
    observed: Observed,
    plan: Plan,
    units: Sequence[UnitSummary],
    before: Mapping[str, Any],
    now: str,
    *,
    failure: Problem | None = None,
) -> Status:
    """Compute the whole status.

    Args:
        verdict: what is kept up of the resource.
        observed: the snapshot.
        plan: what was planned for it.
        units: how far each unit has come.
        before: the status so far; times of unchanged conditions are taken from it.
        now: RFC 3339.
        failure: what the plan was stopped by.
    """
    inference = verdict.inference
    known = find_served((unit.number for unit in units), before)
    served = frozenset(unit.number for unit in units if unit.is_available or unit.number in known)
    served -= plan.status.anew
    lives = any(not podstate.is_terminating(pod) for pod in observed.every_pod())
    findings = find_conditions(Situation(verdict, plan, units, failure, served, lives=lives))
    # The list may have to leave some out: those that are well.
    worst = sorted(units, key=lambda unit: (_ORDER[unit.phase], unit.number))
    roles = _roles(verdict, observed, plan)
    return DisaggregatedInferenceStatus(
        observed_generation=inference.metadata.generation,
        conditions=_conditions(findings, before, inference.metadata.generation, now),
        units=_existing(verdict, observed),
        ready_units=sum(unit.is_available for unit in units),
        roles=roles,
        unit_statuses=tuple(_unit(unit, served, plan) for unit in worst[:_LISTED]),
        summary=_summary(roles, units, findings, Scale.of(inference.spec).units),
        selector=f"{names.LABEL_INFERENCE}={inference.metadata.name},{names.LABEL_UNIT_LEADER}=true",
        **plan.status.fields,
    ).as_written()


def of_invalid(problem: Problem, before: Mapping[str, Any], generation: int, now: str) -> Status:
    """The status of a resource that cannot be read: it says so, and keeps what nothing else remembers."""
    words = {"reason": problem.reason, "message": problem.message}
    states = {names.READY: "False", names.ADMITTED: "False", names.PROGRESSING: "False", names.STALLED: "True"}
    statuses = [{"type": kind, "status": state, **words} for kind, state in states.items()]
    return DisaggregatedInferenceStatus(
        observed_generation=generation,
        conditions=_conditions(statuses, before, generation, now),
        complete_revision=read_complete(before) or None,
        summary=Summary(status=problem.reason, message=shorten(problem.message), reason=problem.message),
    ).as_written()


def of_deleted(pods: int, before: Mapping[str, Any], generation: int, now: str) -> Status:
    """The status of a resource that is being deleted: of its pods, which go in no order, it only has how many are left."""
    left = {0: "", 1: ": 1 pod is left"}.get(pods, f": {pods} pods are left")
    words = {"status": "False", "reason": names.REASON_DELETING, "message": f"it is being deleted{left}"}
    kinds = (names.READY, names.ADMITTED, names.SCHEDULED, names.AVAILABLE, names.PROGRESSING)
    return DisaggregatedInferenceStatus(
        observed_generation=generation,
        conditions=_conditions([{"type": kind, **words} for kind in kinds], before, generation, now),
        summary=Summary(status=words["reason"], message=words["message"], reason=words["message"]),
    ).as_written()


def _conditions(
    statuses: Sequence[Status], before: Mapping[str, Any], generation: int, now: str
) -> tuple[StatusCondition, ...]:
    return tuple(map(StatusCondition.model_validate, core.stamp_conditions(statuses, before, generation, now)))


def _existing(verdict: AcceptedSpec, observed: Observed) -> int:
    """Units that have a root, also those that are on their way out."""
    backend, name = verdict.backend, verdict.inference.metadata.name
    if backend is None:
        return 0
    numbers = {number(owned.metadata, names.LABEL_UNIT) for owned in observed.objects.values()} - {None}
    # Not every backend has a group for each unit.
    numbers |= {slot.unit for slot in observed.pods}
    units = [unit or 0 for unit in numbers]
    return sum(backend.read_back(name, unit, observed.of_unit(unit)) is not None for unit in units)


def _roles(verdict: AcceptedSpec, observed: Observed, plan: Plan) -> tuple[RoleStatus, ...]:
    # What is wanted, also while something keeps it from being created.
    scale, marks = plan.intent.layout.scale or Scale.of(verdict.inference.spec), _marks(observed)
    rows: list[RoleStatus] = []
    for name, count in scale.roles.items():
        states = [
            (state, marks.get((unit, name, replica), (frozenset(), 0)))
            for unit, replicas in plan.intent.layout.units.items()
            if unit != plan.intent.arriving
            for replica, state in plan.intent.states.get(unit, {}).get(name, {}).items()
            if replica in replicas[name]
        ]
        row = RoleStatus(
            name=name,
            replicas=scale.total(name),
            min_replicas=count.minimum * scale.units,
            admitted=sum(state.is_admitted for state, _ in states),
            scheduled=sum(state.is_bound for state, _ in states),
            ready=sum(state.is_ready for state, _ in states),
            updated=_count_updated(states, verdict.wanted.roles[name].hash, scale.total(name)),
            restarts=sum(restarts for _, (_, restarts) in states),
            **plan.status.roles.get(name, {}),
        )
        rows.append(row)
    return tuple(rows)


def _count_updated(
    states: Sequence[tuple[ReplicaState, tuple[frozenset[str], int]]], revision: str, wanted: int
) -> int:
    """Count replicas of a revision, of those that are wanted: one that waits counts only for a place that is free."""
    placed = sum(state.is_admitted for state, _ in states)
    updated = [state.is_admitted for state, (revisions, _) in states if revisions == {revision}]
    waiting = min(updated.count(False), max(0, wanted - placed))
    return min(updated.count(True) + waiting, wanted)


def _marks(observed: Observed) -> dict[ReplicaKey, tuple[frozenset[str], int]]:
    """The revisions of each replica's pods, and the times that it was recreated."""
    revisions: dict[ReplicaKey, set[str]] = {}
    restarts: dict[ReplicaKey, int] = {}
    for slot, pod in observed.current.items():
        replica = slot[:3]
        revisions.setdefault(replica, set()).add(pod.metadata.label(names.LABEL_REVISION) or "")
        restarts[replica] = max(restarts.get(replica, 0), podstate.restarts(pod))
    return {replica: (frozenset(labels), restarts[replica]) for replica, labels in revisions.items()}


def _unit(unit: UnitSummary, served: Collection[int], plan: Plan) -> UnitStatus:
    rest = {**plan.status.units.get(unit.number, {})}
    if unit.path:
        rest["path"] = unit.path
    if unit.number in served:
        rest["served"] = True
    return UnitStatus(unit=unit.number, phase=unit.phase.value, reason=unit.reason, message=unit.message, **rest)


def _summary(
    roles: Sequence[RoleStatus], units: Sequence[UnitSummary], conditions: Sequence[Status], wanted: int
) -> Summary:
    paths = ("/".join(part or "-" for part in unit.path) for unit in units if unit.path)
    word, message = summarize(conditions, units)
    ready = next(condition for condition in conditions if condition["type"] == names.READY)
    return Summary(
        status=word,
        message=shorten(message),
        ready=" ".join(f"{role.name} {role.ready}/{role.replicas}" for role in roles),
        units=f"{sum(unit.is_available for unit in units)}/{wanted}",
        updated=f"{sum(role.updated for role in roles)}/{sum(role.replicas for role in roles)}",
        # The column REASON is what a person should read first.
        reason="" if ready["reason"] == names.READY else str(ready["message"]),
        domain=", ".join(dict.fromkeys(paths))[:1024],
    )


#: Characters of the column MESSAGE: a clause or two, which name the cause.
_MESSAGE: Final = 160


def shorten(message: str) -> str:
    """Shorten a sentence for a column: to the clauses that fit, or else in the first of them."""
    if len(message) <= _MESSAGE:
        return message
    clauses = message[:_MESSAGE].rpartition("; ")[0]
    return f"{clauses} …" if clauses else f"{message[: _MESSAGE - 2].rstrip()} …"
