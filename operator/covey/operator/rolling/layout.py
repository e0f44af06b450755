"""The layout of a resource: its units as ``covey.rollout`` is to see them, and what comes out of it.

What is remembered of a rollout stands in ``status.rollout`` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from covey.api import constants as names
from covey.api import core, times
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import InPlace
from covey.backends import Owned
from covey.compile import Layout, Scale, Slot, Tree
from covey.compile.layout import RoleCount, Unit
from covey.compile.revision import Revision
from covey.operator.replicas.freed import Rooms
from covey.operator.replicas.scale import ReplicaState, Running, States, choose_units
from covey.operator.rolling.inplace import Turning
from covey.operator.rolling.leaving import Leaving
from covey.operator.rolling.moving import Move, find_move
from covey.operator.snapshot import exchange, podstate
from covey.operator.snapshot.observed import Observed, number
from covey.rollout import Budget, Replica, RoleState, Stage, UnitState, UnitStep, next_step
from covey.rollout.told import PATIENCE, Gate, Hold, Progress, Settings, resumed, tell

#: Seconds for which a replica that is not Ready any more counts as one that may be again.
DOUBT: Final = 60.0
_DEADLINE: Final = 1800.0

#: A replica: unit, role and number.
Place = tuple[int, str, int]
#: Whether the scheduler has looked at a replica as it is wanted now, and has no nodes for it; asked for a layout.
Refused = Callable[[Layout], Callable[[Place], bool]]


@dataclass(frozen=True, slots=True)
class Rolling:
    """What there shall be, and the rollout that it is a step of, if there is one."""

    layout: Layout
    progress: Progress | None = None
    #: Seconds after which time alone changes something.
    again: float | None = None
    #: Each unit as it is, and as it shall be next.
    steps: Mapping[int, tuple[UnitState, UnitStep]] = field(default_factory=dict)
    #: The unit that is moved as a whole.
    move: Move | None = None

    @property
    def arriving(self) -> int | None:
        """The number of a unit that is not asked for yet: it is to take the place of another."""
        return self.move.to if self.move is not None and not self.move.done else None


def settings_of(spec: DisaggregatedInferenceSpec) -> Settings:
    """What a spec says of its rollouts."""
    rollout = spec.rollout
    deadline = rollout.progress_deadline_seconds if rollout else None
    return Settings(bool(rollout and rollout.paused), deadline or _DEADLINE)


def roll(
    spec: DisaggregatedInferenceSpec,
    in_force: Revision,
    observed: Observed,
    states: States,
    running: Running,
    lacking: Refused | None = None,
    before: Mapping[str, Any] | None = None,
    totals: Mapping[str, int] | None = None,
    leaving: Leaving | None = None,
) -> Rolling:
    """The units and replicas that there shall be.

    Args:
        spec: what is kept up.
        in_force: the revision that is brought in.
        observed: the snapshot.
        states: how far each replica has come.
        running: of which revision each replica is.
        lacking: tells for a layout what found no room in it.
        before: the status so far; nothing is remembered without it.
        totals: replicas over all units, by role, where it is not the spec that says how many.
        leaving: the replicas that have to leave their nodes.
    """
    scale, settings, now = Scale.of(spec, totals), settings_of(spec), observed.now
    if not scale.units:
        return Rolling(_layout({}, in_force.hash, scale))
    last = resumed(read_progress(before or {}), in_force.hash, settings, now)
    late = last is not None and last.is_late(settings, now)
    stays = settings.paused or late
    chosen = choose_units(scale, observed, states)
    scale = scale.over(chosen)
    seen = _Seen(spec, in_force, observed, states, running, leaving or Leaving(), late=late, rolls=last is not None)
    units = {unit: seen.unit(unit, scale.unit(unit), stays=stays) for unit in chosen}
    crowded = last is not None and last.starves(units.values(), now)
    overdue = set(units) if crowded else {unit for unit, state in units.items() if seen.is_overdue(unit, state)}
    if lacking is not None and overdue:
        lacks = lacking(Layout({unit: _as_they_are(state) for unit, state in units.items()}))
        units |= {unit: _starved(unit, units[unit], lacks) for unit in overdue}
    move = find_move(spec, scale, units, observed, states)
    if move is not None:
        scale = move.counted(scale)
        units[move.to] = seen.unit(move.to, scale.unit(move.to), stays=stays)
        units = {unit: units[unit] for unit in sorted(units) if not (move.done and unit == move.unit)}
    steps = {unit: (state, next_step(state)) for unit, state in units.items()}
    progress = tell(steps, in_force.hash, last, settings, now)
    again = [progress.again(settings, now) if progress is not None else seen.doubt, seen.due]
    layout = _layout(steps, in_force.hash, scale)
    return Rolling(layout, progress, min((each for each in again if each is not None), default=None), steps, move)


def _layout(steps: Mapping[int, tuple[UnitState, UnitStep]], mark: str, scale: Scale) -> Layout:
    together = {
        (unit, *member): {names.LABEL_TOGETHER: mark, names.LABEL_TOGETHER_COUNT: str(len(step.together))}
        for unit, (_, step) in steps.items()
        for member in step.together
    }
    units = {unit: step.roles for unit, (_, step) in steps.items()}
    return Layout(units, together, scale if scale.totals else None)


def _as_they_are(state: UnitState) -> Unit:
    return {name: {n: each.revision for n, each in role.alive.items()} for name, role in state.roles.items()}


def _starved(unit: int, state: UnitState, lacks: Callable[[Place], bool]) -> UnitState:
    """The unit with the word that it has no room for a surge, where that is known."""
    waiting = [
        (unit, name, n)
        for name, role in state.roles.items()
        for n, each in role.new.items()
        if each.stage is Stage.WAITING
    ]
    going = any(each.stage is Stage.GOING for role in state.roles.values() for each in role.replicas.values())
    starved = bool(waiting) and not going and all(map(lacks, waiting))
    return replace(state, starved=starved)


@dataclass
class _Seen:
    """The replicas of a resource, sorted once."""

    spec: DisaggregatedInferenceSpec
    in_force: Revision
    observed: Observed
    states: States
    running: Running
    leaving: Leaving = field(default_factory=Leaving)
    #: Seconds after which the successor of a replica that leaves has waited long enough.
    due: float | None = None
    #: The rollout has not got any further for too long: nobody waits for what does not serve.
    late: bool = False
    #: A rollout is on its way.
    rolls: bool = False
    #: Seconds after which a replica is no longer in doubt.
    doubt: float | None = None
    _pods: dict[int, dict[str, dict[int, list[tuple[core.Pod | None, tuple[core.Pod, ...]]]]]] = field(
        default_factory=dict
    )
    _lost: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    #: Replicas that have lost a pod which had its node.
    _bound: set[Place] = field(default_factory=set)
    _grouped: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    _ages: dict[tuple[str, str], int] = field(default_factory=dict)
    _turning: Turning = field(init=False)

    def __post_init__(self) -> None:
        self._turning = Turning.of(self.observed, self.in_force)
        for slot, pods in self.observed.pods.items():
            found = self._pods.setdefault(slot.unit, {}).setdefault(slot.role, {})
            found.setdefault(slot.replica, []).append((self.observed.current.get(slot), pods))
        for slot, grave in self.observed.graves.items():
            if grave.bound and not grave.retired:
                self._bound.add((slot.unit, slot.role, slot.replica))
            if not grave.retired and slot not in self.observed.pods:
                self._lost.setdefault(slot.unit, {}).setdefault(slot.role, set()).add(slot.replica)
        for owned in self.observed.objects.values():
            self._group(owned)
        for stored in self.observed.revisions:
            for name, role in stored.record.revision.roles.items() if stored.record is not None else ():
                self._ages[name, role.hash] = max(stored.number, self._ages.get((name, role.hash), 0))

    def _group(self, owned: Owned) -> None:
        unit, replica = number(owned.metadata, names.LABEL_UNIT), number(owned.metadata, names.LABEL_REPLICA)
        role = owned.metadata.label(names.LABEL_ROLE)
        if unit is not None and role is not None and replica is not None:
            self._grouped.setdefault(unit, {}).setdefault(role, set()).add(replica)

    def unit(self, unit: int, counts: Mapping[str, RoleCount], *, stays: bool) -> UnitState:
        """One unit as it is, and how many replicas it shall have."""
        roles = {}
        for role in self.spec.roles:
            pods = self._pods.get(unit, {}).get(role.name, {})
            lost = self._lost.get(unit, {}).get(role.name, set())
            replicas = {n: self._replica((unit, role.name, n), pods.get(n, [])) for n in sorted({*pods, *lost})}
            spare = self._grouped.get(unit, {}).get(role.name, set()) - replicas.keys()
            target = self.in_force.roles[role.name]
            wanted = counts[role.name].replicas
            in_place = role.update is not None and role.update.in_place is InPlace.IF_POSSIBLE
            changes = any(each.revision.hash != target.hash for each in replicas.values())
            # What is exchanged is to stay where it is in the end, whatever its room is worth.
            if (len(replicas) > wanted or changes) and not (in_place and self.rolls):
                replicas = self._ranked(unit, role.name, replicas)
            if in_place:
                replicas = {n: self._exchangeable((unit, role.name, n), each) for n, each in replicas.items()}
            roles[role.name] = RoleState(
                target,
                wanted,
                role.min_replicas,
                Budget.of(role, wanted),
                replicas,
                frozenset(spare),
                yields=bool(self.spec.disruption and self.spec.disruption.allow_below_minimum),
            )
        return UnitState(roles, stays, _blocked(roles), ranks=self._ages)

    def is_overdue(self, unit: int, state: UnitState) -> bool:
        """Successors of replicas that leave have waited for room long enough."""
        waiting = [
            self._age((unit, name, number))
            for name, role in state.roles.items()
            if role.leaving
            for number, each in role.new.items()
            if each.stage is Stage.WAITING
        ]
        if not waiting:
            return False
        left = PATIENCE - max(waiting)
        if left > 0:
            self.due = left if self.due is None else min(self.due, left)
        return left <= 0

    def _age(self, place: Place) -> float:
        """For how long a replica has been there, by its oldest pod."""
        unit, role, replica = place
        made = (
            times.seconds(pod.metadata.creation_timestamp)
            for pod, _ in self._pods.get(unit, {}).get(role, {}).get(replica, [])
            if pod is not None
        )
        now = self.observed.now
        return now - min((each for each in made if each is not None), default=now)

    @cached_property
    def _rooms(self) -> Rooms:
        return Rooms(self.observed.current.items())

    def _ranked(self, unit: int, role: str, replicas: Mapping[int, Replica]) -> dict[int, Replica]:
        """The replicas with what their room is worth: some of them may have to go."""
        rooms = self._rooms.of_replicas(unit, role)
        return {n: replace(each, standing=(*each.standing, *rooms.get(n, ()))) for n, each in replicas.items()}

    def _replica(self, place: Place, pods: list[tuple[core.Pod | None, tuple[core.Pod, ...]]]) -> Replica:
        unit, role, replica = place
        revision = self.running.get(place, self.in_force.roles[role])
        state = self.states.get(unit, {}).get(role, {}).get(replica, ReplicaState(revision))
        every = [each for _, incarnations in pods for each in incarnations]
        stage = self._stage(state, [pod for pod, _ in pods if pod is not None], every)
        mixed = any((pod.metadata.label(names.LABEL_REVISION) != revision.hash) for pod, _ in pods if pod is not None)
        if mixed and stage > Stage.STARTING and self._turning.is_torn(self._members(place, revision.size), revision):
            # What serves of it will be restarted: nobody may count on it.
            stage = Stage.STARTING
        ran = any(podstate.is_admitted(each) or podstate.restarts(each) for each in every)
        opened = stage < Stage.SERVING and not self.late and any(map(exchange.is_open, every))
        for left in (exchange.patience(each, self.observed.now) for each in every if exchange.is_open(each)):
            if left > 0:
                self.due = left if self.due is None else min(self.due, left)
        leaves = place in self.leaving.places and stage > Stage.WAITING
        fresh = not ran and place not in self._bound
        return Replica(revision, stage, state.standing, fresh, leaving=leaves, exchanging=opened)

    def _exchangeable(self, place: Place, replica: Replica) -> Replica:
        if replica.leaving:
            return replica
        size = replica.revision.size
        target = self.in_force.roles[place[1]]
        return replace(replica, exchangeable=self._turning.can_turn(self._members(place, size), size, target))

    def _members(self, place: Place, size: int) -> dict[Slot, core.Pod]:
        """The live pods of a replica."""
        slots = (Slot(*place, index) for index in range(size))
        found = {slot: pod for slot in slots if (pod := self.observed.current.get(slot)) is not None}
        return {slot: pod for slot, pod in found.items() if pod.metadata.uid not in self.observed.condemned}

    def _stage(self, state: ReplicaState, live: list[core.Pod], every: list[core.Pod]) -> Stage:
        if any(podstate.is_draining(each) or self._retires(each) for each in every):
            return Stage.GOING
        if not state.is_admitted:
            return Stage.WAITING
        if any(self._goes(each) for each in live):
            return Stage.STARTING
        if state.is_ready:
            return Stage.SERVING
        since = max((_changed(each) for each in live if not podstate.is_ready(each)), default=0.0)
        left = since + DOUBT - self.observed.now
        if left <= 0:
            return Stage.STARTING
        self.doubt = left if self.doubt is None else min(self.doubt, left)
        return Stage.DOUBTFUL

    def _retires(self, pod: core.Pod) -> bool:
        return pod.metadata.uid in self.observed.retired and self._goes(pod)

    def _goes(self, pod: core.Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or pod.metadata.uid in self.observed.condemned


def _blocked(roles: Mapping[str, RoleState]) -> str:
    """Single pods and replicas of several hang under groups of different kinds, of which a role has one."""
    crossing = [
        name
        for name, state in roles.items()
        if any((each.revision.size > 1) != (state.target.size > 1) for each in state.outdated.values())
    ]
    if not crossing:
        return ""
    return (
        f"size of {', '.join(crossing)} changes between 1 and more, which cannot be rolled yet: suspend the resource until "
        "its pods are gone and resume it, or take the change back"
    )


def _changed(pod: core.Pod) -> float:
    """When a pod's readiness changed last; at the beginning of time for one that says nothing of it."""
    told = (times.seconds(each.last_transition_time) for each in podstate.readiness(pod) if each is not None)
    return max((each for each in told if each is not None), default=0.0)


