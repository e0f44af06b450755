"""Objects of a resource: those that are not as they are wanted, those that nothing refers to, and those at their end.

ControllerRevisions: one is written for every spec that has been accepted. Of those that differ in live fields only, the
newest is kept; of the others as many as people look back at, and those that some pod was made from.

A group that is being deleted, by anybody, is neither applied nor taken for there. Where the API server keeps it as long
as pods are of it, they decide: pods with nodes go on, and others may join them; pods without any go, so that it can be
made again. Until then no pod of it is created.

Drift: server-side apply finds it by applying again; comparing first saves a request for every object in every pass.

The budget that selects each pod is that of the namespace, or the one that a former release made for the resource. Never
both, at any moment, so the steps stand on what is stored and not on what was asked for:

1. The namespace has its budget. Until then the former one stays as it is.
2. The former budget leaves alone the pods that have the label.
3. Pods get the label, few at a time: each goes from one budget to the other with one write. New pods are born with it.
4. No live pod lacks the label: the former budget is wanted no more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.backends import Backend, Identity, Owned
from covey.compile import Owner, ReplicaKey, Slot, Tree, identity_of, network, pod_budget, type_of
from covey.compile.groups import CreationLevel
from covey.compile.identity import short_hash
from covey.compile.network import ADDRESSED
from covey.compile.revision import Revision
from covey.kube.resources import INFERENCE_POOLS, POD_DISRUPTION_BUDGETS, SERVICES
from covey.model import podstate
from covey.operator.model.accepted import Accepted
from covey.operator.model.actions import Actions, DeleteObject, DeletePod, Mark, Object, Relabel
from covey.operator.model.capacity import ASK_KINDS
from covey.operator.model.compute_domains import domain_of, find_joined
from covey.operator.model.objects import ANNOTATION_APPLIED, ANNOTATION_NUMBER, CONTROLLER_REVISIONS
from covey.operator.model.observed import SHARED_BUDGET, Observed
from covey.operator.model.outcome import Outcome, Remark

#: A group is being deleted for long, and pods wait for its end.
REASON_NOT_GONE: Final = "GroupNotGone"
#: Seconds for which that is told to nobody.
_ENDS_SOON: Final = 60.0

#: Revisions that are kept for people to go back to, where ``spec.rollout.historyLimit`` says nothing.
HISTORY: Final = 10


def to_store(owner: Owner, accepted: Accepted, observed: Observed) -> Object | None:
    """The ControllerRevision to write; None when the newest one says the same."""
    newest = observed.in_force
    known = newest.record.accepted if newest is not None and newest.record is not None else None
    if known is not None and known.is_same(accepted):
        return None
    data = accepted.as_data()
    # Named by what former releases wrote, nulls and all: a spec that comes back finds the record that they made of it.
    named = {**data, "spec": accepted.content, "topology": data["topology"] or None}
    digest = short_hash(json.dumps(named, sort_keys=True, separators=(",", ":")), 10)
    shown = newest.shown if newest else 0
    if known is None or not known.revision.is_same(accepted.revision):
        shown += 1
    metadata = owner.metadata(f"{owner.name}-{digest}", {names.LABEL_REVISION: accepted.revision.hash})
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {**metadata, "annotations": {ANNOTATION_NUMBER: str(shown)}},
        "data": data,
        "revision": newest.number + 1 if newest else 1,
    }


def to_mark(observed: Observed, wanted: Revision, complete: str, *, failed: bool) -> Iterator[Mark]:
    """Marks that ControllerRevisions lack, or have for nothing: only what is still asked for can have failed.

    A revision that was complete is marked when another one is asked for: before that nobody goes back to it.

    Args:
        observed: the snapshot.
        wanted: what the spec asks for.
        complete: the hash of the revision that was complete last.
        failed: its rollout is given up now.
    """
    completed = {
        complete,
        *(record.record.revision.hash for record in observed.revisions if record.record and record.completed),
    }
    for stored in observed.revisions:
        if stored.record is None:
            continue
        revision = stored.record.revision
        asked = revision.is_same(wanted)
        has_failed = asked and (failed or stored.failed)
        was_complete = stored.completed or (revision.hash in completed and not asked)
        if (has_failed, was_complete) != (stored.failed, stored.completed):
            yield Mark(stored.name, stored.uid, failed=has_failed, completed=was_complete)


def find_expired(observed: Observed, limit: int) -> Iterator[DeleteObject]:
    """Old revisions that no pod is of: for each role's pods the newest that records theirs is enough.

    One that cannot be read is left alone: another release may know what it says.
    """
    newest_first = sorted(observed.revisions, key=lambda stored: stored.number, reverse=True)
    named: set[tuple[str | None, str | None]] = {
        (pod.metadata.label(names.LABEL_ROLE), pod.metadata.label(names.LABEL_REVISION)) for pod in observed.every_pod()
    }
    seen: set[str] = set()
    #: Revisions of which a newer record says that they were complete.
    completed: set[str] = set()
    for stored in newest_first:
        if stored.record is None:
            continue
        revision = stored.record.revision
        tells = named & {(name, role.hash) for name, role in revision.roles.items()}
        named -= tells
        # The one in force is no history.
        told_twice = revision.hash in seen and (not stored.completed or revision.hash in completed)
        if told_twice or (len(seen) > limit and not tells and not stored.failed):
            yield DeleteObject(CONTROLLER_REVISIONS.type, stored.name, stored.uid)
        seen.add(revision.hash)
        completed |= {revision.hash} if stored.completed else set()


@dataclass(frozen=True, slots=True)
class GroupsEnding:
    """Places whose pods wait for a group of theirs to go; the pods that keep it for nothing are deleted."""

    slots: frozenset[Slot] = frozenset()
    outcome: Outcome = field(default_factory=Outcome)


def find_ending(tree: Tree, observed: Observed, going: Collection[str]) -> GroupsEnding:
    """Find places that wait for groups that are being deleted, and pods that have to give way to them.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that are deleted in this pass.
    """
    ending = {identity for identity, owned in observed.objects.items() if owned.metadata.deletion_timestamp is not None}
    if not ending:
        return GroupsEnding()
    places: dict[Identity, list[Slot]] = {}
    for slot in tree.slots:
        for needed in ending.intersection((tree.pods.anchor(slot), domain_of(tree, slot))):
            places.setdefault(needed, []).append(slot)
    waiting = {needed: slots for needed, slots in places.items() if not _is_kept(slots, observed, going)}
    pods = [pod for slots in waiting.values() for slot in slots for pod in observed.pods.get(slot, ())]
    since = {needed: core.seconds(observed.objects[needed].metadata.deletion_timestamp) or 0.0 for needed in waiting}
    late = sorted(needed for needed, begun in since.items() if observed.now >= begun + _ENDS_SOON)
    return GroupsEnding(
        frozenset(slot for slots in waiting.values() for slot in slots),
        Outcome(
            Actions(
                delete_pods=tuple(
                    DeletePod(pod, "its group is deleted")
                    for pod in pods
                    if not podstate.is_terminating(pod) and pod.metadata.uid not in going
                )
            ),
            tuple(_describe_late(*needed) for needed in late),
            min(
                (begun + _ENDS_SOON - observed.now for needed, begun in since.items() if needed not in late),
                default=None,
            ),
        ),
    )


def _describe_late(kind: str, name: str) -> Remark:
    what = f"{kind.partition('.')[0]} {name} is being deleted and does not go, and its pods wait for that"
    remedy = f"have whoever set its finalizers (`kubectl get {kind} {name} -o yaml`) take them away"
    return Remark(names.DEGRADED, REASON_NOT_GONE, f"{what}: {remedy}")


def _is_kept(slots: Collection[Slot], observed: Observed, going: Collection[str]) -> bool:
    """Tell whether a pod of a group has a node, and stays."""
    for slot in slots:
        pod = observed.current.get(slot)
        if pod is not None and podstate.is_bound(pod) and pod.metadata.uid not in going:
            return True
    return False


def add_digest(body: Mapping[str, Any]) -> dict[str, Any]:
    """Add to an object a digest of itself: it is then ready to be applied."""
    digest = short_hash(json.dumps(body, sort_keys=True, separators=(",", ":")), 12)
    annotations = {**body["metadata"].get("annotations", {}), ANNOTATION_APPLIED: digest}
    metadata = {**body["metadata"], "annotations": annotations}
    return {**body, "metadata": metadata}


def has_drifted(wanted: Mapping[str, Any], stored: Owned) -> bool:
    """Tell whether a field of ours was changed by somebody, or what we want has changed since it was applied.

    Args:
        wanted: the object as ``add_digest`` gives it.
        stored: the object as stored; fields that others added are their own business.
    """
    metadata = wanted["metadata"]
    return not (
        _contains(stored.metadata.annotations or {}, metadata["annotations"])
        and _contains(stored.metadata.labels or {}, metadata["labels"])
        and _contains(stored.spec, wanted.get("spec", {}))
    )


def _contains(stored: object, wanted: object) -> bool:
    # Both come from JSON, or are about to. Most are equal, which is found without a look at each field.
    if stored == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            key in stored and _contains(stored[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(_contains(one, other) for one, other in zip(stored, wanted, strict=True))
        )
    return False


_LWS: Final = frozenset(names.LWS_LABELS)
_ASKED: Final = frozenset(kind.type for kind in (*ASK_KINDS, INFERENCE_POOLS))  # Their features delete them.


def find_relabelled(tree: Tree, observed: Observed, going: Collection[str], held: Collection[str]) -> Iterator[Relabel]:
    """Labels to change on the pods that stay.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
        held: roles of which it is decided elsewhere who takes requests.
    """
    # Roles with a Service that takes requests: pods of former releases get its label when there is one.
    selected = frozenset(body["metadata"]["labels"][names.LABEL_ROLE] for body in tree.published)
    for slot in tree.slots:
        pod = observed.current.get(slot)
        if pod is None or pod.metadata.uid in going:
            continue
        labels = pod.metadata.labels or {}
        wanted: dict[str, str | None] = {**tree.pods.labels(slot), names.LABEL_ADDRESS: ADDRESSED}
        if names.LABEL_DRAINING in labels:
            wanted[names.LABEL_ENDPOINT] = None
        elif slot.role not in held and (slot.role in selected or names.LABEL_ENDPOINT in labels):
            wanted[names.LABEL_ENDPOINT] = ADDRESSED
        if not _LWS.isdisjoint(labels):
            wanted |= _withdrawn(tree, slot, labels, wanted)
        wanted |= tree.pods.router_labels(slot.role, labels)
        notes = tree.pods.router_annotations(slot.role)
        wrong = {key: value for key, value in wanted.items() if labels.get(key) != value}
        stale = {key: value for key, value in notes.items() if pod.metadata.annotation(key) != value}
        if wrong or stale:
            yield Relabel(pod, wrong, stale)


def _withdrawn(tree: Tree, slot: Slot, labels: Mapping[str, str], wanted: Collection[str]) -> dict[str, str | None]:
    """Labels of LeaderWorkerSet's that are no longer asked for; what the template says of them holds again."""
    if names.LABEL_LWS_NAME in wanted:
        return {}
    ours, own = tree.pods.lws_labels(slot), tree.pods.template_labels(slot)
    return {key: own.get(key) for key, value in ours.items() if labels.get(key) == value}


