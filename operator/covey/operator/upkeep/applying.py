"""Objects that are not as they are wanted, and those that nothing refers to any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from covey.api import constants as names
from covey.backends import Backend, Identity, Owned
from covey.compile import Tree, type_of
from covey.kube.resources import SERVICES
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Actions, DeleteObject, Object
from covey.operator.terms.outcome import Outcome
from covey.operator.upkeep.drift import has_drifted, stamped


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
    for body in map(stamped, objects):
        identity = identity_of(body)
        stored = observed.objects.get(identity) or observed.shared.get(identity)
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
            apply=tuple(tuple(_with_fixed_fields(backend, _applied(level, fixed))) for level in deviations),
            publish=_applied(find_deviations(tree.published, observed)),
            delete_objects=tuple(_unused(backend, tree, observed)),
        )
    )


def _applied(deviations: Iterable[Deviation], fixed: Collection[Identity] = ()) -> tuple[Object, ...]:
    """Objects that can be applied now: one that is being deleted is created again when it is gone."""
    return tuple(
        each.wanted
        for each in deviations
        if each.identity not in fixed
        if each.stored is None or each.stored.metadata.deletion_timestamp is None
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


def _unused(backend: Backend, tree: Tree, observed: Observed) -> Iterator[DeleteObject]:
    """Objects that are not wanted and that no pod and no group refers to any more."""
    wanted = {identity_of(body) for level in tree.levels for body in level.objects}
    wanted |= {identity_of(body) for body in tree.published}
    pods = tuple(observed.every_pod())
    # Pods that terminate still find each other.
    used = {(SERVICES.type, subdomain) for subdomain in {pod.spec.subdomain or "" for pod in pods}}
    used |= backend.in_use(observed.objects, pods)
    for identity, owned in observed.objects.items():
        if identity not in wanted and identity not in used and owned.metadata.deletion_timestamp is None:
            yield DeleteObject(*identity, owned.metadata.uid)


def identity_of(body: Object) -> Identity:
    """Type and name of an object."""
    return type_of(body), body["metadata"]["name"]