def _without_nodes(observed: Observed) -> frozenset[Place]:
    """Replicas with a pod for which kube-scheduler, or Volcano, has no node."""
    return frozenset(
        (slot.unit, slot.role, slot.replica)
        for slot, pod in observed.current.items()
        if podstate.unschedulable(pod) is not None
    )


def refused(compiled: Callable[[Layout], Tree], observed: Observed) -> Refused:
    """What the statuses of groups, or of pods, say of replicas; where they say nothing, nothing is known."""

    def asked(layout: Layout) -> Callable[[Place], bool]:
        pods, without = compiled(layout).pods, _without_nodes(observed)
        return lambda place: place in without or _is_refused(observed.objects.get(pods.anchor(Slot(*place, 0))))

    return asked


def _is_refused(owned: Owned | None) -> bool:
    """The scheduler has looked at a group as it is wanted now, and not all of it has nodes."""
    if owned is None:
        return False
    admitted = core.condition(owned.status.conditions, names.ADMITTED)
    wanted = owned.spec.get("desiredCount")
    seen = admitted is not None and (admitted.observed_generation or 0) >= owned.metadata.generation
    return seen and isinstance(wanted, int) and (owned.status.admitted or 0) < wanted


def revision_left(in_force: Revision, observed: Observed, running: Running) -> str:
    """The newest revision before the one in force that some replica is still of; empty where none is known."""
    told = {(role, each.hash) for (_, role, _), each in running.items() if each.hash != in_force.roles[role].hash}
    for stored in sorted(observed.revisions, key=lambda stored: stored.number, reverse=True):
        found = stored.record.revision if stored.record is not None else None
        if found is not None and told & {(name, role.hash) for name, role in found.roles.items()}:
            return found.hash
    return ""


