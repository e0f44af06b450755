"""The layout of a resource: which units and replicas there shall be, and the rollout that it is a step of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.succession import SuccessionQuestion
from covey.compile import Layout, Revision, Scale
from covey.operator.feature import PlanInput
from covey.operator.intent import Intent
from covey.operator.model.observed import Observed
from covey.operator.replicas.progress import Running
from covey.operator.replicas.scale_down import choose_units
from covey.operator.rolling.ending_pods import is_anything_leaving
from covey.operator.rolling.observe import Seen
from covey.operator.rolling.rollout_status import read_progress
from covey.operator.rolling.succession import Judged, Spent, Successions, is_lacking
from covey.operator.rolling.unit_move import find_move, takes_over
from covey.rollout import Stage, UnitState, UnitStep
from covey.rollout.progress import Settings, resume_progress, tell

_DEADLINE: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Rolling:
    """What is wanted with the layout that there shall be, and the rollout that it is a step of, if there is one."""

    intent: Intent
    #: Seconds after which time alone changes something.
    again: float | None = None
    #: What is asked about successors, on the root of each unit.
    questions: Mapping[int, SuccessionQuestion | None] = field(default_factory=dict)


def settings_of(spec: DisaggregatedInferenceSpec) -> Settings:
    """The settings of a spec for its rollouts."""
    rollout = spec.rollout
    deadline = rollout.progress_deadline_seconds if rollout else None
    return Settings(bool(rollout and rollout.paused), deadline or _DEADLINE)


def roll(given: PlanInput, intent: Intent, successions: Successions | None = None) -> Rolling:
    """Decide the units and replicas that there shall be.

    Args:
        given: what the plan is made from; without a status nothing is remembered.
        intent: what is wanted so far.
        successions: judges what waits, and what may go for it.
    """
    spec, in_force, observed, states = given.spec, given.in_force, given.observed, intent.states
    scale, settings, now = Scale.of(spec, intent.totals), settings_of(spec), observed.now
    if not scale.units:
        return Rolling(replace(intent, layout=_layout({}, in_force.hash, scale)))
    stands = is_anything_leaving(spec, observed)
    settings = replace(settings, runs_from=now if stands else observed.clock_since)
    last = resume_progress(read_progress(given.before), in_force.hash, settings, now)
    late = last is not None and last.is_late(settings, now)
    stays = settings.paused or late
    chosen = choose_units(scale, observed, states)
    scale = scale.over(chosen)
    seen = Seen(spec, in_force, observed, intent, late=late, rolls=last is not None)

    states_of = {unit: seen.unit(unit, scale.unit(unit), stays=stays) for unit in chosen}
    lacking = {unit for unit, state in states_of.items() if any(map(is_lacking, state.roles.values()))}
    spent = Spent()

    def judge(unit: int, state: UnitState, *, arrives: bool = False) -> Judged:
        if successions is None:
            return Judged(state)
        asked = replace(
            successions,
            is_kept_waiting=seen.is_kept_waiting,
            has_stood=lambda: last is not None and seen.has_passed(last.since),
            others_lack=bool(lacking - {unit}),
            spent=spent,
        )
        return asked.judge(unit, state, arrives=arrives)

    judged: dict[int, Judged] = {}
    for unit in chosen:
        judged[unit] = judge(unit, states_of[unit])
        spent = judged[unit].spent
    units = {unit: unit_judged.state for unit, unit_judged in judged.items()}
    move = find_move(spec, scale, units, observed, states, intent.remade)
    if move is not None:
        state = seen.unit(move.to, move.count_into(scale).unit(move.to), stays=stays)
        judged[move.to] = judge(move.to, state, arrives=True)
        given_up = _given_up(seen, move.to, judged[move.to].state, settings.deadline)
        move = replace(move, done=takes_over(units[move.unit], judged[move.to].state, given_up))
        scale = move.count_into(scale)
        judged = {unit: judged[unit] for unit in sorted(judged) if not (move.done and unit == move.unit)}
    steps = {unit: unit_judged.next_step() for unit, unit_judged in judged.items()}
    progress = tell(steps, in_force.hash, last, settings, now)
    again = [progress.next_change_after(settings, now) if progress is not None else seen.doubt, seen.due]
    layout = _layout(steps, in_force.hash, scale)
    due = min((seconds for seconds in again if seconds is not None), default=None)
    questions = {unit: unit_judged.question for unit, unit_judged in judged.items()}
    intent = replace(intent, layout=layout, steps=steps, move=move, progress=progress, stands=stands)
    return Rolling(intent, due, questions)


def _layout(steps: Mapping[int, tuple[UnitState, UnitStep]], mark: str, scale: Scale) -> Layout:
    together = {
        (unit, *member): {names.LABEL_TOGETHER: mark, names.LABEL_TOGETHER_COUNT: str(len(step.together))}
        for unit, (_, step) in steps.items()
        for member in step.together
    }
    units = {unit: step.roles for unit, (_, step) in steps.items()}
    return Layout(units, together, scale if scale.totals else None)


def _given_up(seen: Seen, unit: int, state: UnitState, deadline: float) -> Callable[[str, int], bool]:
    """Make a function that tells whether a replica (role, number) has no places, as is proven, or has stalled."""

    def is_given_up(role: str, number: int) -> bool:
        if state.roles[role].replicas[number].stage is Stage.WAITING:
            return state.roles[role].starved
        return seen.has_stalled((unit, role, number), deadline)

    return is_given_up


def revision_left(in_force: Revision, observed: Observed, running: Running) -> str:
    """The newest revision before the one in force that some replica is still of; empty where none is known."""
    labels = {
        (role, role_revision.hash)
        for (_, role, _), role_revision in running.items()
        if role_revision.hash != in_force.roles[role].hash
    }
    for stored in sorted(observed.revisions, key=lambda stored: stored.number, reverse=True):
        revision = stored.record.revision if stored.record is not None else None
        if revision is not None and labels & {(name, role.hash) for name, role in revision.roles.items()}:
            return revision.hash
    return ""
