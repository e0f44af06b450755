"""The conditions of a resource, each from the facts, none from another but ``Ready`` and ``Stalled`` (``ready``).

``Admitted`` shows what the scheduler process decided on the roots; ``Scheduled`` and ``Available`` count pods.
``Progressing`` says whether anything is still on its way, and if not, whether that is as wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.reasons import needs_person
from covey.api.unsupported import unkept_constraints
from covey.operator.intent import Intent
from covey.operator.model.phase import Phase
from covey.operator.model.problem import Problem
from covey.operator.model.template_faults import asks_for_devices
from covey.operator.plan import Plan
from covey.operator.status.minimum_met import minimum_met
from covey.operator.status.ready import REASON_COMPLETE, Finding, find_ready
from covey.operator.status.units import REASON_NOT_READY, REASON_START_HELD, REASON_SURPLUS, UnitSummary
from covey.operator.validation import AcceptedSpec
from covey.rollout.gates import Gate
from covey.rollout.progress import describe_partition

#: The words of kubectl's column STATUS where all is well, where no unit is wanted, where a unit that served is below its minimum or something else is
#: not as it should be, and where pods of a minimum come.
STATUS_SERVING: Final = "Serving"
STATUS_NONE: Final = "ScaledToZero"
STATUS_DEGRADED: Final = names.DEGRADED
STATUS_STARTING: Final = "Starting"
#: Said first of a unit that is lost; STATUS says it, too.
_HAS_SERVED: Final = "it has served and is below its minimum; "
_COMING: Final = frozenset({"NotBound", REASON_NOT_READY, REASON_START_HELD})


def summarize(conditions: Sequence[Mapping[str, Any]], units: Sequence[UnitSummary]) -> tuple[str, str]:
    """Choose the word of STATUS, and the sentence that says why it is not another; empty where all is well."""
    by_type = {condition["type"]: condition for condition in conditions}
    ready, degraded = by_type[names.READY], by_type[names.DEGRADED]
    if names.STALLED in by_type:
        return by_type[names.STALLED]["reason"], by_type[names.STALLED]["message"]
    if degraded["status"] == "True":
        return STATUS_DEGRADED, degraded["message"].removeprefix(_HAS_SERVED)
    reason, message = ready["reason"], ready["message"]
    if reason in {*_COMING, REASON_SURPLUS}:
        # The condition says first how many units have come.
        first = next((unit for unit in units if unit.is_admitted and unit.phase is not Phase.READY), None)
        if first is not None:
            message = f"unit {first.number}: {first.message}" if len(units) > 1 else first.message
        trouble = next((unit.trouble for unit in units if unit.trouble is not None), None)
        if trouble is not None:
            return trouble.reason, message
    if reason in _COMING:
        return STATUS_STARTING, message
    if reason == names.READY:
        return STATUS_SERVING if units else STATUS_NONE, ""
    return reason, message


#: Reasons of ``Progressing``; those of Deployments where they have one.
REASON_ROLLING_OUT = "RollingOut"
REASON_ROLLED_BACK = "RolledBack"
REASON_DEADLINE = "ProgressDeadlineExceeded"
REASON_STARTING = "Starting"
REASON_REVISION_UNKNOWN = "RevisionUnknown"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that conditions are computed from.

    ``failure`` is what the plan was stopped by; ``served`` has the numbers of the units that have served, now or
    before; ``lives`` says that there are pods that nobody has deleted.
    """

    verdict: AcceptedSpec
    plan: Plan
    units: Sequence[UnitSummary]
    failure: Problem | None = None
    served: Collection[int] = ()
    lives: bool = True

    @property
    def inference(self) -> DisaggregatedInference:
        """The resource, with the spec that is kept up."""
        return self.verdict.inference

    @property
    def problem(self) -> Problem | None:
        """The problem that stands in the way of the units; not one that only a newer spec has."""
        return self.failure or (None if self.verdict.is_kept_up else self.verdict.problem)

    @property
    def missing(self) -> int:
        """Units that should exist and are not laid out (while a problem stands in the way)."""
        return max(self.inference.spec.replicas - len(self.units), 0)


