"""Objects that the API server would not change, and that are therefore deleted and created again.

An object that all units share is deleted, and created again in the next pass. A group goes with its whole unit, pods
first: they cannot be moved to another group. One unit after another, in this order:

1. A unit of which nothing serves is taken down, and comes again.
2. One that serves stays until another one that was built next to it serves (``unit_move``), which needs room for one
   unit more. It begins when the others have their minimum bound.
3. Where its owner confirms it for this very spec, it is taken down first, when the others have their minimum bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Backend, Identity, Owned
from covey.compile import Scale
from covey.operator.feature import Changes, Feature
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, DeleteObject, Note
from covey.operator.model.observed import number
from covey.operator.model.outcome import Outcome, Remark
from covey.operator.objects.apply import Deviation
from covey.operator.replicas.progress import ReplicaState, count_unit

#: Objects that cannot be changed in place, by identity.
_Fixed = Mapping[Identity, Owned]


@dataclass
class RecreatedGroups(Feature):
    """Objects that are deleted and created again, one unit after another."""

    HONOURS = frozenset({"the annotation covey.dev/remake"})

    #: The units of which that is so, and what all units share of it.
    _units: tuple[int, ...] = field(init=False, default=())
    _shared: tuple[DeleteObject, ...] = field(init=False, default=())
    _begins: bool = field(init=False, default=False)

    def recreate(self, intent: Intent, deviations: Iterable[Iterable[Deviation]]) -> Intent:
        """A unit goes down now, or another one is built next to it; of that one what is left of a former one goes first."""
        backend = self.given.backend
        fixed = _find_fixed(backend, deviations) if backend is not None else {}
        intent = replace(intent, fixed=frozenset(fixed))
        units = _units_of(fixed)
        if intent.remade is not None:
            left = intent.move is not None and intent.move.to in units
            return replace(intent, taken_down=intent.move.to if intent.move is not None and left else None)
        self._units = units
        self._shared = tuple(
            DeleteObject(*identity, owned.metadata.uid)
            for identity, owned in fixed.items()
            if number(owned.metadata, names.LABEL_UNIT) is None and owned.metadata.deletion_timestamp is None
        )
        scale, states = Scale.of(self.given.spec), intent.states
        idle = [unit for unit in units if not _serves(scale, states.get(unit, {}))]
        if idle:
            return replace(intent, taken_down=idle[0])
        others = (states.get(unit, {}) for unit in intent.layout.units if unit not in units)
        if not units or not all(_runs(scale, other_unit) for other_unit in others):
            return intent
        if _is_confirmed(self.given.inference):
            return replace(intent, taken_down=units[0])
        # Groups of another unit are made after what all units share.
        shares = any(number(owned.metadata, names.LABEL_UNIT) is None for owned in fixed.values())
        return intent if shares else replace(intent, remade=units[0])

    def remove(self, removal: Outcome, intent: Intent) -> Outcome:
        """Pods go before their groups: that is when it is announced."""
        del intent
        self._begins = bool(removal.actions.delete_pods)
        return removal

    def outcome(self, changes: Changes) -> Outcome:
        """Objects to delete, Events, and the condition about units that wait."""
        intent, notes, remarks = changes.intent, list[Note](), list[Remark]()
        if intent.taken_down is not None and self._begins:
            message = f"unit {intent.taken_down} is made anew: its groups cannot be changed in place"
            notes.append(Note("UnitRemade", message, "Remake", warning=True))
        # Shared objects are told of where no unit goes with them.
        for identity in self._shared if len(self._shared) == len(intent.fixed) else ():
            kind = identity.type.partition(".")[0]
            message = f"{kind} {identity.name} is made anew: it cannot be changed in place"
            notes.append(Note(f"{kind}Remade", message, "Remake"))
        if self._units:
            which = f"unit{'s' if len(self._units) > 1 else ''} {', '.join(map(str, self._units))}"
            message = f"groups of {which} cannot be changed in place: {_course(intent)}"
            remarks.append(Remark(names.REMAKE_PENDING, names.REASON_GROUPS_FIXED, message))
        return Outcome(Actions(delete_objects=self._shared, notes=tuple(notes)), tuple(remarks))


def _course(intent: Intent) -> str:
    """The step that is taken now, in words."""
    if intent.remade is None and intent.taken_down is not None:
        return f"unit {intent.taken_down} is made anew now"
    if intent.remade is None:
        return "they wait for what all units share, and for other units to have their minimum bound"
    move = intent.move
    if move is None or not move.is_remake:
        return f"unit {intent.remade} waits until nothing of it is rolled out or moved"
    return (
        f"unit {move.to} is built beside unit {intent.remade}, which goes once the other one serves; where there is no "
        f"capacity for both, the annotation {names.ANNOTATION_REMAKE} with metadata.generation as its value has unit "
        f"{intent.remade} taken down first"
    )


def _is_confirmed(inference: DisaggregatedInference) -> bool:
    """Tell whether the owner lets units be taken down for this generation of the spec before others serve."""
    metadata = inference.metadata
    return (metadata.annotations or {}).get(names.ANNOTATION_REMAKE) == str(metadata.generation)


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
