"""Failed replicas, and their fates by the restart policy of their role.

Everything follows from the objects: a pod carries how often its replica has failed in a row and when last (``Past``),
the leader of a replica when that was first Ready, a unit's first object the latest failures (``failure_log``). A failure
is noted there before anything is given up for it, so that it is counted once, wherever the operator is killed. It is
known again by the restarts that its pods have seen: successors have seen one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInference
from covey.api.roles import RestartPolicy, Role
from covey.compile import ReplicaKey, Slot, Tree
from covey.compile.environment import STANDARD_LEVELS
from covey.compile.groups import Levels
from covey.compile.restarts import NO_PAST, memory
from covey.compile.revision import RoleRevision
from covey.model import image_update, podstate
from covey.operator.model.actions import Actions, Annotate, CreatePod, Note
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.model.place import Place
from covey.operator.repair import avoided_nodes, container_restarts, failures, recovered, restart_window
from covey.operator.repair.failure_log import Failure
from covey.operator.repair.failures import FailureCause, Fault, ended_last, overdue, ready_since
from covey.operator.repair.reports import Exhausted, remark_failures, tell_failures
from covey.operator.repair.tally import Tally
from covey.operator.repair.unit_restarts import UnitRestarts
from covey.operator.replicas.replace import NO_FATE, Fate, ReplicaActions, is_broken

_WHOLE: Final = Fate(whole=True)


@dataclass(frozen=True, slots=True)
class Failing:
    """Fates of replicas, and the annotations and reports about them; a replica without a fate has not failed."""

    fates: Mapping[ReplicaKey, Fate] = field(default_factory=dict)
    annotate: tuple[Annotate, ...] = ()
    notes: tuple[Note, ...] = ()
    remarks: tuple[Remark, ...] = ()
    #: Seconds after which time alone changes something.
    again: float | None = None
    #: Failures that are seen for the first time, for the metrics.
    seen: tuple[Failure, ...] = ()
    avoided: tuple[Avoided, ...] = ()
    #: The backend keeps places for pods that wait for their start.
    reserves: bool = True

    @property
    def outcome(self) -> Outcome:
        """Annotations to write, Events and remarks to report."""
        return Outcome(Actions(annotate=self.annotate, notes=self.notes), self.remarks, self.again)

    def apply_to(
        self, replicas: Iterable[ReplicaActions], inference: DisaggregatedInference, observed: Observed
    ) -> tuple[tuple[ReplicaActions, ...], Mapping[Slot, float]]:
        """Return the plans with new pods that wait for their time and keep off avoided nodes.

        And the places where no pod is created until then, with the seconds.
        """
        roles, now = {role.name: role for role in inference.spec.roles}, observed.now
        plans = tuple(replicas)
        starts = {
            creation.slot: creation.told.past.starts_at(roles[creation.slot.role].backoff)
            for plan in plans
            for creation in plan.create
            if creation.slot.role in roles
        }
        late = {slot: at - now for slot, at in starts.items() if at > now}
        shunned = () if self.reserves else tuple(entry.node for entry in self.avoided if entry.node)
        if not late and not shunned:
            return plans, late

        def with_past(creation: CreatePod) -> CreatePod:
            return replace(creation, told=replace(creation.told, waits=creation.slot in late, shunned=shunned))

        plans = tuple(replace(plan, create=tuple(map(with_past, plan.create))) for plan in plans)
        return plans, {} if self.reserves else late


def policy_of(role: Role, size: int) -> RestartPolicy:
    """The restart policy of a replica: the default goes by the size that runs, not by one that is held."""
    if role.restart is not None and role.restart.policy is not None:
        return role.restart.policy
    return RestartPolicy.RECREATE_REPLICA if size > 1 else RestartPolicy.NONE


def find_failing(
    inference: DisaggregatedInference,
    tree: Tree,
    observed: Observed,
    levels: Levels | None,
    *,
    reserves: bool,
    also: Sequence[Avoided] = (),
) -> Failing:
    """Judge every replica that there shall be.

    Args:
        inference: the resource, with the spec that is kept up.
        tree: what is wanted.
        observed: the snapshot.
        levels: of the topology, from broad to narrow, where they are known.
        reserves: the backend keeps places for pods that wait for their start; else what failed stays until its time.
        also: what new pods keep off for other reasons.
    """
    judge = _FailureJudge(inference, tree, observed, reserves=reserves)
    for (unit, role, number), slots in tree.replicas.items():
        judge.look_at((unit, role, number), slots, tree.layout.units[unit][role][number])
    judge.recreate_units(tree)
    return judge.result(levels, also)


class _FailureJudge:
    def __init__(self, inference: DisaggregatedInference, tree: Tree, observed: Observed, *, reserves: bool) -> None:
        self._name = inference.metadata.name
        self._roles = {role.name: role for role in inference.spec.roles}
        self._observed = observed
        self._reserves = reserves
        self._tally = Tally(tree, observed)
        self._units = UnitRestarts(self._tally, observed)
        self._spare = restart_window.Spare(tree, observed)
        self._fates: dict[ReplicaKey, Fate] = {}
        self._marks: list[Annotate] = []
        self._exhausted: list[Exhausted] = []
        self._again: list[float] = []

    def look_at(self, replica: ReplicaKey, slots: Sequence[Slot], revision: RoleRevision) -> None:
        """Judge one replica."""
        role = self._roles.get(replica[1])
        if role is None:
            return
        # 1. Most have nothing to note, most of the time.
        policy = policy_of(role, revision.size)
        whole = policy in {RestartPolicy.RECREATE_REPLICA, RestartPolicy.RECREATE_UNIT}
        if self._is_quiet(slots, role, policy):
            if whole:
                self._fates[replica] = _WHOLE
            return
        # 2. What has failed, and whether it costs the whole replica.
        places = [self._observed.place(slot) for slot in slots]
        since = ready_since(places)
        whole = whole or (policy is RestartPolicy.RECREATE_REPLICA_AFTER_START and since is not None)
        faults = tuple(self._faults(places, revision, role, policy, since))
        # 3. What becomes of it: of the replica, or of each pod that has failed.
        fate = self._fate_without_failure(places, revision, role, whole=whole)
        if whole and faults:
            fate = self._fail(places, revision, role, faults, since, fate, alone=False)
        for fault in () if whole else faults:
            mine = [place for place in places if place.slot == fault.slot]
            fate = self._fail(mine, revision, role, (fault,), since, fate, alone=True)
        # 4. Nothing has failed: it may be late, and others are told that it starts.
        if not faults and since is None:
            self._start(places, revision, role, policy)
        elif not faults:
            self._marks += recovered.tell_scheduler(places, self._observed.now)
            self._marks += container_restarts.add_sidecars(places) if policy is not RestartPolicy.NONE else ()
        # 5. A unit that is recreated goes as one, when all replicas have been looked at.
        lost = whole and is_broken(self._name, places)
        if policy is RestartPolicy.RECREATE_UNIT and not fate.kept and (fate.broken or lost):
            self._units.fail(replica[0], places, fate)
        if fate != NO_FATE:
            self._fates[replica] = fate

    def recreate_units(self, tree: Tree) -> None:
        """Decide which units are recreated as a whole, once all replicas have been looked at."""
        if self._tally.wholes:
            self._marks += self._units.fates(tree, self._roles, self._fates)

    def _is_quiet(self, slots: Sequence[Slot], role: Role, policy: RestartPolicy) -> bool:
        """Tell whether a replica has no failed or missing pod and nothing to note, as most have, most of the time."""
        pods = self._observed.pods
        alone = [incarnations[0] for slot in slots if len(incarnations := pods.get(slot, ())) == 1]
        if len(alone) < len(slots) or any(map(podstate.is_dead, alone)):
            return False
        if any(map(image_update.container_statuses, alone)):
            return False
        if policy is not RestartPolicy.NONE and any(map(container_restarts.lacks_baseline, alone)):
            return False
        if podstate.ready_since(alone[0]) is not None:
            return not recovered.is_untold(alone[0])
        notes = policy is not RestartPolicy.NONE or role.start_deadline_seconds or podstate.past(alone[0]).failures
        return not (notes and any(map(podstate.is_bound, alone)))

    def _fate_without_failure(
        self, places: Sequence[Place], revision: RoleRevision, role: Role, *, whole: bool
    ) -> Fate:
        """The fate of a replica that does not fail now: an earlier failure may be noted that no pod carries yet."""
        if whole:
            return Fate(whole=True, least=self._tally.pending(places, revision, role, alone=False))
        pasts = {place.slot: self._tally.pending([place], revision, role, alone=True) for place in places}
        return Fate(pasts={slot: past for slot, past in pasts.items() if past != NO_PAST})

    def _faults(
        self, places: Sequence[Place], revision: RoleRevision, role: Role, policy: RestartPolicy, since: float | None
    ) -> Iterator[Fault]:
        deadline = role.start_deadline_seconds if since is None else None
        # While images are updated in place the kubelet restarts containers on purpose, and their peers may crash for it.
        restarts = not any(place.now is not None and image_update.is_open(place.now) for place in places)
        restarts = restarts and policy is not RestartPolicy.NONE and since is not None
        counted = container_restarts.replacements_count_since(places) if restarts else None
        for place in places:
            if place.now is None:
                fault = ended_last(place)
                if fault is not None:
                    yield fault
                continue
            container = (
                container_restarts.restarted(place.now, revision, place.slot.index, counted) if restarts else None
            )
            if container is not None:
                detail = failures.trouble_of(place.now, container.name) or f"container {container.name}"
                yield Fault(place.slot, place.now, FailureCause.RESTARTED, detail)
            elif deadline is not None:
                left = overdue(place.now, deadline, self._observed.now)
                if left is not None and left <= 0:
                    yield Fault(place.slot, place.now, FailureCause.DEADLINE, failures.trouble_of(place.now))
                elif left is not None:
                    self._again.append(left)

    def _fail(
        self,
        places: Sequence[Place],
        revision: RoleRevision,
        role: Role,
        faults: Sequence[Fault],
        since: float | None,
        before: Fate,
        *,
        alone: bool,
    ) -> Fate:
        """Decide the fate of a replica, or of one pod of it (``alone``), after a failure."""
        known, slot = len(self._tally.new), faults[0].slot
        past = self._tally.count(places, revision, role, faults, since, alone=alone)
        most = role.restart.max_restarts if role.restart is not None else None
        wait = past.starts_at(role.backoff) - self._observed.now
        exhausted = most is not None and past.failures > most
        until = None
        if recovered.is_over(places, faults):
            ready = recovered.serves_since(places, past.failed_at)
            until = ready + memory(role.backoff)
            if not exhausted or until <= self._observed.now:
                self._marks += recovered.forgive(places, ready)
                return before
            self._again.append(until - self._observed.now)
        if most is not None and exhausted:
            is_new = len(self._tally.new) > known
            self._exhausted.append(Exhausted(slot.unit, slot.role, slot.replica, past.failures, most, is_new, until))
        elif wait > 0 and not self._reserves:
            self._again.append(wait)
        elif self._may_go(places, role, faults):
            failed = {fault.pod.metadata.uid for fault in faults if not podstate.is_dead(fault.pod)}
            pasts = dict.fromkeys((place.slot for place in places), past)
            return replace(before, broken=not alone, failed={*before.failed, *failed}, pasts={**before.pasts, **pasts})
        self._marks += recovered.mark_left(faults, past.failed_at, exhausted=exhausted)
        return replace(before, kept={*before.kept, *(place.slot for place in places)})

    def _may_go(self, places: Sequence[Place], role: Role, faults: Sequence[Fault]) -> bool:
        """Tell whether failed pods may be given up now; of a replica that still serves only as ``Spare`` allows."""
        ready = all(fault.why is FailureCause.RESTARTED for fault in faults) and failures.serves(places)
        return not ready or self._spare.take(places[0].slot.unit, role)

    def _start(self, places: Sequence[Place], revision: RoleRevision, role: Role, policy: RestartPolicy) -> None:
        """Note that a replica is Ready for the first time, and the restarts of its containers until then."""
        pods = [place.now for place in places if place.now is not None and podstate.is_ready(place.now)]
        wanted = policy is not RestartPolicy.NONE or role.start_deadline_seconds
        if len(pods) < revision.size or not (wanted or podstate.past(pods[0]).failures):
            return
        behind = [
            failures.annotate(
                pod,
                {names.ANNOTATION_RESTART_BASELINE: container_restarts.dump_baseline(container_restarts.counts(pod))},
            )
            for index, pod in enumerate(pods)
            if container_restarts.restarted(pod, revision, index) is not None or container_restarts.lacks_baseline(pod)
        ]
        # In a pass of their own: the mark says that they are written.
        self._marks += behind or [
            failures.annotate(
                pods[0],
                {
                    **dict.fromkeys(
                        (names.ANNOTATION_STARTED, names.ANNOTATION_SERVES_SINCE), core.rfc3339(self._observed.now)
                    ),
                    names.ANNOTATION_REPLACED: "count",
                },
            )
        ]

    def result(self, levels: Levels | None, also: Sequence[Avoided]) -> Failing:
        """The result of all judgements."""
        now, new = self._observed.now, tuple(self._tally.new)
        avoided = (*avoided_nodes.avoided_by(self._tally.every, self._observed, levels or {}, STANDARD_LEVELS), *also)
        self._again += [entry.until - now for entry in avoided]
        return Failing(
            self._fates,
            (*self._tally.log_annotations(avoided, self._roles), *self._marks),
            tuple(tell_failures(new, self._exhausted)),
            tuple(remark_failures(self._exhausted, avoided)),
            min((time for time in self._again if time > 0), default=None),
            new,
            avoided,
            self._reserves,
        )