def find_conditions(situation: Situation) -> list[dict[str, Any]]:
    """The conditions, without their times."""
    findings = dict(_conditions(situation))
    # Of all that is not as it should be, the gravest first, what waits for a person.
    grave = ((reason, message) for reason, message in _obstacles(situation) if needs_person(reason))
    stalled: Finding | None = next((("True", reason, message) for reason, message in grave), None)
    if stalled is not None:
        findings[names.STALLED] = stalled
    findings = {names.READY: find_ready(findings, lives=situation.lives), **findings}
    return [
        # What others say may be longer than a condition can be, and would keep the whole status from being written.
        {"type": kind, "status": status, "reason": reason, "message": message[:_LONGEST]}
        for kind, (status, reason, message) in findings.items()
    ]


#: Characters of the message of a condition.
_LONGEST: Final = 32_768
_SUSPENDED: Finding = (
    "False",
    names.REASON_SUSPENDED,
    "suspended: no pods, and nothing waits in the queue; set spec.suspend to false to start it",
)


def _conditions(situation: Situation) -> Iterator[tuple[str, Finding]]:
    yield names.BACKEND_SUPPORTED, _supported_finding(situation)
    yield names.ADMITTED, _admitted_finding(situation)
    yield names.SCHEDULED, _count_finding(situation, "is_scheduled", "Scheduled", "have their minimum bound")
    yield names.AVAILABLE, _count_finding(situation, "is_available", "Available", "have their minimum Ready")
    yield names.MINIMUM_MET, _minimum_met(situation)
    yield names.PROGRESSING, _progressing(situation)
    yield names.DEGRADED, _degraded_finding(situation)
    satisfied = [unit.topology for unit in situation.units if unit.topology is not None]
    if satisfied:
        yield names.TOPOLOGY_SATISFIED, _topology(satisfied)
    if situation.verdict.kept_levels:
        yield names.REMAKE_PENDING, ("True", names.REASON_TOPOLOGY_CHANGED, _kept_levels(situation.verdict))
    if situation.verdict.is_kept_up and (unkept := unkept_constraints(situation.inference.spec)):
        yield names.CONSTRAINTS_UNKEPT, ("True", names.REASON_UNSUPPORTED, "; ".join(unkept))
    by_type = {remark.type: remark for remark in reversed(situation.plan.remarks) if remark.type != names.DEGRADED}
    for remark in by_type.values():
        yield remark.type, ("True" if remark.holds else "False", remark.reason, remark.message)


def _obstacles(situation: Situation) -> Iterator[tuple[str, str]]:
    """Reasons and messages of all that keeps the resource from getting further."""
    problem = situation.failure or situation.verdict.problem
    if problem is not None and not problem.may_pass:
        yield problem.reason, _held_back(situation, problem)
    rolling = _rolling(situation)
    if rolling is not None and rolling[0] == "False":
        yield rolling[1:]
    for unit in situation.units:
        # Nodes that have the level may come.
        if not unit.is_admitted and unit.reason != names.REASON_INVALID_TOPOLOGY:
            yield unit.reason, _of_unit(situation, unit)
    yield from ((remark.reason, remark.message) for remark in situation.plan.remarks)


def _kept_levels(verdict: AcceptedSpec) -> str:
    remedy = (
        "groups keep the levels that they were made for; change spec.topology, or suspend and resume, to remake them"
    )
    return f"{verdict.kept_levels}: {remedy}"


def _supported_finding(situation: Situation) -> Finding:
    problem = situation.verdict.problem
    if problem is not None and problem.reason == names.REASON_UNSUPPORTED:
        return "False", problem.reason, _held_back(situation, problem)
    backend = situation.verdict.backend
    assert backend is not None, "without one there is a problem"
    return "True", "Supported", f"backend {backend.name} {backend.dialect}".rstrip()