@dataclass(frozen=True, slots=True)
class Deviation:
    """An object that has to be applied: as it is wanted, and as it is stored (None where it is missing)."""

    identity: Identity
    wanted: Mapping[str, object]
    stored: Owned | None


def find_deviations(objects: Iterable[Object], observed: Observed) -> tuple[Deviation, ...]:
    """The objects that are missing, or not as they were applied."""
    return tuple(_deviations(objects, observed))


def _deviations(objects: Iterable[Object], observed: Observed) -> Iterator[Deviation]:
    for wanted in objects:
        identity = identity_of(wanted)
        stored = observed.objects.get(identity) or observed.shared.get(identity)
        spec = dict(wanted.get("spec", {}))
        if stored is not None and "ports" not in stored.spec and network.has_ports_of_containers(wanted):
            # Former releases made it without ports, and what runs behind it goes on as it is.
            spec.pop("ports", None)
        body = add_digest({**wanted, "spec": spec} if spec else wanted)
        if stored is None or has_drifted(body, stored):
            yield Deviation(identity, body, stored)


def find_objects(
    backend: Backend,
    tree: Tree,
    observed: Observed,
    deviations: Iterable[tuple[Deviation, ...]],
    fixed: Collection[Identity],
) -> Outcome:
    """Apply objects that are missing or were edited; delete those without a use.

    Args:
        backend: knows which groups are in use.
        tree: what is wanted.
        observed: the snapshot.
        deviations: of each level of the tree.
        fixed: what cannot be changed in place.
    """
    return Outcome(
        Actions(
            apply=tuple(tuple(_with_fixed_fields(backend, _objects_to_apply(level, fixed))) for level in deviations),
            publish=_objects_to_apply(find_deviations(tree.published, observed)),
            delete_objects=tuple(_find_unused(backend, tree, observed)),
        )
    )


