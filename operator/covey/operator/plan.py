"""The plan of a resource: actions that lead from its observed to its desired state. Pure: no I/O, no clock.

Done once more on its own result, a plan is empty; done after a crash between any two of its actions, it finishes
what was begun. Both are tested as properties.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import OnFailure
from covey.backends import Release
from covey.compile import ReplicaKey, Scale, Slot, Tree
from covey.model import podstate
from covey.operator.desired import Desired, desire
from covey.operator.feature import (
    Changes,
    Completion,
    Features,
    PlanInput,
    StatusPart,
    Unplaceable,
    at,
    begin,
    find_intent,
    find_status,
)
from covey.operator.intent import Intent
from covey.operator.model.accepted import Accepted
from covey.operator.model.actions import Actions, CreatePod, DeletePod, Note, Relabel
from covey.operator.model.observed import Observed, number
from covey.operator.model.outcome import Outcome, Remark, sum_outcomes
from covey.operator.model.recorded_status import read_complete
from covey.operator.objects.apply import find_objects
from covey.operator.objects.ending_groups import find_ending
from covey.operator.objects.former_budget import find_unprotected
from covey.operator.objects.pod_labels import find_relabelled
from covey.operator.objects.revisions import HISTORY, find_expired, to_mark, to_store
from covey.operator.release import find_released, progress_of
from covey.operator.replicas.creation_order import order_creations
from covey.operator.replicas.progress import replica_states, running_revisions
from covey.operator.replicas.replace import Fate, ReplicaActions, plan_replicas
from covey.operator.replicas.replica_notes import describe_growth, removal_notes, replacement_notes
from covey.operator.unsupported import find_unsupported
from covey.operator.validation import AcceptedSpec, revision_before
from covey.rollout.progress import RolloutProgress

_UNPUBLISHED: Final = {names.LABEL_ADDRESS: None, names.LABEL_ENDPOINT: None}
#: Reasons of Events, by why pods go.
_REMOVED: Final = {
    "suspended": "Suspended",
    "rolled out": "RolledOut",
    "evacuated": "Evacuated",
    "made anew": "UnitRemade",
    "preempted": "Preempted",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions to take, and the decisions behind them that the status reports."""

    actions: Actions
    #: What is wanted.
    intent: Intent
    #: Pods that the operator lets go.
    release: Release = field(default_factory=Release)
    #: Remarks, each as a condition of its own or as a reason of ``Degraded``.
    remarks: tuple[Remark, ...] = ()
    #: Seconds after which time alone changes something else.
    again: float | None = None
    unplaceable: Unplaceable = field(default_factory=Unplaceable)
    #: What features say in the status and in metrics.
    status: StatusPart = field(default_factory=StatusPart)


def plan(
    verdict: AcceptedSpec, observed: Observed, before: Mapping[str, Any] | None = None, *, features: Features
) -> Plan:
    """Plan one resource.

    Args:
        verdict: what is kept up.
        observed: the snapshot; its time is the only clock.
        before: the status so far, which alone remembers how a rollout went.
        features: asked in this order.
    """
    first = _plan(verdict, observed, before or {}, features)
    if not first.unplaceable.replicas:
        return first
    # A replica that cannot be had waits like one that no node has: a rollout goes on without a surge.
    since = _limited_since(before or {}, observed.now)
    return _plan(
        verdict, replace(observed, unfit=dict.fromkeys(first.unplaceable.replicas, since)), before or {}, features
    )