def _admitted_finding(situation: Situation) -> Finding:
    units, spec = situation.units, situation.inference.spec
    if spec.suspend:
        return _SUSPENDED
    waiting = [unit for unit in units if not unit.is_admitted]
    if not waiting and not situation.missing:
        return _all_admitted(units, spec)
    if situation.problem is not None:
        return "False", situation.problem.reason, situation.problem.message
    # A refused unit comes before one that has only not been looked at: that passes by itself.
    waiting.sort(key=lambda unit: (unit.reason == names.REASON_WAITING, unit.number))
    worst = (
        waiting[0] if waiting else UnitSummary(0, Phase.PENDING, names.REASON_WAITING, "its groups are being created")
    )
    if len(waiting) < len(units):
        count = f"{len(units) - len(waiting)}/{spec.replicas} units are admitted"
        reason = names.REASON_PARTIALLY_ADMITTED if worst.reason != names.REASON_WAITING else worst.reason
        return "False", reason, f"{count}; unit {worst.number}: {worst.message}"
    return "False", worst.reason, _of_unit(situation, worst)


def _all_admitted(units: Sequence[UnitSummary], spec: DisaggregatedInferenceSpec) -> Finding:
    """``Admitted`` when all units are, with the backend's own reason and message where it has some."""
    if not units:
        return "True", names.REASON_ADMITTED, "no units are wanted"
    what = "the unit is admitted" if len(units) == 1 else f"all {len(units)} units are admitted"
    templates = (template for role in spec.roles for template in (role.template, role.leader_template) if template)
    if not any(asks_for_devices(template.get("spec") or {}) for template in templates):
        what += "; none of its pods asks for a device, such as nvidia.com/gpu in resources.limits"
    report = units[0].report
    admitted = report.admitted if report is not None else None
    if admitted is None or admitted.status != "True" or admitted.reason in {"", names.REASON_ADMITTED}:
        return "True", names.REASON_ADMITTED, what
    return "True", admitted.reason, f"{what}; {admitted.message}"


def _count_finding(situation: Situation, attribute: str, reason: str, text: str) -> Finding:
    if situation.inference.spec.suspend:
        return _SUSPENDED
    wanted = situation.inference.spec.replicas
    short = [unit for unit in situation.units if not getattr(unit, attribute)]
    if not short and not situation.missing:
        return "True", reason, f"{wanted}/{wanted} units {text}"
    count = f"{len(situation.units) - len(short)}/{wanted} units {text}"
    if not short:
        cause = situation.problem.reason if situation.problem is not None else names.REASON_WAITING
        return "False", cause, f"{count}; the condition Admitted says why"
    first = next((unit for unit in short if unit.is_admitted), short[0])
    why = f": {_of_unit(situation, first)}" if first.is_admitted else "; the condition Admitted says why"
    return "False", first.reason, count + why


def _minimum_met(situation: Situation) -> Finding:
    if situation.inference.spec.suspend:
        return _SUSPENDED
    # One that is to take the place of another counts when it does: until then the other serves.
    numbers = {unit.number for unit in situation.units}
    return minimum_met(
        [shortage for shortage in situation.plan.status.shortages.values() if shortage.unit in numbers],
        situation.served,
        situation.inference.spec.replicas,
        len(situation.units),
    )