def _objects_to_apply(deviations: Iterable[Deviation], fixed: Collection[Identity] = ()) -> tuple[Object, ...]:
    """Objects that can be applied now: one that is being deleted is created again when it is gone."""
    return tuple(
        deviation.wanted
        for deviation in deviations
        if deviation.identity not in fixed
        if deviation.stored is None or deviation.stored.metadata.deletion_timestamp is None
    )


def _with_fixed_fields(backend: Backend, bodies: Iterable[Object]) -> Iterator[Object]:
    """Add a note of the fields that Covey wrote and nobody may change. A stored object without it has not drifted."""
    kinds = {kind.type for kind in backend.kinds()}
    for body in bodies:
        written = backend.fixed_fields(body) if type_of(body) in kinds else ""
        if not written:
            yield body
            continue
        metadata = body["metadata"]
        annotations = {**metadata["annotations"], names.ANNOTATION_FIXED: written}
        yield {**body, "metadata": {**metadata, "annotations": annotations}}


def _find_unused(backend: Backend, tree: Tree, observed: Observed) -> Iterator[DeleteObject]:
    """Objects that are not wanted and that no pod and no group refers to any more."""
    wanted = {identity_of(body) for level in tree.levels for body in level.objects}
    wanted |= {identity_of(body) for body in tree.published}
    pods = tuple(observed.every_pod())
    used = {(SERVICES.type, pod.spec.subdomain or "") for pod in pods}
    used |= find_joined(observed, pods) if tree.pods.interconnect else set()
    used |= backend.in_use(observed.objects, pods) | {
        identity for identity in observed.objects if identity[0] in _ASKED
    }
    for identity, owned in observed.objects.items():
        if identity not in wanted and identity not in used and owned.metadata.deletion_timestamp is None:
            yield DeleteObject(*identity, owned.metadata.uid)


