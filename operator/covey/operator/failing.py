"""Which replicas have failed, and what the restart policy of their role makes of it.

Everything follows from the objects: a pod carries how often its replica has failed in a row and when last (``Past``), the
leader of a replica when that was first Ready, a unit's first object the latest failures (``failures``). A failure is
noted there before anything is given up for it, so that it is counted once, wherever the operator is killed. It is known
again by the restarts that its pods have seen: successors have seen one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final

from covey.api import constants as names
from covey.api import core, times
from covey.api.avoided import Avoided
from covey.api.avoided import written as avoided_text
from covey.api.inference import DisaggregatedInference
from covey.api.roles import RestartPolicy, Role
from covey.backends import Owned
from covey.compile import Slot, Tree
from covey.compile.environment import STANDARD_LEVELS
from covey.compile.membership import Levels
from covey.compile.past import NO_PAST, Past, memory
from covey.compile.revision import RoleRevision
from covey.kube.resources import PODS
from covey.operator import avoiding, exchange, failures, podstate, restarted
from covey.operator.actions import Annotate, CreatePod, Note
from covey.operator.causes import Cause, ended, overdue
from covey.operator.failures import Failure, Log
from covey.operator.fate import NO_FATE, Fate
from covey.operator.observe import Observed
from covey.operator.remark import Remark
from covey.operator.replace import Place, ReplicaPlan, is_broken

#: On a failed pod that is not replaced yet: since when.
ANNOTATION_SINCE: Final = "covey.dev/failing-since"
REASON_EXHAUSTED: Final = "RestartsExhausted"
REASON_AVOIDED: Final = "NodeAvoided"

#: Unit, role and number.
Replica = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Failing:
    """What becomes of each replica; one that is not named goes on by its role's policy (``fate``)."""

    fates: Mapping[Replica, Fate] = field(default_factory=dict)
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

    def applied(
        self, replicas: Iterable[ReplicaPlan], inference: DisaggregatedInference, observed: Observed
    ) -> tuple[tuple[ReplicaPlan, ...], Mapping[Slot, float]]:
        """Plans whose new pods wait for their time and keep off what is avoided.

        And the places where there are to be none until then, with the seconds.
        """
        roles, now = {role.name: role for role in inference.spec.roles}, observed.now
        plans = tuple(replicas)
        waits = {item.slot: waits_until(item, roles) - now for plan in plans for item in plan.create}
        late = {slot: seconds for slot, seconds in waits.items() if seconds > 0}
        shunned = () if self.reserves else tuple(each.node for each in self.avoided if each.node)
        if not late and not shunned:
            return plans, late

        def told(item: CreatePod) -> CreatePod:
            return replace(item, told=replace(item.told, waits=item.slot in late, shunned=shunned))

        plans = tuple(replace(plan, create=tuple(map(told, plan.create))) for plan in plans)
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
    judge = _Judge(inference, tree, observed, reserves=reserves)
    for (unit, role, number), slots in groupby(tree.slots, key=lambda slot: (slot.unit, slot.role, slot.replica)):
        judge.look_at((unit, role, number), tuple(slots), tree.layout.units[unit][role][number])
    judge.recreate_units()
    return judge.found(tuple(levels or STANDARD_LEVELS), levels or {}, also)


@dataclass(frozen=True, slots=True)
class _Fault:
    """A pod that has failed."""

    slot: Slot
    pod: core.Pod
    why: Cause