def _plan(verdict: AcceptedSpec, observed: Observed, before: Mapping[str, Any], features: Features) -> Plan:
    inference, accepted, backend = verdict.inference, verdict.accepted, verdict.backend
    # 1. Nothing has been accepted yet: what runs stays as it is.
    if accepted is None or backend is None:
        return _stand_still(verdict, observed, before, features)
    # 2. What there shall be: units and replicas, each of its revision; their objects and pods.
    asked, given = begin(features, PlanInput(inference, accepted.revision, backend, verdict.levels, observed, before))
    observed = given.observed
    want = desire(given, asked)
    intent, tree = want.intent, want.tree
    # 3. Pods that no longer have a place go, gracefully.
    surplus = Outcome(Actions(delete_pods=tuple(_surplus(tree, observed, partial(_why, verdict, intent)))))
    for feature in at(asked, "remove"):
        surplus = feature.remove(surplus, intent)
    # 4. Replicas are completed: what is lost is made again.
    fates: dict[ReplicaKey, Fate] = {}
    for feature in at(asked, "judge"):
        fates |= feature.judge(intent, tree)
    completion = Completion(tuple(plan_replicas(inference.metadata.name, tree, observed, fates)))
    for feature in at(asked, "complete"):
        completion = feature.complete(completion, intent)
    replicas = completion.replicas
    lost = _uids(_deletions(replicas), completion.outcome)
    # 5. Some pods wait: for their minimum, for their group that is being deleted, for others to start.
    release = backend.release(progress_of(inference, intent.layout, intent.states, observed))
    released = find_released(release, observed)
    ending = find_ending(tree, observed, lost | _uids(surplus, released))
    emptying = {slot for slot in tree.slots if slot.unit in intent.emptying} if intent.emptying else set()
    not_yet = release.withheld | ending.slots | completion.held | emptying
    missing = [creation for part in replicas for creation in part.create if creation.slot not in not_yet]
    changes = Changes(intent, tree, order_creations(missing, tree, Scale.of(inference.spec), observed))
    for feature in at(asked, "amend"):
        changes = feature.amend(changes)
    # 6. All that comes of it. Of remarks and of deletions of a pod the first counts.
    changes = replace(changes, gone=lost | _uids(surplus, released, ending.outcome))
    total = sum_outcomes(
        (
            surplus,
            _join_replica_plans(replicas, changes.create, tree),
            completion.outcome,
            released,
            ending.outcome,
            *(feature.outcome(changes) for feature in at(asked, "outcome")),
            find_unsupported(features, given, intent),
            find_objects(backend, changes.tree, observed, want.deviations, intent.fixed),
            _labels(want, observed, lost, changes.routed),
            _history(verdict, accepted, want, observed, read_complete(before)),
            _scale_events(intent, observed, surplus.actions.delete_pods, replicas, changes.create),
        )
    )
    return Plan(
        total.actions,
        intent,
        release=release,
        remarks=total.remarks,
        again=total.again,
        unplaceable=changes.unplaceable,
        status=find_status(asked, intent),
    )


def _limited_since(before: Mapping[str, Any], now: float) -> float:
    """Read since when quotas have had no room: all that is remembered of it stands in the status."""
    limited = (
        core.seconds(condition["lastTransitionTime"])
        for condition in before.get("conditions") or ()
        if condition["type"] == names.QUOTA_LIMITED and condition["status"] == "True"
    )
    since = next(limited, None)
    return now if since is None else since


def _stand_still(verdict: AcceptedSpec, observed: Observed, before: Mapping[str, Any], features: Features) -> Plan:
    """A plan without actions, with the decisions that the status needs."""
    running = running_revisions(observed, verdict.wanted)
    states = replica_states(observed, verdict.wanted, running)
    existing = {number(owned.metadata, names.LABEL_UNIT) for owned in observed.objects.values()} | states.keys()
    given = PlanInput(verdict.inference, verdict.wanted, verdict.backend, verdict.levels, observed, before, stands=True)
    asked = [kind(given) for kind in features if kind.applies(given)]
    intent = find_intent(asked, Intent(running, states))
    units = {unit: roles for unit, roles in intent.layout.units.items() if unit in existing}
    intent = replace(intent, layout=replace(intent.layout, units=units))
    return Plan(Actions(), intent, status=find_status(asked, intent))


def _surplus(tree: Tree, observed: Observed, why: Callable[[Slot | None, core.Pod], str]) -> Iterator[DeletePod]:
    """Delete pods outside the desired layout."""
    wanted = set(tree.slots)
    for slot, pods in observed.pods.items():
        if slot not in wanted:
            yield from (DeletePod(pod, why(slot, pod)) for pod in pods if not podstate.is_terminating(pod))
    yield from (DeletePod(pod, why(None, pod)) for pod in observed.strays if not podstate.is_terminating(pod))


def _why(verdict: AcceptedSpec, intent: Intent, slot: Slot | None, pod: core.Pod) -> str:
    """Reason for the deletion of a pod that is outside the layout."""
    unit = slot.unit if slot is not None else None
    if verdict.inference.spec.suspend:
        return "suspended"
    # What is marked and not whole any more goes on, whatever has become of the claim.
    if podstate.claimed_by(pod) or (slot is not None and slot[:3] in intent.preempted):
        return "preempted"
    move = intent.move
    if move is not None and move.is_remake and move.unit == unit:
        return "made anew"
    if unit not in intent.layout.units and not (move is not None and move.unit == unit):
        return "scaled down"
    if intent.progress is not None:
        return "rolled out"
    return "evacuated" if intent.leaving.places else "scaled down"


