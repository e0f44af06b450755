"""What has to be done, from what is wanted and what is: no I/O, and the same answer for the same input.

Done once more on its own result, a plan is empty; done after a crash between any two of its actions, it finishes
what was begun. Both are tested as properties.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference, OnFailure
from covey.backends import Backend, Identity, Release
from covey.backends.starts import can_reserve
from covey.compile import Layout, Scale, Slot, Tree
from covey.kube.resources import SERVICES
from covey.operator.failures.failing import Failing, find_failing
from covey.operator.failures.logbook import Failure
from covey.operator.judge.verdict import Verdict, revision_before
from covey.operator.loss.giving_up import GivenUp
from covey.operator.loss.stranded import find_stranded, lost_notes
from covey.operator.loss.units import find_loss
from covey.operator.replicas.fate import NO_FATE
from covey.operator.replicas.replace import ReplicaPlan, ReplicaPlanner
from covey.operator.replicas.scale import States, replica_states, running_revisions
from covey.operator.rolling import inplace
from covey.operator.rolling.evacuating import find_evacuation
from covey.operator.rolling.layout import Rolling, refused, revision_left, roll
from covey.operator.rolling.leaving import Leaving, find_leaving
from covey.operator.rolling.pairing import with_pairs
from covey.operator.rolling.sets import find_released
from covey.operator.scaling.draining import drain, find_serving
from covey.operator.scaling.leading import unit_leaders
from covey.operator.scaling.scaler import find_scalers, scaler_actions
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed, number
from covey.operator.starting.order import Starting, find_starting
from covey.operator.starting.release import let_go, progress_of, taken_back
from covey.operator.terms.actions import Actions, DeleteObject, DeletePod, Note, Object
from covey.operator.terms.remark import Remark
from covey.operator.upkeep.drift import has_drifted, stamped
from covey.operator.upkeep.ending import find_ending
from covey.operator.upkeep.history import HISTORY, expired, to_mark, to_store
from covey.operator.upkeep.labels import find_relabelled
from covey.operator.upkeep.remake import find_remake, identity_of

#: Reasons of Events, by why pods go.
_REMOVED: Final = {"suspended": "Suspended", "rolled out": "RolledOut", "evacuated": "Evacuated"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to be done, and the decisions behind it that the status tells."""

    actions: Actions
    layout: Layout
    states: States
    #: Who is let go by the operator, and why others are kept.
    release: Release = field(default_factory=Release)
    #: Who waits for whom to start.
    starting: Starting = field(default_factory=Starting)
    #: The rollout that is on its way, and when to look at it again.
    rolling: Rolling | None = None
    #: The hash of the revision that it leaves.
    former: str = ""
    #: What else there is to tell, each as a condition of its own or as a reason of ``Degraded``.
    remarks: tuple[Remark, ...] = ()
    #: Seconds after which time alone changes something else.
    again: float | None = None
    #: Failures that are seen for the first time.
    failures: tuple[Failure, ...] = ()
    #: Units below their minimum, and what is given up of them.
    loss: GivenUp = field(default_factory=GivenUp)


