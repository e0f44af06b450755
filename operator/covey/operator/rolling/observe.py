"""The units of a resource as ``covey.rollout`` is to see them: how far each replica has come, and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import InPlace
from covey.backends import Owned
from covey.compile import ReplicaKey, Slot
from covey.compile.layout import RoleCount
from covey.compile.revision import Revision
from covey.model import image_update, podstate
from covey.operator.intent import Intent
from covey.operator.model.observed import Observed, number
from covey.operator.replicas.freed_room import Rooms
from covey.operator.replicas.progress import ReplicaState
from covey.rollout import RoleState, RolloutBudget, RolloutReplica, Stage, UnitState

#: Seconds for which a scheduler that nobody can ask has no node, before old replicas make room.
PATIENCE: Final = 30.0
#: Seconds for which a replica that is not Ready any more counts as one that may be again.
DOUBT: Final = 60.0


@dataclass
class Seen:
    """The replicas of a resource, sorted once."""

    spec: DisaggregatedInferenceSpec
    in_force: Revision
    observed: Observed
    intent: Intent
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
    _bound: set[ReplicaKey] = field(default_factory=set)
    _grouped: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    _ages: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        current = self.observed.current
        by_replica: dict[ReplicaKey, list[tuple[core.Pod | None, tuple[core.Pod, ...]]]] = {}
        for slot, pods in self.observed.pods.items():
            by_replica.setdefault(slot[:3], []).append((current.get(slot), pods))
        for (unit, name, replica), incarnations in by_replica.items():
            self._pods.setdefault(unit, {}).setdefault(name, {})[replica] = incarnations
        for slot, tombstone in self.observed.tombstones.items():
            if tombstone.bound and not tombstone.retired:
                self._bound.add((slot.unit, slot.role, slot.replica))
            if not tombstone.retired and slot not in self.observed.pods:
                self._lost.setdefault(slot.unit, {}).setdefault(slot.role, set()).add(slot.replica)
        for owned in self.observed.objects.values():
            self._group(owned)
        for stored in self.observed.revisions:
            for name, role in stored.record.revision.roles.items() if stored.record is not None else ():
                self._ages[name, role.hash] = max(stored.number, self._ages.get((name, role.hash), 0))

    @cached_property
    def _unfit(self) -> Mapping[tuple[int, str], set[int]]:
        by_role: dict[tuple[int, str], set[int]] = {}
        for unit, role, replica in self.observed.unfit:
            by_role.setdefault((unit, role), set()).add(replica)
        return by_role

    def _group(self, owned: Owned) -> None:
        unit, replica = number(owned.metadata, names.LABEL_UNIT), number(owned.metadata, names.LABEL_REPLICA)
        role = owned.metadata.label(names.LABEL_ROLE)
        if unit is not None and role is not None and replica is not None:
            self._grouped.setdefault(unit, {}).setdefault(role, set()).add(replica)

    def unit(self, unit: int, counts: Mapping[str, RoleCount], *, stays: bool) -> UnitState:
        """The state of one unit as it is, with the replicas that it shall have."""
        roles = {}
        for role in self.spec.roles:
            pods = self._pods.get(unit, {}).get(role.name, {})
            lost = self._lost.get(unit, {}).get(role.name, set())
            # A replica without pods for want of quota waits like one without nodes.
            unfit = self._unfit.get((unit, role.name), set())
            replicas = {n: self._replica((unit, role.name, n), pods.get(n, [])) for n in sorted({*pods, *lost, *unfit})}
            spare = self._grouped.get(unit, {}).get(role.name, set()) - replicas.keys()
            target = self.in_force.roles[role.name]
            wanted = counts[role.name].replicas
            in_place = role.update is not None and role.update.in_place is InPlace.IF_POSSIBLE
            changes = any(replica.revision.hash != target.hash for replica in replicas.values())
            # What is updated in place is to stay where it is in the end, whatever its room is worth.
            if (len(replicas) > wanted or changes) and not (in_place and self.rolls):
                replicas = self._rank_by_room(unit, role.name, replicas)
            if in_place:
                replicas = {n: self._mark_updatable((unit, role.name, n), replica) for n, replica in replicas.items()}
            roles[role.name] = RoleState(
                target,
                wanted,
                role.min_replicas,
                RolloutBudget.of(role, wanted),
                replicas,
                frozenset(spare),
                yields=bool(self.spec.disruption and self.spec.disruption.allow_below_minimum),
            )
        return UnitState(roles, stays, describe_blocked(roles), ranks=self._ages)

    def is_kept_waiting(self, place: ReplicaKey) -> bool:
        """Tell whether a replica without nodes has been there for long enough to be found some."""
        return self._is_over(PATIENCE - self._age(place))

    def has_passed(self, since: float) -> bool:
        """Tell whether as long has passed since a time, in seconds since the epoch, as one that cannot be asked is waited for."""
        return self._is_over(since + PATIENCE - self.observed.now)

    def has_stalled(self, place: ReplicaKey, seconds: float) -> bool:
        """Tell whether a replica has not got any further for ``seconds``."""
        unit, role, replica = place
        incarnations = self._pods.get(unit, {}).get(role, {}).get(replica, [])
        since = podstate.stands_since((pod for pod, _ in incarnations if pod is not None), self.observed.now)
        return self._is_over(since + seconds - self.observed.now)

    def _is_over(self, left: float) -> bool:
        """Tell whether no time is left; else have it looked at again when the time is over."""
        if left > 0:
            self.due = left if self.due is None else min(self.due, left)
        return left <= 0

    def _age(self, place: ReplicaKey) -> float:
        """Age of a replica in seconds, by its oldest pod."""
        unit, role, replica = place
        made = (
            core.seconds(pod.metadata.creation_timestamp)
            for pod, _ in self._pods.get(unit, {}).get(role, {}).get(replica, [])
            if pod is not None
        )
        now = self.observed.now
        return now - min((time for time in made if time is not None), default=self.observed.unfit.get(place, now))

    @cached_property
    def _rooms(self) -> Rooms:
        return Rooms(self.observed.current.items())

    def _rank_by_room(self, unit: int, role: str, replicas: Mapping[int, RolloutReplica]) -> dict[int, RolloutReplica]:
        """Add to replicas what their room is worth: some of them may have to go."""
        rooms = self._rooms.of_replicas(unit, role)
        return {n: replace(replica, standing=(*replica.standing, *rooms.get(n, ()))) for n, replica in replicas.items()}

    def _replica(self, place: ReplicaKey, pods: list[tuple[core.Pod | None, tuple[core.Pod, ...]]]) -> RolloutReplica:
        unit, role, replica = place
        revision = self.intent.running.get(place, self.in_force.roles[role])
        state = self.intent.states.get(unit, {}).get(role, {}).get(replica, ReplicaState(revision))
        every = [pod for _, incarnations in pods for pod in incarnations]
        stage = self._stage(state, [pod for pod, _ in pods if pod is not None], every)
        if place in self.intent.preempted:
            stage = Stage.GOING
        mixed = any((pod.metadata.label(names.LABEL_REVISION) != revision.hash) for pod, _ in pods if pod is not None)
        if (
            mixed
            and stage > Stage.STARTING
            and self.intent.is_half_updated(self._members(place, revision.size), revision)
        ):
            # What serves of it will be restarted: nobody may count on it.
            stage = Stage.STARTING
        ran = any(podstate.is_admitted(pod) or podstate.restarts(pod) for pod in every)
        changed = [pod for pod in every if image_update.is_open(pod)]
        for left in (image_update.patience(pod, self.observed.now) for pod in changed):
            if left > 0:
                self.due = left if self.due is None else min(self.due, left)
        opened = bool(changed) and stage < Stage.SERVING and not self.late
        leaves = place in self.intent.leaving.places and stage > Stage.WAITING
        fresh = not ran and place not in self._bound
        return RolloutReplica(
            revision,
            stage,
            state.standing,
            fresh,
            leaving=leaves,
            patient=leaves and place in self.intent.leaving.patient,
            updating=opened,
        )

    def _mark_updatable(self, place: ReplicaKey, replica: RolloutReplica) -> RolloutReplica:
        if replica.leaving:
            return replica
        size = replica.revision.size
        target = self.in_force.roles[place[1]]
        return replace(replica, updatable=self.intent.can_update_in_place(self._members(place, size), size, target))

    def _members(self, place: ReplicaKey, size: int) -> dict[Slot, core.Pod]:
        """The live pods of a replica."""
        slots = (Slot(*place, index) for index in range(size))
        return {slot: pod for slot in slots if (pod := self.observed.current.get(slot)) is not None}

    def _stage(self, state: ReplicaState, live: list[core.Pod], every: list[core.Pod]) -> Stage:
        retired = self.observed.retired
        if any(
            podstate.is_draining(pod) or (pod.metadata.uid in retired and podstate.is_terminating(pod)) for pod in every
        ):
            return Stage.GOING
        if not state.is_admitted:
            return Stage.WAITING
        if state.is_ready:
            return Stage.SERVING
        since = max((_readiness_change(pod) for pod in live if not podstate.is_ready(pod)), default=0.0)
        left = since + DOUBT - self.observed.now
        if left <= 0:
            return Stage.STARTING
        self.doubt = left if self.doubt is None else min(self.doubt, left)
        return Stage.DOUBTFUL


def describe_blocked(roles: Mapping[str, RoleState]) -> str:
    """Report roles whose size changes between 1 and more; empty without any.

    Single pods and replicas of several hang under groups of different kinds, of which a role has one.
    """
    crossing = [
        name
        for name, state in roles.items()
        if any((replica.revision.size > 1) != (state.target.size > 1) for replica in state.outdated.values())
    ]
    if not crossing:
        return ""
    return (
        f"size of {', '.join(crossing)} changes between 1 and more, which cannot be rolled yet: suspend the resource until "
        "its pods are gone and resume it, or take the change back"
    )


def _readiness_change(pod: core.Pod) -> float:
    """Time at which a pod's readiness changed last, in seconds since the epoch; 0 where it says nothing of it."""
    times = (
        core.seconds(condition.last_transition_time) for condition in podstate.readiness(pod) if condition is not None
    )
    return max((time for time in times if time is not None), default=0.0)
