"""Escalation for units that lost their minimum: parts are given up, so that they can be placed again. Pure.

A successor that finds no room in the domain of its unit waits, and what runs is kept. Given up is

* a *role*, or the *unit*, that the scheduler could place if its pods did not have to stay where they are, and only
  where the unit serves nobody: some role of the gang has no Ready replica;
* the unit, where kube-scheduler has evicted a pod of it for a pod of the system, under the same condition, once the
  successor is refused as well: what is left of the gang would hold its room for nobody;
* the unit, whatever serves, where ``spec.gang.terminationDelaySeconds`` says so.

Nothing goes that has not been announced: what goes, and when, stands in the status (``unitStatuses``) a pass before at
the latest, and an operator that finds it there goes on from it. Only pods go, and only of a unit that still has some
from before its loss: so one that was taken down is not taken down again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.status import MetMinimum, UnitEscalation
from covey.backends import Backend, UnitReport
from covey.model import podstate
from covey.operator.feature import MinimumShortage, PlanInput
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, DeletePod, Note
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.model.recorded_status import RecordedUnit, recorded_units
from covey.operator.repair.minimum import Minimums, find_shortages
from covey.operator.replicas.progress import States

#: Seconds between the announcement and what was announced, at least; not for ``terminationDelaySeconds``.
NOTICE: Final = 10.0
#: Seconds until what was announced a moment ago, or done, is looked at again.
SOON: Final = 0.5

REASON_ROLE_MOVES: Final = "RoleMoves"
REASON_UNIT_MOVES: Final = "UnitMoves"
REASON_TERMINATION: Final = "TerminationDelay"
REASON_PREEMPTED: Final = "Preempted"


class EscalationStep(StrEnum):
    """Kinds of escalation: the part of a unit that is given up, and the occasion."""

    ROLE = "Role"
    UNIT = "Unit"
    TERMINATION = "Termination"
    PREEMPTION = "Preemption"


_REASONS: Final = {
    EscalationStep.ROLE: REASON_ROLE_MOVES,
    EscalationStep.UNIT: REASON_UNIT_MOVES,
    EscalationStep.TERMINATION: REASON_TERMINATION,
    EscalationStep.PREEMPTION: REASON_PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class Escalation:
    """A step that is announced, and when it is taken (seconds since the epoch)."""

    step: EscalationStep
    at: float


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Pods to delete, announced escalations, and the shortages that they answer.

    ``shortages``, ``announced`` and ``met`` (the minimums that were met last) are by unit. ``anew``: units that were
    taken down and are queued like new ones: they have never served. ``again``: seconds after which time alone changes
    something. ``steps``: by UID of a pod that is deleted, the kind of escalation.
    """

    delete: tuple[DeletePod, ...] = ()
    announced: Mapping[int, Escalation] = field(default_factory=dict)
    anew: frozenset[int] = frozenset()
    remarks: tuple[Remark, ...] = ()
    notes: tuple[Note, ...] = ()
    again: float | None = None
    shortages: Mapping[int, MinimumShortage] = field(default_factory=dict)
    met: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    steps: Mapping[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Pods to delete, Events and remarks to report."""
        return Outcome(Actions(delete_pods=self.delete, notes=self.notes), self.remarks, self.again)


def give_up(
    spec: DisaggregatedInferenceSpec,
    minimums: Minimums,
    movable: Mapping[int, str],
    is_refused: Callable[[int], bool],
    states: States,
    observed: Observed,
    before: Mapping[str, Any],
) -> GivenUp:
    """Decide what is given up of every unit that is below its minimum.

    Args:
        spec: what is kept up.
        minimums: the units below their minimum.
        movable: by unit, what the scheduler could place if it were given up: ``Role`` (its roles that have too few) or
            ``Unit``.
        is_refused: whether the scheduler finds no room for a unit. Asked where an eviction was seen.
        states: how far each replica has come.
        observed: the snapshot.
        before: the status so far: what was announced.
    """
    recorded, shortages = recorded_units(before), minimums.shortages
    preempted = find_preempted(observed) if shortages else {}
    announced: dict[int, Escalation] = {}
    anew: set[int] = set()
    alarms: list[float] = []
    delete: list[DeletePod] = []
    steps: dict[str, str] = {}
    notes: list[Note] = []
    for unit, shortage in shortages.items():
        known = recorded.get(unit, RecordedUnit(None, served=False))
        serves = _serves(spec, states, unit)
        evicted = _preemption(shortage, known, preempted.get(unit), observed) if not serves else None
        other = _escalation(spec, shortage, movable.get(unit, ""), known, observed.now, serves=serves)
        # The successor may find room; meanwhile only another step that is due goes first.
        waits = evicted is not None and not is_refused(unit)
        if waits and other is not None and other.at <= observed.now:
            evicted, waits = None, False
        due = evicted or other
        if due is None:
            continue
        if known.step != due.step or observed.now < due.at or waits:
            announced[unit] = due
            if known.step != due.step:
                notes.append(_announcement(shortage, due))
        elif pods := tuple(_pods(shortage, due, observed)):
            delete += (DeletePod(pod, "what lost its minimum is given up") for pod in pods)
            steps |= {pod.metadata.uid: due.step.value for pod in pods}
            announced[unit] = due
            notes.append(_describe_giving_up(shortage, due, len(pods)))
        elif due.step is not EscalationStep.ROLE:
            anew.add(unit)
        timed = other if waits else due
        if unit in announced and timed is not None:
            alarms.append(timed.at)
    again = min((max(at - observed.now, SOON) for at in alarms), default=None)
    remarks = tuple(_remark(shortages[unit], escalation) for unit, escalation in announced.items())
    return GivenUp(
        tuple(delete), announced, frozenset(anew), remarks, tuple(notes), again, shortages, minimums.met, steps
    )


def find_preempted(observed: Observed) -> dict[int, float]:
    """Units of which kube-scheduler has evicted a pod for another, and when last, in seconds since the epoch."""
    preempted: dict[int, float] = {}
    for slot, pods in observed.pods.items():
        for pod in pods:
            target = core.condition(pod.status.conditions, "DisruptionTarget")
            if target is not None and (target.status, target.reason) == ("True", "PreemptionByScheduler"):
                at = core.seconds(target.last_transition_time) or observed.now
                preempted[slot.unit] = max(preempted.get(slot.unit, 0.0), at)
    return preempted


def _preemption(
    shortage: MinimumShortage, known: RecordedUnit, preempted: float | None, observed: Observed
) -> Escalation | None:
    """The escalation of a unit that lost a pod to preemption and has older ones left; it outlives the pod."""
    at = known.at if known.step == EscalationStep.PREEMPTION and known.at is not None else preempted
    escalation = Escalation(EscalationStep.PREEMPTION, at) if at is not None else None
    return escalation if escalation is not None and any(_pods(shortage, escalation, observed)) else None


def _escalation(
    spec: DisaggregatedInferenceSpec,
    shortage: MinimumShortage,
    movable: str,
    known: RecordedUnit,
    now: float,
    *,
    serves: bool,
) -> Escalation | None:
    """The step that is due first, where anything was lost."""
    if not shortage.lost:
        return None
    steps: list[Escalation] = []
    delay = spec.gang.termination_delay_seconds
    if delay is not None:
        steps.append(Escalation(EscalationStep.TERMINATION, shortage.since + delay))
    if not serves and movable in {EscalationStep.ROLE, EscalationStep.UNIT}:
        step = EscalationStep(movable)
        at = known.at if known.step == step and known.at is not None else None
        steps.append(Escalation(step, at or float(int(max(shortage.since + spec.hold_seconds, now + NOTICE)))))
    return min(steps, key=lambda step: step.at, default=None)


def _serves(spec: DisaggregatedInferenceSpec, states: States, unit: int) -> bool:
    """Tell whether every role of the gang has a Ready replica: below its minimum, the unit may still answer."""
    roles = states.get(unit, {})
    gang = [role.name for role in spec.roles if role.min_replicas]
    return all(any(state.is_ready for state in roles.get(name, {}).values()) for name in gang)


def _pods(shortage: MinimumShortage, due: Escalation, observed: Observed) -> Iterator[core.Pod]:
    """The pods with nodes, of the roles that have too few or of the unit; none where all are younger than the loss."""
    older = [
        pod
        for slot, pod in observed.in_unit(shortage.unit).items()
        if due.step is not EscalationStep.ROLE or slot.role in shortage.roles
        if podstate.is_admitted(pod)
    ]
    # A loss is noted in the second after it, an eviction in its own.
    since = due.at + 1 if due.step is EscalationStep.PREEMPTION else shortage.since
    if any(_is_older(pod, since) for pod in older):
        yield from older


def _is_older(pod: core.Pod, since: float) -> bool:
    return (core.seconds(pod.metadata.creation_timestamp) or 0.0) < since


def _announcement(shortage: MinimumShortage, escalation: Escalation) -> Note:
    return Note("Escalating", _sentence(shortage, escalation), "Escalate", warning=True)


def _describe_giving_up(shortage: MinimumShortage, escalation: Escalation, pods: int) -> Note:
    what = _what(shortage, escalation.step)
    message = f"{what} is given up to be placed anew, {pods} pods: it was below its minimum ({shortage.text})"
    return Note("GivenUp", message, "Escalate", warning=True)


def _remark(shortage: MinimumShortage, escalation: Escalation) -> Remark:
    return Remark(names.ESCALATING, _REASONS[escalation.step], _sentence(shortage, escalation))


def _what(shortage: MinimumShortage, step: EscalationStep) -> str:
    if step is EscalationStep.ROLE:
        return f"{' and '.join(shortage.roles)} of unit {shortage.unit}"
    return f"unit {shortage.unit}"


def _sentence(shortage: MinimumShortage, escalation: Escalation) -> str:
    since, at = core.rfc3339(shortage.since), core.rfc3339(escalation.at)
    cause = f"unit {shortage.unit} is below its minimum since {since}: {shortage.text}"
    if escalation.step is EscalationStep.PREEMPTION:
        return (
            f"{cause}; a pod of it was preempted for a pod of higher priority: without capacity for its successor the unit is "
            "taken down and queued whole again"
        )
    if escalation.step is EscalationStep.TERMINATION:
        return f"{cause}; at {at} it is taken down and queued whole again (spec.gang.terminationDelaySeconds)"
    what = _what(shortage, escalation.step)
    return f"{cause}; there is no capacity beside what it has left, but for all of it elsewhere: at {at} {what} is given up"


def loss_fields(given_up: GivenUp, unit: int) -> dict[str, Any]:
    """Fields of a ``UnitStatus`` that remember the loss of a unit."""
    if unit in given_up.anew:
        return {}
    shortage, escalation = given_up.shortages.get(unit), given_up.announced.get(unit)
    met = tuple(MetMinimum(name=name, replicas=least) for name, least in given_up.met.get(unit, {}).items())
    written: dict[str, Any] = {"met_minimum": met} if met else {}
    if shortage is None:
        return written
    if shortage.lost:
        written["below_minimum_since"] = core.rfc3339(shortage.since)
    if escalation is not None:
        written["escalation"] = UnitEscalation(step=escalation.step.value, at=core.rfc3339(escalation.at))
    return written


def find_loss(given: PlanInput, backend: Backend, intent: Intent) -> GivenUp:
    """Find the units below their minimum, and decide what of them is given up.

    Args:
        given: what the plan is made from.
        backend: says what could be placed elsewhere.
        intent: what is wanted. Units that are queued like new ones have lost nothing.
    """
    inference, observed, before = given.inference, given.observed, given.before
    minimums = find_shortages(given.spec, intent, observed, before)
    movable: dict[int, str] = {}
    reports: dict[int, UnitReport | None] = {}
    for unit in minimums.shortages:
        report = reports[unit] = backend.read_back(inference.metadata.name, unit, observed.of_unit(unit))
        movable[unit] = report.movable if report is not None else ""
    given_up = give_up(
        given.spec,
        minimums,
        movable,
        lambda unit: _is_refused(reports[unit], unit, observed),
        intent.states,
        observed,
        before,
    )
    return replace(given_up, anew=given_up.anew | intent.queued) if intent.queued else given_up


def _is_refused(report: UnitReport | None, unit: int, observed: Observed) -> bool:
    """Tell whether the scheduler finds no room, by what it says of the unit or, where it latches that, of its pods."""
    admitted = report.admitted if report is not None else None
    if admitted is not None and admitted.status == "False" and admitted.reason in names.REFUSALS:
        return True
    return any(podstate.unschedulable(pod) is not None for pod in observed.in_unit(unit).values())