def _deletions(replicas: Iterable[ReplicaActions]) -> Outcome:
    return Outcome(Actions(delete_pods=tuple(item for part in replicas for item in part.delete)))


def _uids(*outcomes: Outcome) -> frozenset[str]:
    """UIDs of the pods that these outcomes delete."""
    return frozenset(deletion.pod.metadata.uid for outcome in outcomes for deletion in outcome.actions.delete_pods)


def _join_replica_plans(replicas: tuple[ReplicaActions, ...], create: tuple[CreatePod, ...], tree: Tree) -> Outcome:
    """Join the plans of single replicas; ``create`` are the pods of them that are created now."""
    return Outcome(
        Actions(
            relabel=tuple(item for part in replicas for item in part.relabel),
            delete_pods=_deletions(replicas).actions.delete_pods,
            create=create,
            factory=tree.pods,
            notes=tuple(replacement_notes(replicas, {item.slot for item in create})),
        )
    )


def _labels(want: Desired, observed: Observed, lost: Collection[str], routed: Collection[str]) -> Outcome:
    """Relabel pods that stay."""
    # Two pods would have one address.
    former = (Relabel(pod, _UNPUBLISHED) for pod in observed.former)
    protect = tuple(find_unprotected(want.tree, observed, lost, want.intent.leaving.idle))
    edited = (*former, *find_relabelled(want.tree, observed, lost, routed))
    return Outcome(Actions(relabel=edited, protect=protect))


def _history(verdict: AcceptedSpec, accepted: Accepted, want: Desired, observed: Observed, complete: str) -> Outcome:
    """Write, mark and delete ControllerRevisions."""
    rollout, suspended = verdict.inference.spec.rollout, verdict.inference.spec.suspend
    limit = HISTORY if rollout is None or rollout.history_limit is None else rollout.history_limit
    marks = to_mark(observed, verdict.wanted, complete, failed=_gives_up(verdict, observed, want.intent.progress))
    return Outcome(
        Actions(
            # What is stored has been accepted by the API server, which is not asked about what is suspended.
            store=None if suspended else to_store(want.tree.owner, accepted, observed),
            # What has failed says a spec that is in order, and nobody while another is kept up.
            mark=tuple(marks) if verdict.problem is None else (),
            delete_objects=tuple(find_expired(observed, limit)),
        )
    )


def _gives_up(verdict: AcceptedSpec, observed: Observed, progress: RolloutProgress | None) -> bool:
    """Tell whether the rollout has failed and is rolled back, to a revision that exists."""
    rollout = verdict.inference.spec.rollout
    if progress is None or not progress.failed or verdict.failed:
        return False
    goes_back = rollout is not None and rollout.on_failure is OnFailure.ROLLBACK
    return goes_back and revision_before(verdict.wanted, observed) is not None


def _scale_events(
    intent: Intent,
    observed: Observed,
    surplus: tuple[DeletePod, ...],
    replicas: tuple[ReplicaActions, ...],
    create: tuple[CreatePod, ...],
) -> Outcome:
    """Events about replicas that are created and deleted."""
    notes: list[Note] = []
    for why in dict.fromkeys(deletion.why for deletion in surplus):
        gone = [deletion for deletion in surplus if deletion.why == why]
        notes += removal_notes(gone, _REMOVED.get(why, "ScaledDown"), but=intent.taken_down)
    growth = describe_growth(replicas, {item.slot for item in create})
    if growth and (note := _grown(growth, intent, observed)):
        notes.append(note)
    return Outcome(Actions(notes=tuple(notes)))


def _grown(growth: str, intent: Intent, observed: Observed) -> Note | None:
    """The Event about new replicas, whose reason says why there are more; none of the first ones, which everybody expects."""
    if intent.progress is not None:
        return Note("RollingOut", f"{growth} of revision {intent.progress.target}", "Rollout")
    move = intent.move
    if move is not None and move.is_remake:
        return Note("UnitRemade", f"{growth}, to take the place of unit {move.unit}", "Remake")
    if intent.leaving.places:
        return Note("Evacuating", f"{growth}, since nodes are to be empty", "Evacuate")
    return Note("ScaledUp", growth, "ScaleUp") if observed.pods else None