def with_former_budget(tree: Tree, spec: DisaggregatedInferenceSpec, observed: Observed) -> Tree:
    """The tree with the budget of a former release, as long as pods need it.

    It comes before the namespace's, which may select some of its pods already: a former release has been back. Pods are
    made without the label as long as they would have both.
    """
    former = _former(tree, observed)
    if former is None:
        return tree
    if not pod_budget.is_narrow(former.spec):
        tree = replace(tree, pods=tree.pods.without_protection())
    if not pod_budget.needs_budget(spec):
        return tree
    roles = pod_budget.gang_roles(spec)
    pods = [
        pod
        for pod in observed.every_pod()
        if not podstate.is_dead(pod) and pod.metadata.label(names.LABEL_ROLE) in roles
    ]
    is_shared = SHARED_BUDGET in observed.shared
    if is_shared and all(map(_is_protected, pods)):
        return tree
    narrow = is_shared or any(map(_is_protected, pods))
    level = CreationLevel("former budget", (pod_budget.former_budget(tree.owner, roles, narrow=narrow),))
    return replace(tree, levels=(level, *tree.levels))


def find_unprotected(
    tree: Tree, observed: Observed, going: Collection[str], idle: Collection[ReplicaKey] = ()
) -> Iterator[Relabel]:
    """Find pods that stay and whose label for the namespace's budget is missing, wrong or superfluous.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
        idle: replicas (unit, role, number) whose pods may be evicted.
    """
    former = _former(tree, observed)
    if former is not None and not pod_budget.is_narrow(former.spec):
        return
    may_have_it = former is None or SHARED_BUDGET in observed.shared
    for slot in tree.slots:
        pod = observed.current.get(slot)
        if pod is None or pod.metadata.uid in going:
            continue
        protection = tree.pods.protection(slot)
        if protection and (slot.unit, slot.role, slot.replica) in idle:
            protection = pod_budget.IDLE
        wanted = protection.get(names.LABEL_GANG)
        if pod.metadata.label(names.LABEL_GANG) != wanted and (may_have_it or wanted is None):
            yield Relabel(pod, {names.LABEL_GANG: wanted})


def _former(tree: Tree, observed: Observed) -> Owned | None:
    return observed.objects.get((POD_DISRUPTION_BUDGETS.type, pod_budget.former_name(tree.owner.name)))


def _is_protected(pod: core.Pod) -> bool:
    return pod.metadata.label(names.LABEL_GANG) is not None