class _Judge:
    def __init__(self, inference: DisaggregatedInference, tree: Tree, observed: Observed, *, reserves: bool) -> None:
        self._name = inference.metadata.name
        self._roles = {role.name: role for role in inference.spec.roles}
        self._tree = tree
        self._observed = observed
        self._reserves = reserves
        keepers = failures.keepers(tree)
        self._keepers: dict[int, Owned] = {
            unit: owned for unit, each in keepers.items() if (owned := observed.objects.get(each)) is not None
        }
        self._logs = {unit: failures.read(owned) for unit, owned in self._keepers.items()}
        #: What pods of units are told that were recreated as a whole.
        self._wholes: dict[int, Past] = {
            unit: Past(unit=log.whole.unit) for unit, log in self._logs.items() if log.whole.unit
        }
        self._fates: dict[Replica, Fate] = {}
        self._marks: list[Annotate] = []
        self._new: list[Failure] = []
        self._exhausted: list[tuple[Replica, Past, int]] = []
        #: Units that are recreated as a whole, and the failures in a row that they have had.
        self._units: dict[int, Past] = {}
        self._again: list[float] = []

    # One replica

    def look_at(self, replica: Replica, slots: Sequence[Slot], revision: RoleRevision) -> None:
        """Judge one replica."""
        role = self._roles.get(replica[1])
        if role is None:
            return
        policy = policy_of(role, revision.size)
        whole = policy in {RestartPolicy.RECREATE_REPLICA, RestartPolicy.RECREATE_UNIT}
        if self._is_quiet(slots, role, policy):
            if whole:
                self._fates[replica] = _WHOLE
            return
        places = [Place.of(slot, self._observed) for slot in slots]
        since = _started(places)
        whole = whole or (policy is RestartPolicy.RECREATE_REPLICA_AFTER_START and since is not None)
        faults = tuple(self._faults(places, role, policy, since))
        fate = Fate(whole)
        if whole:
            fate = replace(fate, least=self._pending(replica, places, revision, role, alone=False))
        else:
            told = {each.slot: self._pending(replica, [each], revision, role, alone=True) for each in places}
            fate = replace(fate, pasts={slot: past for slot, past in told.items() if past != NO_PAST})
        if faults and whole:
            fate = self._fail(replica, places, revision, role, faults, since, fate)
        elif faults:
            for fault in faults:
                place = [each for each in places if each.slot == fault.slot]
                fate = self._fail(replica, place, revision, role, (fault,), since, fate, alone=True)
        elif since is None:
            self._start(places, role, policy, revision.size)
        lost = whole and is_broken(self._name, places)
        if policy is RestartPolicy.RECREATE_UNIT and not fate.kept and (fate.broken or lost):
            self._fail_unit(replica[0], places, fate)
        if fate != NO_FATE:
            self._fates[replica] = fate

    def _is_quiet(self, slots: Sequence[Slot], role: Role, policy: RestartPolicy) -> bool:
        """Nothing of it has failed or is missing, and nothing is to be noted: most replicas, most of the time."""
        pods = self._observed.pods
        alone = [found[0] for slot in slots if len(found := pods.get(slot, ())) == 1]
        if len(alone) < len(slots) or any(map(podstate.is_dead, alone)):
            return False
        if any(each.status.container_statuses for each in alone):
            return False
        if podstate.started(alone[0]) is not None:
            return True
        notes = policy is not RestartPolicy.NONE or role.start_deadline_seconds or podstate.past(alone[0]).failures
        return not (notes and any(map(podstate.is_bound, alone)))

    def _faults(
        self, places: Sequence[Place], role: Role, policy: RestartPolicy, since: float | None
    ) -> Iterator[_Fault]:
        deadline = role.start_deadline_seconds if since is None else None
        # While images are exchanged the kubelet restarts containers on purpose, and their peers may crash for it.
        restarts = not any(place.now is not None and exchange.is_open(place.now) for place in places)
        for place in places:
            if place.now is None:
                last = max(place.others, key=_age, default=None)
                why = ended(last) if last is not None and last.metadata.uid not in place.retired else None
                if last is not None and why is not None:
                    yield _Fault(place.slot, last, why)
            elif policy is not RestartPolicy.NONE and since is not None and restarts and restarted.restarted(place.now):
                yield _Fault(place.slot, place.now, Cause.RESTARTED)
            elif deadline is not None:
                left = overdue(place.now, deadline, self._observed.now)
                if left is not None and left <= 0:
                    yield _Fault(place.slot, place.now, Cause.DEADLINE)
                elif left is not None:
                    self._again.append(left)

    def _fail(
        self,
        replica: Replica,
        places: Sequence[Place],
        revision: RoleRevision,
        role: Role,
        faults: Sequence[_Fault],
        since: float | None,
        before: Fate,
        *,
        alone: bool = False,
    ) -> Fate:
        """What a failure makes of a replica, or of one pod of it (``alone``)."""
        past = self._count(replica, places, revision, role, faults, since, alone=alone)
        most = role.restart.max_restarts if role.restart is not None else None
        exhausted = most is not None and past.failures > most
        wait = past.starts_at(role.backoff) - self._observed.now
        stays = exhausted or (wait > 0 and not self._reserves)
        if exhausted and most is not None:
            self._exhausted.append((replica, past, most))
        elif stays:
            self._again.append(wait)
        if stays:
            self._marks += self._kept(faults, past)
            return replace(before, kept={*before.kept, *(place.slot for place in places)})
        failed = {fault.pod.metadata.uid for fault in faults if not podstate.is_dead(fault.pod)}
        pasts = dict.fromkeys((place.slot for place in places), past)
        return replace(
            before, broken=before.broken or not alone, failed={*before.failed, *failed}, pasts={**before.pasts, **pasts}
        )

    def _kept(self, faults: Iterable[_Fault], past: Past) -> Iterator[Annotate]:
        for fault in faults:
            if fault.pod.metadata.annotation(ANNOTATION_SINCE) is None:
                yield _annotate(fault.pod, {ANNOTATION_SINCE: times.rfc3339(past.failed_at)})

    def _count(
        self,
        replica: Replica,
        places: Sequence[Place],
        revision: RoleRevision,
        role: Role,
        faults: Sequence[_Fault],
        since: float | None,
        *,
        alone: bool,
    ) -> Past:
        """What the successors are told; a failure that has not been counted yet is."""
        key = _key(faults[0].slot, alone=alone)
        lead = max((fault.pod for fault in faults), key=lambda pod: (podstate.past(pod).restarts, _age(pod)))
        former = podstate.past(lead)
        log = self._logs.get(replica[0], Log())
        counted = log.last(replica[0], key)
        if counted is not None and _is_of(counted, lead, revision) and counted.past.restarts > former.restarts:
            return counted.past
        made = [podstate.past(place.now) for place in places if place.now is not None]
        if made and (latest := max(made, key=lambda past: past.restarts)).restarts > former.restarts:
            return latest
        marked = (times.seconds(fault.pod.metadata.annotation(ANNOTATION_SINCE)) for fault in faults)
        known = [at for at in marked if at is not None]
        at = min(known) if known else max(self._observed.now, _created(lead))
        lived = at - since if since is not None else 0.0
        row = 0 if lived >= memory(role.backoff) or _revision(lead) != revision.hash else former.failures
        past = Past(former.restarts + 1, row + 1, float(int(at)), former.unit)
        if not known:
            why = next(fault.why for fault in faults if fault.pod is lead)
            nodes = failures.nodes_of(fault.pod for fault in faults)
            self._new.append(Failure(replica[0], key, revision.hash, past, why.value, nodes))
        return past

    def _pending(
        self, replica: Replica, places: Sequence[Place], revision: RoleRevision, role: Role, *, alone: bool
    ) -> Past:
        """What was noted of a failure, and may have been told to nobody."""
        log = self._logs.get(replica[0])
        noted = log.last(replica[0], _key(places[0].slot, alone=alone)) if log is not None and log.failures else None
        if noted is None or noted.revision != revision.hash:
            return NO_PAST
        if self._observed.now >= noted.at + memory(role.backoff):
            return NO_PAST
        pods = [pod for place in places for pod in (place.now, *place.others) if pod is not None]
        graves = [place.grave for place in places if place.grave is not None]
        told = max((*(podstate.restarts(pod) for pod in pods), *(each.restarts for each in graves)), default=0)
        fresh = any(_created(pod) > noted.at for pod in pods) or any(each.retired for each in graves)
        return NO_PAST if fresh or told >= noted.past.restarts else noted.past

    def _start(self, places: Sequence[Place], role: Role, policy: RestartPolicy, size: int) -> None:
        """Note that a replica is Ready for the first time, and which restarts it has behind it by then."""
        pods = [place.now for place in places if place.now is not None and podstate.is_ready(place.now)]
        wanted = policy is not RestartPolicy.NONE or role.start_deadline_seconds
        if len(pods) < size or not (wanted or podstate.past(pods[0]).failures):
            return
        behind = [
            _annotate(pod, {names.ANNOTATION_RESTART_BASELINE: restarted.written(restarted.counts(pod))})
            for pod in pods
            if restarted.restarted(pod)
        ]
        # In a pass of their own: the mark says that they are written.
        self._marks += behind or [_annotate(pods[0], {names.ANNOTATION_STARTED: times.rfc3339(self._observed.now)})]

    # Units

    def _fail_unit(self, unit: int, places: Iterable[Place], fate: Fate) -> None:
        """A replica that takes its unit with it has failed, or lost a pod."""
        pods = [pod for place in places for pod in (place.now, *place.others) if pod is not None]
        graves = [place.grave for place in places if place.grave is not None]
        seen = max((*(podstate.past(pod).unit for pod in pods), *(each.past.unit for each in graves)), default=0)
        log = self._logs.get(unit, Log())
        row = max(fate.pasts.values(), key=lambda past: past.failures, default=NO_PAST)
        if log.whole.unit > seen:
            self._units[unit] = log.whole
            return
        known = self._units.get(unit)
        count = max(seen + 1, known.unit if known is not None else 0)
        more = max((row, known or NO_PAST), key=lambda past: past.failures)
        self._units[unit] = Past(0, more.failures, more.failed_at, count)

    def recreate_units(self) -> None:
        """Give up what is older than the last recreation of its unit."""
        for unit, log in self._logs.items():
            if log.whole.unit:
                self._units.setdefault(unit, log.whole)
        if not self._units:
            return
        self._wholes |= {unit: Past(unit=past.unit) for unit, past in self._units.items()}
        for replica, slots in groupby(self._tree.slots, key=lambda slot: (slot.unit, slot.role, slot.replica)):
            whole = self._units.get(replica[0])
            if whole is not None:
                self._recreate(replica, tuple(slots), whole)

    def _recreate(self, replica: Replica, slots: Sequence[Slot], whole: Past) -> None:
        fate = self._fates.get(replica, NO_FATE)
        role = self._roles.get(replica[1])
        places = [Place.of(slot, self._observed) for slot in slots]
        old = [place.now for place in places if place.now is not None and podstate.past(place.now).unit < whole.unit]
        mine = role is not None and policy_of(role, len(slots)) is RestartPolicy.RECREATE_UNIT
        if old and role is not None and (role.min_replicas or mine):
            count = max(map(podstate.restarts, old)) + 1
            past = Past(count, whole.failures, whole.failed_at, whole.unit)
            fate = replace(
                fate,
                whole=True,
                broken=True,
                kept=(),
                failed={*fate.failed, *(pod.metadata.uid for pod in old)},
                pasts={place.slot: past.joined(fate.pasts.get(place.slot)) for place in places},
            )
        self._fates[replica] = replace(fate, least=fate.least.joined(Past(unit=whole.unit)))

    # What comes out of it

    def found(self, order: Sequence[str], levels: Levels, also: Sequence[Avoided]) -> Failing:
        """Everything, once all replicas have been looked at."""
        avoided = (*self._avoided(order, levels), *also)
        now = self._observed.now
        self._again += [each.until - now for each in avoided if each.until > now]
        return Failing(
            self._fates,
            (*self._noted(avoided), *self._marks),
            tuple(self._notes()),
            (*self._exhaustion(), *_avoidance(avoided)),
            min((each for each in self._again if each > 0), default=None),
            tuple(self._new),
            avoided,
            self._reserves,
        )

    def _avoided(self, order: Sequence[str], levels: Levels) -> tuple[Avoided, ...]:
        every = [*chain.from_iterable(log.failures for log in self._logs.values()), *self._new]
        if not any(each.nodes for each in every):
            return ()
        places = [name for name in order if name != "host" and names.HOSTNAME_LABEL not in levels.get(name, ())]
        live = [pod for pod in self._observed.every_pod() if podstate.is_bound(pod) and not podstate.is_dead(pod)]
        ready = {
            avoiding.domain_key(failures.domains_of(pod), places, level)
            for pod in live
            if podstate.is_ready(pod)
            for level in places
        }
        every.sort(key=lambda each: each.at)
        observed = self._observed
        occupied = {pod.spec.node_name or "" for pod in live}
        return avoiding.find_avoided(every, places, occupied, ready, observed.now, observed.limits)

    def _noted(self, avoided: Sequence[Avoided]) -> Iterator[Annotate]:
        """What the objects of units carry from now on."""
        told = avoided_text(avoided)
        for unit, owned in self._keepers.items():
            log = self._logs[unit]
            new = [each for each in self._new if each.unit == unit]
            whole = self._units.get(unit, log.whole)
            changes: dict[str, str | None] = {}
            if new or whole != log.whole:
                kept = replace(log.extended(new, self._oldest()), whole=whole)
                changes[failures.ANNOTATION] = failures.written(kept)
            if owned.metadata.annotation(names.ANNOTATION_AVOID) != told:
                changes[names.ANNOTATION_AVOID] = told
            if changes and owned.metadata.deletion_timestamp is None:
                kind = failures.keepers(self._tree)[unit][0]
                yield Annotate(kind, owned.metadata.name, owned.metadata.uid, changes)

    def _oldest(self) -> float:
        """Failures from before that time are of no use any more."""
        longest = max((memory(role.backoff) for role in self._roles.values()), default=0.0)
        return self._observed.now - max(avoiding.WINDOW, longest)

    def _notes(self) -> Iterator[Note]:
        """One note for all failures of a role for one reason: those of a rack must not use up the Events."""
        for (role, why), group in groupby(sorted(self._new, key=_role_and_why), key=_role_and_why):
            found = list(group)
            first = found[0]
            nodes = sorted({node for each in found for node in each.nodes})
            where = f" on {', '.join(nodes[:3])}{' and others' if len(nodes) > len(nodes[:3]) else ''}" if nodes else ""
            what = _replica_text(first.unit, first.replica) if len(found) == 1 else f"{len(found)} replicas of {role}"
            times_ = f", {first.past.failures} times in a row" if len(found) == 1 and first.past.failures > 1 else ""
            yield Note("ReplicaFailed", f"{what} failed{where}: {why}{times_}", "Restart", warning=True)

    def _exhaustion(self) -> Iterator[Remark]:
        if not self._exhausted:
            return
        (unit, role, number), past, most = self._exhausted[0]
        more = f" (and {len(self._exhausted) - 1} more)" if len(self._exhausted) > 1 else ""
        message = (
            f"replica {number} of {role} in unit {unit}{more} failed {past.failures} times in a row, and restart.maxRestarts "
            f"is {most}: it is left as it is; raise spec.roles[{role}].restart.maxRestarts, delete its failed pods for one "
            "more try, or roll out a template that works"
        )
        yield Remark(names.DEGRADED, REASON_EXHAUSTED, message)