def read_progress(before: Mapping[str, Any]) -> Progress | None:
    """What a status remembers of a rollout; None when it says nothing that can be understood."""
    told = before.get("rollout")
    if not isinstance(told, Mapping):
        return None
    since, target = times.seconds(_text(told.get("progressedAt"))), _text(told.get("toRevision"))
    ready, outdated, wave = (told.get(key, 0) for key in ("ready", "outdated", "wave"))
    if since is None or target is None or not all(isinstance(each, int) for each in (ready, outdated, wave)):
        return None
    return Progress(target, wave, ready, outdated, since, _read_hold(told.get("hold")))


def _read_hold(told: object) -> Hold | None:
    if not isinstance(told, Mapping):
        return None
    gate, since = told.get("gate"), times.seconds(_text(told.get("since")))
    if gate not in {each.value for each in Gate} or since is None:
        return None
    return Hold(Gate(gate), _text(told.get("message")) or "", since)


def written(progress: Progress, former: str) -> dict[str, Any]:
    """``status.rollout``; ``former`` is the revision that is left."""
    told: dict[str, Any] = {
        "fromRevision": former,
        "toRevision": progress.target,
        "wave": progress.wave,
        "ready": progress.ready,
        "outdated": progress.outdated,
        "progressedAt": times.rfc3339(progress.since),
    }
    if progress.hold is not None:
        hold = progress.hold
        told["hold"] = {"gate": hold.gate.value, "message": hold.reason, "since": times.rfc3339(hold.since)}
    return told


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
