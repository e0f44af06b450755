"""Objects of a resource that are missing or not as they are wanted, and those that nothing refers to any more."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from covey.api import constants as names
from covey.backends import Backend, Identity, Owned
from covey.compile import Tree, identity_of, network, type_of
from covey.kube.resources import INFERENCE_POOLS, SERVICES
from covey.operator.model.actions import Actions, DeleteObject, Object
from covey.operator.model.capacity import ASK_KINDS
from covey.operator.model.compute_domains import find_joined
from covey.operator.model.objects import ANNOTATION_APPLIED
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.objects.drift import add_digest, find_difference, has_drifted

#: A field is changed by somebody whenever it was applied.
REASON_REWRITTEN: Final = "FieldRewritten"

_ASKED: Final = frozenset(kind.type for kind in (*ASK_KINDS, INFERENCE_POOLS))  # Their features delete them.


@dataclass(frozen=True, slots=True)
class Deviation:
    """An object that has to be applied: as it is wanted, and as it is stored (None where it is missing)."""

    identity: Identity
    wanted: Object
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
    levels, published = [*deviations], find_deviations(tree.published, observed)
    changeable = (each for each in (*chain.from_iterable(levels), *published) if each.identity not in fixed)
    undone = find_undone(changeable, observed)
    left, reported = {*fixed, *undone}, report_undone(undone.values(), observed)
    actions = Actions(
        apply=tuple(tuple(_with_fixed_fields(backend, find_applicable(level, left))) for level in levels),
        publish=find_applicable(published, left),
        delete_objects=tuple(_find_unused(backend, tree, observed)),
        ask=tuple(tuple(_with_fixed_fields(backend, level)) for level in reported.actions.ask),
    )
    return Outcome(actions, reported.remarks, reported.again)


def find_applicable(deviations: Iterable[Deviation], left: Collection[Identity] = ()) -> tuple[Object, ...]:
    """Objects that can be applied now, but for those that are left: one that is being deleted is created again when it is gone."""
    return tuple(
        deviation.wanted
        for deviation in deviations
        if deviation.identity not in left
        if deviation.stored is None or deviation.stored.metadata.deletion_timestamp is None
    )


def find_undone(deviations: Iterable[Deviation], observed: Observed) -> dict[Identity, Deviation]:
    """Find the objects that were applied as they are wanted, again and again, and are not so."""
    return {deviation.identity: deviation for deviation in deviations if _is_undone(deviation, observed)}


def _is_undone(deviation: Deviation, observed: Observed) -> bool:
    last, stored = observed.applied.get(deviation.identity), deviation.stored
    return (
        last is not None
        and last.is_undone
        and stored is not None
        and stored.metadata.uid == last.result.uid
        and stored.metadata.deletion_timestamp is None
        and deviation.wanted["metadata"]["annotations"][ANNOTATION_APPLIED] == last.digest
    )


def report_undone(undone: Iterable[Deviation], observed: Observed) -> Outcome:
    """Report objects that are not as they were applied, and apply those again whose time has come: nothing waits for them."""
    remarks, retried, due = list[Remark](), list[Object](), list[float]()
    for deviation in undone:
        last = observed.applied[deviation.identity]
        if observed.now >= last.due:
            retried.append(deviation.wanted)
        else:
            due.append(last.due - observed.now)
        if deviation.stored is not None:
            remarks.append(_describe_undone(deviation.wanted, deviation.stored))
    return Outcome(Actions(ask=(tuple(retried),) if retried else ()), tuple(remarks), min(due, default=None))


def _describe_undone(wanted: Object, stored: Owned) -> Remark:
    path, ours, theirs = find_difference(wanted, stored)
    what = f"{wanted['kind']} {wanted['metadata']['name']}: {path} is {_shorten(theirs)} each time after Covey has written {_shorten(ours)}"
    remedy = (
        "a mutating admission policy or webhook, or another controller, changes it: have it leave objects with the label "
        f"{names.LABEL_INFERENCE} alone; until then Covey writes it again less and less often"
    )
    return Remark(names.DEGRADED, REASON_REWRITTEN, f"{what}; {remedy}")


#: Characters of a value in a message.
_SHOWN: Final = 80


def _shorten(value: object) -> str:
    text = "absent" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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
