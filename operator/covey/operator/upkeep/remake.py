"""What the API server would not change is made anew.

An object that all units share is deleted, and created again in the next pass. A group goes with its whole unit, pods
first: they cannot be told of another group. One unit after another, each only when the others run, so that a change of
the spec never takes everything down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from covey.api import constants as names
from covey.backends import Backend, Identity, Owned
from covey.compile import Layout, Scale, Tree, type_of
from covey.operator.replicas.scale import ReplicaState, States
from covey.operator.snapshot.observed import Observed, number
from covey.operator.terms.actions import DeleteObject, Note, Object
from covey.operator.upkeep.drift import has_drifted, stamped


@dataclass(frozen=True, slots=True)
class Remake:
    """What has to be made anew. ``unit`` is the one that is taken down now; ``fixed`` must not be applied meanwhile."""

    unit: int | None = None
    objects: tuple[DeleteObject, ...] = ()
    fixed: frozenset[Identity] = frozenset()

    def rest(self, layout: Layout) -> Layout:
        """The layout without the unit that is taken down."""
        units = {unit: roles for unit, roles in layout.units.items() if unit != self.unit}
        return replace(layout, units=units)

    @property
    def notes(self) -> Iterator[Note]:
        """What to announce of it."""
        if self.unit is not None:
            message = f"unit {self.unit} is made anew: its groups cannot be changed in place"
            yield Note("UnitRemade", message, "Remake", warning=True)

    @property
    def shared_notes(self) -> Iterator[Note]:
        """What to announce where no unit goes with them."""
        for each in self.objects if len(self.objects) == len(self.fixed) else ():
            kind = each.type.partition(".")[0]
            message = f"{kind} {each.name} is made anew: it cannot be changed in place"
            yield Note(f"{kind}Remade", message, "Remake")


def find_remake(backend: Backend, tree: Tree, observed: Observed, scale: Scale, states: States) -> Remake:
    """What cannot be changed in place.

    Args:
        backend: who knows what cannot.
        tree: what is wanted.
        observed: the snapshot.
        scale: how many replicas are the minimum.
        states: how far each replica has come.
    """
    found = tuple(_fixed(backend, tree, observed))
    if not found:
        return Remake()
    units = {number(owned.metadata, names.LABEL_UNIT) for _, owned in found}
    begun = any(unit not in units and not _runs(scale, states.get(unit, {})) for unit in tree.layout.units)
    chosen = min((unit for unit in units if unit is not None), default=None)
    shared = (
        DeleteObject(*identity, owned.metadata.uid)
        for identity, owned in found
        if number(owned.metadata, names.LABEL_UNIT) is None and owned.metadata.deletion_timestamp is None
    )
    return Remake(None if begun else chosen, tuple(shared), frozenset(identity for identity, _ in found))


def _fixed(backend: Backend, tree: Tree, observed: Observed) -> Iterator[tuple[Identity, Owned]]:
    for level in tree.levels:
        for body in level.objects:
            identity = identity_of(body)
            owned = observed.objects.get(identity)
            if owned is not None and has_drifted(stamped(body), owned) and backend.is_fixed(owned, body):
                yield identity, owned


def identity_of(body: Object) -> Identity:
    """Type and name of an object."""
    return type_of(body), body["metadata"]["name"]


def _runs(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    """The minimum of a unit is bound."""
    return all(
        sum(state.is_bound for state in roles.get(name, {}).values()) >= count.minimum
        for name, count in scale.roles.items()
    )