def plan(verdict: Verdict, observed: Observed, before: Mapping[str, Any] | None = None) -> Plan:
    """Plan one resource.

    Args:
        verdict: what is kept up.
        observed: the snapshot; its time is the only clock.
        before: the status so far, which alone remembers how a rollout went.
    """
    inference, accepted, backend = verdict.inference, verdict.accepted, verdict.backend
    # 1. Nothing has been accepted yet: what runs stays as it is.
    if accepted is None or backend is None:
        return _stand_still(verdict, observed, before or {})
    suspended = inference.spec.suspend
    # 2. Which units and replicas, each of which revision: surplus goes, missing numbers are filled.
    running = running_revisions(observed, accepted.revision)
    states = replica_states(observed, accepted.revision, running)
    scale = Scale.of(inference.spec)

    def compiled(layout: Layout) -> Tree:
        return backend.compile(inference, layout=layout, revision=accepted.revision, levels=verdict.levels)

    leaving = find_leaving(inference.spec, observed)
    scalers = find_scalers(inference.spec, inference.metadata.name, observed, states, before or {})
    rolling = roll(
        inference.spec,
        accepted.revision,
        observed,
        states,
        running,
        refused(compiled, observed),
        before or {},
        scalers.totals,
        leaving,
    )
    layout, tree = rolling.layout, compiled(rolling.layout)
    # 3. What the API server would not change is made anew.
    remake = find_remake(backend, tree, observed, scale, states)
    if remake.unit is not None:
        tree = compiled(remake.rest(layout))
    tree = with_pairs(tree, inference.spec, accepted.revision, observed, states)
    # 4. Pods that no longer have a place go; replicas are completed and replaced.
    draining = drain(inference.spec, tuple(_surplus(tree, observed, _why(verdict, rolling, leaving))), observed)
    surplus = draining.delete
    # What has failed is judged by the restart policies, and waited for.
    failing = find_failing(
        inference, tree, observed, verdict.levels, reserves=can_reserve(backend.name), also=leaving.avoided
    )
    replicas, later = failing.applied(_replicas(inference, tree, observed, failing), inference, observed)
    loss = find_loss(inference, backend, scale, layout, states, observed, before or {})
    stranded = find_stranded(observed)
    lost = (*(item for part in replicas for item in part.delete), *loss.delete, *stranded)
    going = {item.pod.metadata.uid for item in lost}
    # 5. Objects that are missing or were edited are applied; those without a use are deleted.
    apply = tuple(tuple(_applied(level.objects, observed, remake.fixed)) for level in tree.levels)
    # 6. Pods are let go, or not made yet, where the backend's scheduler does not do that.
    release = backend.release(progress_of(inference, layout, states, observed))
    early = tuple(item for item in taken_back(release, observed) if item.pod.metadata.uid not in going)
    ending = find_ending(tree, observed, going | {item.pod.metadata.uid for item in (*surplus, *early)})
    not_yet = release.withheld | ending.slots | later.keys()
    starting = find_starting(inference.spec, states, observed)
    put_scalers, old_scalers = scaler_actions(tree.owner, scalers, observed)
    # 7. Replicas of another revision that keep their pods get other images.
    gone = going | {item.pod.metadata.uid for item in (*surplus, *early, *ending.delete)}
    exchanges = inplace.find_exchanges(tree.layout, observed, accepted.revision, gone)
    actions = Actions(
        annotate=failing.annotate,
        relabel=(
            *find_relabelled(tree, observed, going),
            *find_released(tree, observed, going),
            *(item for part in replicas for item in part.relabel),
            *unit_leaders(inference.spec, layout, observed),
            *inplace.find_closed(tree.layout, observed),
        ),
        drain=draining.mark,
        serve=tuple(find_serving(observed, draining.mark)),
        delete_pods=(*_once(*surplus, *lost), *early, *ending.delete),
        delete_objects=(
            *remake.objects,
            *_unused(backend, tree, observed),
            *old_scalers,
            *expired(observed, _history(inference)),
        ),
        # What is stored has been accepted by the API server, which is not asked about what is suspended.
        store=None if suspended else to_store(tree.owner, accepted, observed),
        # What has failed says a spec that is in order, and nobody while another is kept up.
        mark=tuple(to_mark(observed, verdict.wanted, failed=_gives_up(verdict, observed, rolling)))
        if verdict.problem is None
        else (),
        scalers=put_scalers,
        apply=apply,
        publish=tuple(_applied(tree.published, observed)),
        exchange=exchanges,
        create=tuple(item for part in replicas for item in part.create if item.slot not in not_yet),
        factory=tree.pods,
        ungate=tuple(
            item for item in (*let_go(release, observed), *starting.ungate) if item.pod.metadata.uid not in going
        ),
        notes=(
            *(remake.notes if surplus else ()),
            *remake.shared_notes,
            *draining.notes,
            *_scaled_down(surplus, remake.unit),
            *_created(observed, replicas, not_yet, rolling, leaving),
            *_replaced(replicas, not_yet),
            *failing.notes,
            *inplace.told(exchanges),
            *loss.notes,
            *lost_notes(stranded),
        ),
    )
    former = revision_left(accepted.revision, observed, running)
    remarks = (
        *loss.remarks,
        *find_evacuation(inference.spec, leaving, rolling),
        *failing.remarks,
        *scalers.remarks,
    )
    later_on = (failing.again, starting.again, leaving.again, draining.again, loss.again, *later.values())
    again = min((each for each in later_on if each is not None), default=None)
    return Plan(actions, layout, states, release, starting, rolling, former, remarks, again, failing.seen, loss)


