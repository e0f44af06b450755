"""Reports of replicas that leave their nodes: that they do, or why they cannot.

``rollout.step`` moves them: a successor first, within the role's ``maxSurge`` and ``maxUnavailable``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.operator.feature import Changes, Feature, PlanInput
from covey.operator.intent import Intent, Leaving, Move
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.replicas.replica_notes import count_of
from covey.operator.rolling.idle_replicas import find_idle
from covey.operator.rolling.leaving import find_leaving
from covey.rollout import RoleState, Stage, UnitState
from covey.rollout.model import serving


class Evacuation(Feature):
    """Replicas that leave nodes which are to be empty, and pods whose eviction somebody asks for."""

    HONOURS = frozenset(
        {
            "spec.disruption.allowBelowMinimum",
            "spec.disruption.evacuateAfterSeconds",
            "nodes that are to be empty",
            "Evictions of its pods",
        }
    )

    @classmethod
    def applies(cls, given: PlanInput) -> bool:
        """Tell whether a node is to be empty, or a pod to be evicted."""
        return bool(given.observed.notices or given.observed.evictions)

    def intent(self, intent: Intent) -> Intent:
        """Who has to leave, and who of them serves nobody."""
        leaving = find_leaving(self.given.spec, self.given.observed)
        return replace(intent, leaving=find_idle(self.given.spec, leaving, intent.states, self.given.observed))

    def outcome(self, changes: Changes) -> Outcome:
        """The conditions ``Evacuating`` and ``EvacuationBlocked``."""
        intent = changes.intent
        return Outcome(remarks=tuple(_remarks(self.given.spec, intent)), again=intent.leaving.again)


#: Reasons of the conditions ``Evacuating`` and ``EvacuationBlocked``.
REASON_NODE_LEAVING: Final = "NodeLeaving"
REASON_NO_NODES: Final = "NoNodes"
REASON_BUDGET: Final = "NoSurge"

REASON_UNIT_MOVING: Final = "UnitMoving"
REASON_SERVES_NOBODY: Final = "ServesNobody"
#: Roles that a message names.
_NAMED: Final = 8


def _remarks(spec: DisaggregatedInferenceSpec, intent: Intent) -> Iterator[Remark]:
    idle, places = intent.leaving.idle, intent.leaving.places
    unserved = replace(intent.leaving, places={place: why for place, why in places.items() if place in idle})
    leaving = replace(intent.leaving, places={place: why for place, why in places.items() if place not in idle})
    found, several = _count_leaving(intent, leaving), len(intent.steps) > 1
    stuck = find_stuck(spec, leaving, intent)
    moving = {key: count for key, count in found.items() if key not in stuck}
    told = [
        *_moving(moving, leaving, intent, several=several),
        *_left(_count_leaving(intent, unserved), unserved, several=several),
    ]
    if moving:
        yield Remark(names.EVACUATING, REASON_NODE_LEAVING, "; ".join(told))
    if intent.move is not None and not intent.move.is_remake:
        yield Remark(names.EVACUATING, REASON_UNIT_MOVING, describe_move(intent.move, intent))
    if stuck:
        (unit, name), (reason, help_) = next(iter(stuck.items()))
        where = f"unit {unit}: " if several else ""
        more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
        what = f"{count_of(found[unit, name])} of {name}"
        message = f"{where}{what} cannot leave {_causes(unit, name, leaving)}{more}: {help_}"
        yield Remark(names.EVACUATION_BLOCKED, reason, message)
    if told and not moving:
        yield Remark(names.EVACUATING, REASON_SERVES_NOBODY, "; ".join(told))


def find_stuck(
    spec: DisaggregatedInferenceSpec, leaving: Leaving, intent: Intent
) -> dict[tuple[int, str], tuple[str, str]]:
    """Roles (of a unit) whose replicas have to leave and cannot: the reason, and a sentence that says what to do."""
    return {
        (unit, name): _why(spec, intent.steps[unit][0], name)
        for unit, name in _count_leaving(intent, leaving)
        if not _changes(intent, unit, name) and _is_stuck(intent.steps[unit][0], name)
        if not _waits(intent.steps[unit][0].roles[name])
    }


def _count_leaving(intent: Intent, leaving: Leaving) -> dict[tuple[int, str], int]:
    """Count replicas that leave, by unit and role."""
    found = {
        (unit, name): sum((unit, name, n) in leaving.places for n in role.leaving)
        for unit, (state, _) in intent.steps.items()
        for name, role in state.roles.items()
    }
    return {key: count for key, count in found.items() if count}


def _changes(intent: Intent, unit: int, name: str) -> bool:
    """Tell whether replicas of a role come or go now."""
    state, step = intent.steps[unit]
    return step.roles[name].keys() != state.roles[name].alive.keys()


def is_arriving(move: Move, intent: Intent) -> bool:
    """Tell whether the unit that takes the place of another one has nodes, as far as some of it goes."""
    other, _ = intent.steps[move.to]
    return move.done or any(each.stage > Stage.WAITING for role in other.roles.values() for each in role.alive.values())


def describe_move(move: Move, intent: Intent) -> str:
    """Describe how far the move of a unit has come."""
    if move.done:
        return f"unit {move.to} serves in the place of unit {move.unit}, which goes"
    how = "is built elsewhere" if is_arriving(move, intent) else "waits for nodes elsewhere"
    return f"unit {move.unit} is moved as a whole: unit {move.to} {how} and takes its place once it serves"


def _is_stuck(unit: UnitState, name: str) -> bool:
    """Tell whether nothing that is under way will make a role move: successors have no room, or may not be made."""
    if _lacks_room(unit, name):
        return True
    return all(each.stage is Stage.SERVING for each in unit.staying(name).values()) and not _goes(unit.roles[name])


def _waits(role: RoleState) -> bool:
    """Tell whether one goes without a successor once its node has been cordoned for long enough."""
    if role.budget.unavailable is not None or not any(each.patient for each in role.leaving.values()):
        return False
    return role.yields or serving(role.alive) > role.minimum


def _lacks_room(unit: UnitState, name: str) -> bool:
    """Tell whether it is proven that successors of this role have no places."""
    return unit.roles[name].starved and any(each.stage is Stage.WAITING for each in unit.staying(name).values())


def _goes(role: RoleState) -> bool:
    return any(each.stage is Stage.GOING for each in role.replicas.values())


def _why(spec: DisaggregatedInferenceSpec, unit: UnitState, name: str) -> tuple[str, str]:
    role = unit.roles[name]
    ready = serving(role.alive)
    least = f"{name} has {ready} of at least {role.minimum} replicas"
    if not _lacks_room(unit, name):
        return (
            REASON_BUDGET,
            f"{least}, and update.maxSurge allows no successor beside them: raise maxSurge or replicas",
        )
    level = spec.topology.required
    where = f" in the {level} of its unit" if level else ""
    refusal = f" ({unit.roles[name].refusal})" if unit.roles[name].refusal else ""
    helps = "uncordon the node, or add or free nodes"
    if role.budget.unavailable is not None and (role.yields or ready > role.minimum):
        return (
            REASON_NO_NODES,
            f"there is no capacity for a successor{where}{refusal}, and maxUnavailable allows no more to be missing: {helps}",
        )
    return REASON_NO_NODES, (
        f"there is no capacity for a successor{where}{refusal}, and {least}: {helps}{where}, lower minReplicas, or set "
        "spec.disruption.allowBelowMinimum"
    )


def _moving(found: Mapping[tuple[int, str], int], leaving: Leaving, intent: Intent, *, several: bool) -> Iterator[str]:
    for (unit, name), count in islice(found.items(), _NAMED):
        state, where = intent.steps[unit][0], f"unit {unit}: " if several else ""
        waits = _lacks_room(state, name) and _waits(state.roles[name])
        then = f", without a successor after {leaving.patience:.0f} s" if waits else ""
        yield f"{where}{_leave(name, count)} {_causes(unit, name, leaving)}{then}"


def _left(found: Mapping[tuple[int, str], int], leaving: Leaving, *, several: bool) -> Iterator[str]:
    for (unit, name), count in islice(found.items(), _NAMED):
        who = f"{f'unit {unit}: ' if several else ''}{count_of(count)} of {name}"
        serve, their = ("serves", "its") if count == 1 else ("serve", "their")
        yield f"{who} on {_causes(unit, name, leaving)} {serve} nobody, and {their} pods may be evicted"


def _leave(name: str, count: int) -> str:
    return f"{count_of(count)} of {name} {'leaves' if count == 1 else 'leave'}"


def _causes(unit: int, name: str, leaving: Leaving) -> str:
    found = dict.fromkeys(_of(unit, name, leaving))
    first, *rest = found
    return f"{first} and {len(rest)} more nodes" if rest else first


def _of(unit: int, name: str, leaving: Leaving) -> Iterator[str]:
    for place, why in sorted(leaving.places.items()):
        if place[:2] == (unit, name):
            yield why
