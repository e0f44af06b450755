"""Reports of replicas that leave their nodes: that they do, or why they cannot.

``rollout.step`` moves them: a successor first, within the role's ``maxSurge`` and ``maxUnavailable``.

Replicas on nodes that are to be empty and that serve nobody: a drain of the node may take their pods.

The budget of the namespace counts the pods with ``covey.dev/gang: "true"``, and the eviction API takes none of those
while they run, whether they are Ready or not. ``unhealthyPodEvictionPolicy: AlwaysAllow`` would give up a gang that
loads its model, or that is not Ready for a moment. So it is said of single replicas, whose pods get another value of it
(``operator.objects``):

1. A container waits in CrashLoopBackOff, or
2. nothing of it has got any further for ``spec.rollout.progressDeadlineSeconds``.

It stays so until all its pods are Ready, or no node of its is to be empty any more: then the budget counts them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import ReplicaKey, pod_budget
from covey.model import podstate
from covey.operator.model.actions import Outcome, Remark, soonest
from covey.operator.model.observed import Observed
from covey.operator.replicas.replica_notes import count_of
from covey.operator.replicas.scale import States
from covey.operator.rolling.layout import Rolling, settings_of
from covey.operator.rolling.leaving import Leaving, Move
from covey.rollout import RoleState, Stage, UnitState
from covey.rollout.model import serving

_BROKEN: Final = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Idle:
    """The replicas, and seconds after which there may be more."""

    places: Collection[ReplicaKey] = frozenset()
    again: float | None = None


def find_idle(spec: DisaggregatedInferenceSpec, leaving: Leaving, states: States, observed: Observed) -> Idle:
    """The replicas that serve nobody and would keep their nodes from being drained.

    Args:
        spec: what is kept up.
        leaving: the replicas that have to leave their nodes.
        states: how far each replica has come.
        observed: the snapshot.
    """
    if not leaving.places:
        return Idle()
    roles, deadline = pod_budget.gang_roles(spec), settings_of(spec).deadline
    pods: dict[ReplicaKey, list[core.Pod]] = {}
    for slot, pod in observed.current.items():
        place = (slot.unit, slot.role, slot.replica)
        if place in leaving.places and slot.role in roles:
            pods.setdefault(place, []).append(pod)
    found: set[ReplicaKey] = set()
    left: list[float] = []
    for place, members in pods.items():
        unit, role, replica = place
        state = states.get(unit, {}).get(role, {}).get(replica)
        if state is None or state.is_ready:
            continue
        due = podstate.stands_since(members, observed.now) + deadline - observed.now
        if due <= 0 or any(map(_is_given_up, members)):
            found.add(place)
        else:
            left.append(due)
    return Idle(frozenset(found), min(left, default=None))


def _is_given_up(pod: core.Pod) -> bool:
    """Tell whether the kubelet hardly starts a pod any more, or the pod was found to serve nobody before."""
    if pod.metadata.label(names.LABEL_GANG) == pod_budget.IDLE[names.LABEL_GANG]:
        return True
    waiting = (each.state.waiting for each in pod.status.container_statuses or () if each.state is not None)
    return any(each is not None and each.reason == _BROKEN for each in waiting)


#: Reasons of the conditions ``Evacuating`` and ``EvacuationBlocked``.
REASON_NODE_LEAVING: Final = "NodeLeaving"
REASON_NO_NODES: Final = "NoNodes"
REASON_BUDGET: Final = "NoSurge"

REASON_UNIT_MOVING: Final = "UnitMoving"
REASON_SERVES_NOBODY: Final = "ServesNobody"
#: Roles that a message names.
_NAMED: Final = 8


def find_evacuation(spec: DisaggregatedInferenceSpec, leaving: Leaving, idle: Idle, rolling: Rolling) -> Outcome:
    """The conditions of a resource whose replicas have to leave their nodes.

    Args:
        spec: what is kept up.
        leaving: the replicas, and why.
        idle: those of them that may be evicted.
        rolling: what becomes of them.
    """
    return Outcome(remarks=tuple(_remarks(spec, leaving, idle, rolling)), again=soonest((leaving.again, idle.again)))


def _remarks(spec: DisaggregatedInferenceSpec, leaving: Leaving, idle: Idle, rolling: Rolling) -> Iterator[Remark]:
    unserved = replace(leaving, places={place: why for place, why in leaving.places.items() if place in idle.places})
    leaving = replace(leaving, places={p: why for p, why in leaving.places.items() if p not in idle.places})
    found, several = _count_leaving(rolling, leaving), len(rolling.steps) > 1
    stuck = find_stuck(spec, leaving, rolling)
    moving = {key: count for key, count in found.items() if key not in stuck}
    told = [
        *_moving(moving, leaving, rolling, several=several),
        *_left(_count_leaving(rolling, unserved), unserved, several=several),
    ]
    if moving:
        yield Remark(names.EVACUATING, REASON_NODE_LEAVING, "; ".join(told))
    if rolling.move is not None and not rolling.move.is_remake:
        yield Remark(names.EVACUATING, REASON_UNIT_MOVING, describe_move(rolling.move, rolling))
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
    spec: DisaggregatedInferenceSpec, leaving: Leaving, rolling: Rolling
) -> dict[tuple[int, str], tuple[str, str]]:
    """Roles (of a unit) whose replicas have to leave and cannot: the reason, and a sentence that says what to do."""
    return {
        (unit, name): _why(spec, rolling.steps[unit][0], name)
        for unit, name in _count_leaving(rolling, leaving)
        if not _changes(rolling, unit, name) and _is_stuck(rolling.steps[unit][0], name)
        if not _waits(rolling.steps[unit][0].roles[name])
    }


def _count_leaving(rolling: Rolling, leaving: Leaving) -> dict[tuple[int, str], int]:
    """Count replicas that leave, by unit and role."""
    found = {
        (unit, name): sum((unit, name, n) in leaving.places for n in role.leaving)
        for unit, (state, _) in rolling.steps.items()
        for name, role in state.roles.items()
    }
    return {key: count for key, count in found.items() if count}


def _changes(rolling: Rolling, unit: int, name: str) -> bool:
    """Tell whether replicas of a role come or go now."""
    state, step = rolling.steps[unit]
    return step.roles[name].keys() != state.roles[name].alive.keys()


def is_arriving(move: Move, rolling: Rolling) -> bool:
    """Tell whether the unit that takes the place of another one has nodes, as far as some of it goes."""
    other, _ = rolling.steps[move.to]
    return move.done or any(each.stage > Stage.WAITING for role in other.roles.values() for each in role.alive.values())


def describe_move(move: Move, rolling: Rolling) -> str:
    """Describe how far the move of a unit has come."""
    if move.done:
        return f"unit {move.to} serves in the place of unit {move.unit}, which goes"
    how = "is built elsewhere" if is_arriving(move, rolling) else "waits for nodes elsewhere"
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


def _moving(
    found: Mapping[tuple[int, str], int], leaving: Leaving, rolling: Rolling, *, several: bool
) -> Iterator[str]:
    for (unit, name), count in islice(found.items(), _NAMED):
        state, where = rolling.steps[unit][0], f"unit {unit}: " if several else ""
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