def _once(*deletions: DeletePod) -> Iterator[DeletePod]:
    """Each pod once, for the first reason."""
    yield from {item.pod.metadata.uid: item for item in reversed(deletions)}.values()


def _why(verdict: Verdict, rolling: Rolling, leaving: Leaving) -> str:
    if verdict.inference.spec.suspend:
        return "suspended"
    if rolling.progress is None and leaving.places:
        return "evacuated"
    return "rolled out" if rolling.progress is not None else "scaled down"


def _history(inference: DisaggregatedInference) -> int:
    rollout = inference.spec.rollout
    return HISTORY if rollout is None or rollout.history_limit is None else rollout.history_limit


def _gives_up(verdict: Verdict, observed: Observed, rolling: Rolling) -> bool:
    """The rollout has failed, and there is a revision to go back to."""
    rollout = verdict.inference.spec.rollout
    if rolling.progress is None or not rolling.progress.failed or verdict.failed:
        return False
    goes_back = rollout is not None and rollout.on_failure is OnFailure.ROLLBACK
    return goes_back and revision_before(verdict.wanted, observed) is not None


def _stand_still(verdict: Verdict, observed: Observed, before: Mapping[str, Any]) -> Plan:
    """The decisions that a status needs, and nothing to do."""
    running = running_revisions(observed, verdict.wanted)
    states = replica_states(observed, verdict.wanted, running)
    existing = {number(owned.metadata, names.LABEL_UNIT) for owned in observed.objects.values()} | states.keys()
    inference = verdict.inference
    totals = find_scalers(inference.spec, inference.metadata.name, observed, states, before).totals
    chosen = roll(inference.spec, verdict.wanted, observed, states, running, totals=totals).layout
    layout = replace(chosen, units={unit: roles for unit, roles in chosen.units.items() if unit in existing})
    return Plan(Actions(), layout, states)


def _surplus(tree: Tree, observed: Observed, why: str) -> Iterator[DeletePod]:
    """Pods outside the desired layout."""
    wanted = set(tree.slots)
    for slot, pods in observed.pods.items():
        if slot not in wanted:
            yield from (DeletePod(pod, why) for pod in pods if pod.metadata.deletion_timestamp is None)
    yield from (DeletePod(pod, why) for pod in observed.strays if pod.metadata.deletion_timestamp is None)


def _replicas(
    inference: DisaggregatedInference, tree: Tree, observed: Observed, failing: Failing
) -> Iterator[ReplicaPlan]:
    planner = ReplicaPlanner(inference.metadata.name, observed)
    for (unit, role, replica), slots in groupby(tree.slots, key=lambda slot: (slot.unit, slot.role, slot.replica)):
        revision = tree.layout.units[unit][role][replica]
        yield planner.plan(tuple(slots), revision, failing.fates.get((unit, role, replica), NO_FATE))


def _applied(objects: Iterable[Object], observed: Observed, fixed: Collection[Identity] = ()) -> Iterator[Object]:
    for body in map(stamped, objects):
        identity = identity_of(body)
        owned = observed.objects.get(identity)
        missing = owned is None or (owned.metadata.deletion_timestamp is None and has_drifted(body, owned))
        if missing and identity not in fixed:
            yield body


