"""What the API server would not change is made anew.

An object that all units share is deleted, and created again in the next pass. A group goes with its whole unit, pods
first: they cannot be told of another group. One unit after another, each only when the others run, so that a change of
the spec never takes everything down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from covey.api import constants as names
from covey.backends import Backend, Identity
from covey.compile import Layout, Scale
from covey.operator.replicas.scale import ReplicaState, States, count_unit
from covey.operator.snapshot.observed import number
from covey.operator.terms.actions import Actions, DeleteObject, Note
from covey.operator.terms.outcome import Outcome
from covey.operator.upkeep.applying import Deviation


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

    def outcome(self, *, begins: bool) -> Outcome:
        """What to do; it is announced when the pods of the unit begin to go (``begins``)."""
        notes = (*(self._notes() if begins else ()), *self._shared_notes())
        return Outcome(Actions(delete_objects=self.objects, notes=notes))

    def _notes(self) -> Iterator[Note]:
        if self.unit is not None:
            message = f"unit {self.unit} is made anew: its groups cannot be changed in place"
            yield Note("UnitRemade", message, "Remake", warning=True)

    def _shared_notes(self) -> Iterator[Note]:
        """What to announce where no unit goes with them."""
        for each in self.objects if len(self.objects) == len(self.fixed) else ():
            kind = each.type.partition(".")[0]
            message = f"{kind} {each.name} is made anew: it cannot be changed in place"
            yield Note(f"{kind}Remade", message, "Remake")


def find_remake(
    backend: Backend, layout: Layout, deviations: Iterable[Deviation], scale: Scale, states: States
) -> Remake:
    """What cannot be changed in place.

    Args:
        backend: who knows what cannot.
        layout: the units that there shall be.
        deviations: objects that are not as they are wanted.
        scale: how many replicas are the minimum.
        states: how far each replica has come.
    """
    # Services and budgets are applied in place, whatever the API server has added to them.
    groups = {kind.type for kind in backend.kinds()}
    found = [
        (each.identity, each.stored)
        for each in deviations
        if each.identity[0] in groups and each.stored is not None and backend.is_fixed(each.stored, each.wanted)
    ]
    if not found:
        return Remake()
    units = {number(owned.metadata, names.LABEL_UNIT) for _, owned in found}
    begun = any(unit not in units and not _runs(scale, states.get(unit, {})) for unit in layout.units)
    chosen = min((unit for unit in units if unit is not None), default=None)
    shared = (
        DeleteObject(*identity, owned.metadata.uid)
        for identity, owned in found
        if number(owned.metadata, names.LABEL_UNIT) is None and owned.metadata.deletion_timestamp is None
    )
    return Remake(None if begun else chosen, tuple(shared), frozenset(identity for identity, _ in found))


def _runs(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    """The minimum of a unit is bound."""
    return count_unit(scale.roles, roles, attrgetter("is_bound")).has_minimum