def _progressing(situation: Situation) -> Finding:
    problem = situation.failure or situation.verdict.problem
    if problem is not None:
        return "False", problem.reason, _held_back(situation, problem)
    if situation.inference.spec.suspend:
        return _SUSPENDED
    if (rolling := _rolling(situation)) is not None:
        return rolling
    if situation.plan.intent.unexplained:
        return "Unknown", REASON_REVISION_UNKNOWN, situation.plan.intent.unexplained
    going = [unit for unit in situation.units if unit.phase is not Phase.READY]
    first = next((unit for unit in going if unit.is_admitted), None)
    if first is not None:
        reason = REASON_SURPLUS if first.phase is Phase.PARTIAL else REASON_STARTING
        return "True", reason, _of_unit(situation, first)
    if going:
        return "True", names.REASON_WAITING, _admitted_finding(situation)[2]
    if situation.plan.actions:
        return "True", REASON_STARTING, "objects are being created or replaced"
    return "True", REASON_COMPLETE, _describe_partition(situation.plan.intent) or "everything that is wanted runs"


def _describe_partition(intent: Intent) -> str:
    """Describe what a partition holds back; empty where none does."""
    if intent.progress is None or not intent.progress.done:
        return ""
    return describe_partition((unit for unit, _ in intent.steps.values()), intent.progress.target)


def _of_unit(situation: Situation, unit: UnitSummary) -> str:
    """The message of a unit, with its number where there are several."""
    return f"unit {unit.number}: {unit.message}" if len(situation.units) > 1 else unit.message


def _held_back(situation: Situation, problem: Problem) -> str:
    """The message of a problem, and what is kept up meanwhile."""
    if problem is not situation.verdict.problem or not situation.verdict.is_kept_up:
        return problem.message
    if situation.inference.spec.suspend:
        return problem.message
    return f"{problem.message}; meanwhile the resource is kept as it was accepted last"


def _rolling(situation: Situation) -> Finding | None:
    """Report a rollout that is on its way, or that was given up; None where neither holds."""
    progress, verdict = situation.plan.intent.progress, situation.verdict
    hold = progress.hold if progress is not None else None
    if progress is None:
        if not verdict.failed:
            return None
        message = f"revision {verdict.wanted.hash} did not get ready in time, a revision before it is in force again"
        return "False", REASON_ROLLED_BACK, f"{message}: correct the spec; covey rollout history shows what there was"
    done = f"{progress.ready} replicas of revision {progress.target} are Ready, {progress.outdated} of others are left"
    if waits := situation.plan.status.waits:
        done = "; ".join((done, *dict.fromkeys(waits.values())))
    if hold is None:
        return "True", REASON_ROLLING_OUT, done
    if hold.gate is Gate.FAILED:
        return "False", REASON_DEADLINE, f"{hold.reason}; {done}"
    if hold.gate is Gate.UNSUPPORTED:
        return "False", names.REASON_UNSUPPORTED, hold.reason
    if hold.gate is Gate.PAUSED:
        return "Unknown", names.REASON_PAUSED, f"{done}; {hold.reason}"
    if progress.done:
        return None
    trouble = next((unit.trouble for unit in situation.units if unit.trouble is not None), None)
    why = f": {trouble.message}" if hold.gate is Gate.READINESS and trouble is not None else ""
    return "True", REASON_ROLLING_OUT, f"waits: {hold.reason}{why}; {done}"


def _degraded_finding(situation: Situation) -> Finding:
    # A unit that has only been asked for is no loss.
    lost = [unit for unit in situation.units if not unit.is_available and unit.number in situation.served]
    if lost and not situation.inference.spec.suspend:
        return "True", names.REASON_BELOW_MINIMUM, _HAS_SERVED + _of_unit(situation, lost[0])
    for unit in situation.units:
        fault = situation.plan.release.faults.get(unit.number)
        if fault is not None:
            return "True", fault.reason, f"unit {unit.number}: {fault.message}"
    for remark in situation.plan.remarks:
        if remark.type == names.DEGRADED:
            return "True", remark.reason, remark.message
    return "False", "AsExpected", "no unit that has served is below its minimum"


def _topology(satisfied: Sequence[core.Condition]) -> Finding:
    failed = next((condition for condition in satisfied if condition.status != "True"), None)
    chosen = failed or satisfied[0]
    return "True" if failed is None else "False", chosen.reason or "Unknown", chosen.message
