"""Services of single revisions, while several run side by side: with them a router pairs prefill and decode.

Caches of one revision may mean nothing to another. Pods say of which revision of their *role* they are; which of them
belong together only a revision of the resource says. So while a rollout is on its way each such revision has one
Service for each role, also for a role that does not change, all with the same ``covey.dev/whole-revision``. They appear
together once every role has a Ready replica of it, and stay until one has none any more, Ready or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import Revision, Tree
from covey.compile.groups import Object
from covey.compile.network import Network
from covey.operator.model.observed import Observed
from covey.operator.objects.apply import identity_of
from covey.operator.replicas.scale import States

#: A revision of a role: the role, and its hash.
Part = tuple[str, str]


def with_pairs(
    tree: Tree, spec: DisaggregatedInferenceSpec, in_force: Revision, observed: Observed, states: States
) -> Tree:
    """The tree with the Services of revisions that run side by side.

    Args:
        tree: what is wanted.
        spec: what is kept up.
        in_force: the revision that is rolled out.
        observed: the snapshot.
        states: how far each replica has come.
    """
    laid_out = {(role, revision.hash) for _, role, _, revision in tree.layout.replicas()}
    roles = sorted({role for role, _ in laid_out})
    if len(roles) < 2 or len(laid_out) == len(roles):
        return tree
    ready = {
        (role, revision.hash)
        for unit, role, number, revision in tree.layout.replicas()
        if (state := states.get(unit, {}).get(role, {}).get(number)) is not None
        and state.is_ready
        and state.revision.hash == revision.hash
    }
    network = Network(tree.owner, spec)
    services: list[Object] = []
    for whole, parts in _wholes(in_force, observed, roles).items():
        if not parts.items() <= laid_out:
            continue
        found = [network.of_revision(role, revision, whole) for role, revision in parts.items()]
        if parts.items() <= ready or any(identity_of(body) in observed.objects for body in found):
            services += found
    return replace(tree, published=(*tree.published, *services))


def _wholes(in_force: Revision, observed: Observed, roles: list[str]) -> Mapping[str, Mapping[str, str]]:
    """Revisions of the resource, the newest first: hashes of these roles by hash of the whole.

    Two that differ in other roles only are one, under the newer name.
    """
    found: dict[tuple[str, ...], str] = {}
    for revision in (in_force, *_stored_revisions(observed)):
        if revision.roles.keys() >= set(roles):
            found.setdefault(tuple(revision.roles[role].hash for role in roles), revision.hash)
    return {whole: dict(zip(roles, hashes, strict=True)) for hashes, whole in found.items()}


def _stored_revisions(observed: Observed) -> Iterator[Revision]:
    for stored in sorted(observed.revisions, key=lambda each: each.number, reverse=True):
        if stored.record is not None:
            yield stored.record.revision
