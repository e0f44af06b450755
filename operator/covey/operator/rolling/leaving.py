"""Replicas that have to leave their nodes, and pods on their way out.

A replica leaves where a node of its pods is to be empty (``node_drain``), and where somebody asks for the eviction of one
of its pods (``model.eviction``): at once, since that is meant. Its successors keep off that node meanwhile.

While pods are on their way out the clock of a rollout stands still, since successors may wait for their room.

A unit that is moved as a whole: where it is confined to, nothing else fits, and a node there is to be empty.

So is one that serves and whose groups cannot be changed in place (``remake``). Another unit is built elsewhere next to
it, and takes its place when it serves as much: of each role as many replicas as the first one has Ready, less those
that ``maxUnavailable`` lets be missing, or its minimum where the rest of it finds no room for a while. One at a time:
for so long the resource takes the room of one unit more. Everything follows from what is observed: when the node may be
used again, or room is found next to what runs, the other unit is surplus and goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from covey.api import core
from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.model import Mode
from covey.compile import ReplicaKey, Scale
from covey.compile.identity import Slot
from covey.model import podstate
from covey.operator.intent import PATIENCE, Leaving, Move
from covey.operator.model.observed import Observed
from covey.operator.replicas.scale import States, choose_units
from covey.rollout import RoleState, Stage, UnitState
from covey.rollout.model import serving
from covey.rollout.window import floor

#: Seconds that a pod has beyond its time: the clock does not stand still for one that never goes.
_SLACK: Final = 60.0


def is_anything_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> bool:
    """Tell whether a pod drains, or terminates because there is to be none in its place, and is within its time.

    Failed pods that are replaced do not count: a revision that crashes again and again would have no deadline.
    """
    seconds = {role.name: float(role.drain_seconds or 0) for role in spec.roles}
    ends = (_ends(pod, seconds.get(slot.role, 0.0), observed) for slot, pods in observed.pods.items() for pod in pods)
    return any(end is not None and observed.now < end + _SLACK for end in ends)


def _ends(pod: core.Pod, seconds: float, observed: Observed) -> float | None:
    """Time at which a pod that is on its way out should be gone; None for any other."""
    since, deleted = podstate.draining_since(pod), pod.metadata.deletion_timestamp
    if deleted is not None:
        # That is when its grace period ends.
        return core.seconds(deleted) if since is not None or pod.metadata.uid in observed.retired else None
    until = podstate.drain_deadline(pod)
    return until if until is not None or since is None else since + seconds


#: Seconds that successors keep off candidates, at least; a round time, since it is written on groups.
_TERM: Final = 600.0


def find_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> Leaving:
    """The replicas of a resource that have to leave.

    Args:
        spec: what is kept up.
        observed: the snapshot; ``notices`` has the nodes in question, ``evictions`` the pods.
    """
    if not observed.notices and not observed.evictions:
        return Leaving()
    told = spec.disruption.evacuate_after_seconds if spec.disruption else None
    patience = PATIENCE if told is None else float(told)
    places: dict[ReplicaKey, str] = {}
    urgent: set[ReplicaKey] = set()
    left: list[float] = []
    for slot, pod in _bound_pods(observed):
        node = pod.spec.node_name or ""
        notice = observed.notices[node]
        why = notice.drives(pod)
        due = (observed.now if notice.since is None else notice.since) + patience - observed.now
        waits = due > 0 and (notice.waits_with(pod) if why else bool(notice.candidate))
        if waits:
            left.append(due)
        if not why and notice.candidate and not waits:
            why = f"taint {notice.candidate}"
        if why:
            place = (slot.unit, slot.role, slot.replica)
            places.setdefault(place, f"node {node}: {why}")
            if not waits:
                urgent.add(place)
    until = (observed.now // _TERM + 2) * _TERM
    avoided = {node: Avoided(until, "an autoscaler may delete it", node) for node in observed.candidates if places}
    for slot, pod in _evicted_pods(observed):
        node, place = pod.spec.node_name or "", (slot.unit, slot.role, slot.replica)
        requesters = observed.evictions[pod.metadata.uid].requesters
        places.setdefault(place, f"node {node}: {requesters} asked for the eviction of pod {pod.metadata.name}")
        urgent.add(place)
        avoided.setdefault(node, Avoided(until, "a pod there is to be evicted", node))
    again = min(left, default=None)
    return Leaving(places, again, frozenset(places.keys() - urgent), patience, tuple(avoided.values()))


def _evicted_pods(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    """Bound pods that somebody wants evicted, by way of the operator."""
    wanted = {uid for uid, eviction in observed.evictions.items() if eviction.is_wanted}
    for slot, pod in observed.current.items() if wanted else ():
        if pod.metadata.uid in wanted and podstate.is_bound(pod):
            yield slot, pod


def _bound_pods(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if pod.spec.node_name in observed.notices:
            yield slot, pod


def find_move(
    spec: DisaggregatedInferenceSpec,
    scale: Scale,
    units: Mapping[int, UnitState],
    observed: Observed,
    states: States,
    remade: int | None = None,
) -> Move | None:
    """The unit that has to be moved as a whole now; None where there is none.

    Args:
        spec: what is kept up.
        scale: how many units, and of what, there shall be.
        units: those that were chosen, as they are.
        observed: the snapshot.
        states: how far each replica has come.
        remade: a unit that is to be recreated.
    """
    stuck = (number for number, state in sorted(units.items()) if _is_stuck(state))
    unit = next(stuck, None) if _is_confined(spec) else None
    if unit is None and remade is not None and remade in units and not _is_rolled(units[remade]):
        unit = remade
    if unit is None:
        return None
    more = choose_units(replace(scale, units=scale.units + 1), observed, states)
    to = next(number for number in more if number not in units)
    return Move(unit, to, is_remake=unit == remade)


def takes_over(old: UnitState, new: UnitState, is_given_up: Callable[[str, int], bool]) -> bool:
    """Tell whether a unit serves as much as the one whose place it takes, or has as much as it will get.

    Args:
        old: the unit that is to go.
        new: the other one.
        is_given_up: whether a replica of the other one (role and number) is not to be waited for any longer.
    """
    return all(_carries(old.roles[name], role, partial(is_given_up, name)) for name, role in new.roles.items())


def _carries(old: RoleState, new: RoleState, is_given_up: Callable[[int], bool]) -> bool:
    ready = serving(new.alive)
    if ready < new.minimum or ready >= min(floor(new), serving(old.alive)):
        return ready >= new.minimum
    rest = [n for n, each in new.alive.items() if each.stage is not Stage.SERVING]
    return len(new.alive) >= new.wanted and all(map(is_given_up, rest))


def _is_confined(spec: DisaggregatedInferenceSpec) -> bool:
    """Tell whether the place of what runs decides where a successor has to lie."""
    return spec.topology.required is not None or any(rule.mode is Mode.REQUIRED for rule in spec.proximity)


def _is_stuck(unit: UnitState) -> bool:
    """Tell whether a unit is at its minimum, without room for a successor. A unit that is rolled moves by that."""
    return not _is_rolled(unit) and any(map(_is_held, unit.roles.values()))


def _is_rolled(unit: UnitState) -> bool:
    return any(role.outdated for role in unit.roles.values())


def _is_held(role: RoleState) -> bool:
    serve = sum(each.stage is Stage.SERVING for each in role.alive.values())
    waits = any(each.stage is Stage.WAITING for each in role.new.values())
    return bool(role.leaving) and waits and role.starved and not role.yields and serve <= role.minimum
