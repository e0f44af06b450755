"""Objects that the API server would not change, and that are therefore deleted and created again.

An object that all units share is deleted, and created again in the next pass. A group goes with its whole unit, pods
first: they cannot be moved to another group. One unit after another, in this order:

1. A unit of which nothing serves is taken down, and comes again.
2. One that serves stays until another one that was built next to it serves (``moving``), which needs room for one
   unit more. It begins when the others have their minimum bound.
3. Where its owner confirms it for this very spec, it is taken down first, when the others have their minimum bound.

Replicas of revisions of which no record is left: nobody knows what they run, so nothing of them is rolled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter

from covey.api import constants as names
from covey.backends import Backend, Identity, Owned
from covey.compile import Layout, Scale
from covey.compile.revision import Revision
from covey.operator.model.actions import Actions, DeleteObject, Note, Outcome, Remark
from covey.operator.model.observed import Observed, number
from covey.operator.objects import Deviation
from covey.operator.replicas.scale import ReplicaState, States, count_unit, known_revisions
from covey.operator.rolling.leaving import Move

#: Revisions that are named in one message.
_NAMED = 3


def find_unexplained(observed: Observed, in_force: Revision) -> dict[str, dict[str, int]]:
    """Find revisions, by role, that no record explains and that are not in force, with their number of replicas."""
    known = known_revisions(observed)
    by_role: dict[str, dict[str, set[tuple[int, int]]]] = {}
    for slot, pod in observed.current.items():
        revision = pod.metadata.label(names.LABEL_REVISION) or ""
        wanted = in_force.roles.get(slot.role)
        if wanted is not None and revision != wanted.hash and (slot.role, revision) not in known:
            by_role.setdefault(slot.role, {}).setdefault(revision, set()).add((slot.unit, slot.replica))
    return {
        role: {revision: len(replicas) for revision, replicas in revisions.items()}
        for role, revisions in sorted(by_role.items())
    }


def describe_unexplained(by_role: dict[str, dict[str, int]]) -> str:
    """Describe replicas of unexplained revisions; empty where there are none."""
    texts = [
        f"{count} of {role} ({revision or 'without a revision'})"
        for role, revisions in by_role.items()
        for revision, count in sorted(revisions.items())
    ]
    if not texts:
        return ""
    rest = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return (
        f"replicas of revisions without a record: {', '.join(texts[:_NAMED])}{rest}; what they run is not known, and they "
        "are not rolled: delete their pods, one replica after another, to have them made anew"
    )


#: Objects that cannot be changed in place, by identity.
_Fixed = Mapping[Identity, Owned]


@dataclass(frozen=True, slots=True)
class Remake:
    """Units and objects that have to be recreated.

    ``unit`` is taken down now; ``beside`` serves, and another one is to take its place. ``units`` are all that have to
    be recreated. ``fixed`` must not be applied meanwhile.
    """

    unit: int | None = None
    beside: int | None = None
    units: tuple[int, ...] = ()
    objects: tuple[DeleteObject, ...] = ()
    fixed: frozenset[Identity] = frozenset()

    def rest(self, layout: Layout) -> Layout:
        """The layout without the unit that is taken down."""
        units = {unit: roles for unit, roles in layout.units.items() if unit != self.unit}
        return replace(layout, units=units)

    def with_move(self, backend: Backend, deviations: Iterable[Iterable[Deviation]], move: Move | None) -> Remake:
        """The same where another unit is built next to one: what is left of a former one of its number goes first."""
        fixed = _find_fixed(backend, deviations)
        left = move is not None and move.to in _units_of(fixed)
        return replace(self, unit=move.to if move is not None and left else None, fixed=frozenset(fixed))

    def outcome(self, move: Move | None, *, begins: bool) -> Outcome:
        """Objects to delete, Events, and remarks about units that wait.

        Args:
            move: the unit that is built next to another.
            begins: pods go, so that it is announced.
        """
        notes = (*(self._notes() if begins else ()), *self._shared_notes())
        return Outcome(Actions(delete_objects=self.objects, notes=notes), remarks=tuple(self._remarks(move)))

    def _notes(self) -> Iterator[Note]:
        if self.unit is not None:
            message = f"unit {self.unit} is made anew: its groups cannot be changed in place"
            yield Note("UnitRemade", message, "Remake", warning=True)

    def _shared_notes(self) -> Iterator[Note]:
        """Events about shared objects where no unit goes with them."""
        for identity in self.objects if len(self.objects) == len(self.fixed) else ():
            kind = identity.type.partition(".")[0]
            message = f"{kind} {identity.name} is made anew: it cannot be changed in place"
            yield Note(f"{kind}Remade", message, "Remake")

    def _remarks(self, move: Move | None) -> Iterator[Remark]:
        if self.units:
            which = f"unit{'s' if len(self.units) > 1 else ''} {', '.join(map(str, self.units))}"
            message = f"groups of {which} cannot be changed in place: {self._course(move)}"
            yield Remark(names.REMAKE_PENDING, names.REASON_GROUPS_FIXED, message)

    def _course(self, move: Move | None) -> str:
        """The step that is taken now, in words."""
        if self.beside is None and self.unit is not None:
            return f"unit {self.unit} is made anew now"
        if self.beside is None:
            return "they wait for what all units share, and for other units to have their minimum bound"
        if move is None or not move.is_remake:
            return f"unit {self.beside} waits until nothing of it is rolled out or moved"
        return (
            f"unit {move.to} is built beside unit {self.beside}, which goes once the other one serves; where there is no "
            f"capacity for both, the annotation {names.ANNOTATION_REMAKE} with metadata.generation as its value has unit "
            f"{self.beside} taken down first"
        )


def find_remake(
    backend: Backend,
    layout: Layout,
    deviations: Iterable[Iterable[Deviation]],
    scale: Scale,
    states: States,
    *,
    confirmed: bool = False,
) -> Remake:
    """Find units and objects that cannot be changed in place.

    Args:
        backend: knows which cannot.
        layout: the units that there shall be.
        deviations: objects that are not as they are wanted, level by level.
        scale: how many replicas are the minimum.
        states: how far each replica has come.
        confirmed: units may be taken down before others serve.
    """
    fixed = _find_fixed(backend, deviations)
    units = _units_of(fixed)
    shared = tuple(
        DeleteObject(*identity, owned.metadata.uid)
        for identity, owned in fixed.items()
        if number(owned.metadata, names.LABEL_UNIT) is None and owned.metadata.deletion_timestamp is None
    )
    remake = Remake(units=units, objects=shared, fixed=frozenset(fixed))
    idle = [unit for unit in units if not _serves(scale, states.get(unit, {}))]
    if idle:
        return replace(remake, unit=idle[0])
    others = (states.get(unit, {}) for unit in layout.units if unit not in units)
    if not units or not all(_runs(scale, other_unit) for other_unit in others):
        return remake
    if confirmed:
        return replace(remake, unit=units[0])
    # Groups of another unit are made after what all units share.
    shares = any(number(owned.metadata, names.LABEL_UNIT) is None for owned in fixed.values())
    return remake if shares else replace(remake, beside=units[0])


def _find_fixed(backend: Backend, deviations: Iterable[Iterable[Deviation]]) -> _Fixed:
    # Services and budgets are applied in place, whatever the API server has added to them.
    groups = {kind.type for kind in backend.kinds()}
    return {
        deviation.identity: deviation.stored
        for level in deviations
        for deviation in level
        if deviation.identity[0] in groups
        and deviation.stored is not None
        and backend.is_fixed(deviation.stored, deviation.wanted)
    }


def _units_of(fixed: _Fixed) -> tuple[int, ...]:
    units = {number(owned.metadata, names.LABEL_UNIT) for owned in fixed.values()}
    return tuple(sorted(unit for unit in units if unit is not None))


def _serves(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    """Tell whether something of a unit would be lost: its minimum, or a replica that is Ready."""
    return _runs(scale, roles) or any(replica.is_ready for replicas in roles.values() for replica in replicas.values())


def _runs(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    return count_unit(scale.roles, roles, attrgetter("is_bound")).has_minimum