def _unused(backend: Backend, tree: Tree, observed: Observed) -> Iterator[DeleteObject]:
    """Objects that are not wanted and that no pod and no group refers to any more."""
    wanted = {identity_of(body) for level in tree.levels for body in level.objects}
    wanted |= {identity_of(body) for body in tree.published}
    pods = tuple(observed.every_pod())
    # Pods that terminate still find each other.
    service = SERVICES.type
    used = {(service, pod.spec.subdomain or "") for pod in pods}
    used |= backend.in_use(observed.objects, pods)
    for identity, owned in observed.objects.items():
        if identity not in wanted and identity not in used and owned.metadata.deletion_timestamp is None:
            yield DeleteObject(*identity, owned.metadata.uid)


def _scaled_down(gone: tuple[DeletePod, ...], remade: int | None) -> Iterator[Note]:
    surplus = tuple(item for item in gone if _unit(item) != str(remade))
    replicas = {(_unit(item), _label(item, names.LABEL_ROLE), _label(item, names.LABEL_REPLICA)) for item in surplus}
    counts = sorted(Counter(role for _, role, _ in replicas).items())
    if counts:
        reason = _REMOVED.get(surplus[0].why, "ScaledDown")
        message = f"removing {', '.join(f'{_replica_count(count)} of {role}' for role, count in counts)}"
        yield Note(reason, message, "ScaleDown")


def _created(
    observed: Observed,
    replicas: tuple[ReplicaPlan, ...],
    not_yet: Collection[Slot],
    rolling: Rolling,
    leaving: Leaving,
) -> Iterator[Note]:
    """Replicas that are new, as against replaced: one note for all roles."""
    new = {
        (item.slot.unit, item.slot.role, item.slot.replica)
        for part in replicas
        for item in part.create
        if not item.replaces and item.slot not in not_yet
    }
    counts = sorted(Counter(role for _, role, _ in new).items())
    if counts:
        message = f"creating {', '.join(f'{_replica_count(count)} of {role}' for role, count in counts)}"
        grown = bool(observed.pods)
        if rolling.progress is not None:
            yield Note("RollingOut", f"{message} of revision {rolling.progress.target}", "Rollout")
            return
        if leaving.places:
            yield Note("Evacuating", f"{message}, since nodes are to be empty", "Evacuate")
            return
        yield Note("ScaledUp" if grown else "Created", message, "ScaleUp" if grown else "Create")


def _replaced(replicas: tuple[ReplicaPlan, ...], not_yet: Collection[Slot]) -> Iterator[Note]:
    """One note for all replicas of a role that share a fate: the loss of a rack must not use up the Events."""
    fates: dict[tuple[str, bool, bool], list[ReplicaPlan]] = {}
    for part in replicas:
        released = any(podstate.is_released(item.pod) for item in part.delete)
        again = next((item.slot.role for item in part.create if item.replaces and item.slot not in not_yet), None)
        if again is not None:
            fates.setdefault((again, released, part.recreated), []).append(part)
    for (role, released, recreated), parts in fates.items():
        first = parts[0].create[0].slot
        several = f"{len(parts)} replicas of {role}"
        where = f"replica {first.replica} of {role} in unit {first.unit}" if len(parts) == 1 else several
        pods = sum(item.replaces for part in parts for item in part.create)
        if released:
            yield Note("Released", _released(where, parts), "Replace")
        elif recreated:
            lost = "a pod of it was lost; the whole replica is recreated"
            cause = lost if len(parts) == 1 else "a pod of each was lost; they are recreated whole"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace", warning=True)
        else:
            cause = "its pod is replaced" if pods == 1 else f"{pods} pods are replaced"
            yield Note("ReplicaReplaced", f"{where}: {cause}", "Replace")


def _released(where: str, parts: list[ReplicaPlan]) -> str:
    pods = [item.pod for part in parts for item in part.delete if podstate.is_released(item.pod)]
    reasons = ", ".join(sorted({pod.metadata.annotation(names.ANNOTATION_RELEASE) or "" for pod in pods} - {""}))
    return f"{len(pods)} pods of {where} gave up their nodes: {reasons}"


def _replica_count(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _label(item: DeletePod, name: str) -> str:
    return item.pod.metadata.label(name) or "?"


def _unit(item: DeletePod) -> str:
    return _label(item, names.LABEL_UNIT)