_WHOLE: Final = Fate(whole=True)


def _avoidance(avoided: Sequence[Avoided]) -> Iterator[Remark]:
    if avoided:
        told = [f"{each} until {times.rfc3339(each.until)} ({each.reason})" for each in avoided[:3]]
        more = f"; and {len(avoided) - 3} more" if len(avoided) > len(told) else ""
        message = f"new pods keep off {'; '.join(told)}{more}: see what is wrong there, and cordon what is broken"
        yield Remark(names.NODES_AVOIDED, REASON_AVOIDED, message)


def waits_until(item: CreatePod, roles: Mapping[str, Role]) -> float:
    """When a new pod may start, in seconds since the epoch."""
    role = roles.get(item.slot.role)
    return item.told.past.starts_at(role.backoff) if role is not None else 0.0


def _started(places: Sequence[Place]) -> float | None:
    """Since when the replica has been one that was Ready once; its leader knows, dead or alive."""
    leader = places[0]
    pods = [each for each in (leader.now, *leader.others) if each is not None]
    if not pods and leader.grave is None:
        # Whoever knew is gone without a trace. What still serves was Ready.
        ready = any(place.now is not None and podstate.is_ready(place.now) for place in places)
        return 0.0 if ready else None
    known = podstate.started(max(pods, key=_age)) if pods else None
    if not pods and leader.grave is not None:
        known = leader.grave.started
    return known


def _is_of(failure: Failure, pod: core.Pod, revision: RoleRevision) -> bool:
    """The failure may be that of this pod, which is not of a later replica of the same number."""
    return failure.revision == revision.hash and _created(pod) <= failure.at


def _annotate(pod: core.Pod, annotations: Mapping[str, str | None]) -> Annotate:
    return Annotate(PODS.type, pod.metadata.name, pod.metadata.uid, annotations)


def _age(pod: core.Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp, pod.metadata.uid


def _created(pod: core.Pod) -> float:
    return times.seconds(pod.metadata.creation_timestamp) or 0.0


def _revision(pod: core.Pod) -> str:
    return pod.metadata.label(names.LABEL_REVISION) or ""


def _key(slot: Slot, *, alone: bool) -> str:
    return f"{slot.role}/{slot.replica}/{slot.index}" if alone else f"{slot.role}/{slot.replica}"


def _role_and_why(failure: Failure) -> tuple[str, str]:
    return failure.replica.partition("/")[0], failure.why


def _replica_text(unit: int, replica: str) -> str:
    role, _, number = replica.partition("/")
    number, _, index = number.partition("/")
    return f"{f'pod {index} of ' if index else ''}replica {number} of {role} in unit {unit}"
