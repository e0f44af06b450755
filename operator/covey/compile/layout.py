"""How many replicas there shall be, and which: unit → role → replica number → revision.

Numbers need not be consecutive: scale-down takes what is not ready first, so holes appear; they are filled lowest
first when the resource grows again. Every replica has a revision of its own, so that replicas of two revisions can
stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.compile.revision import Revision, RoleRevision

#: The revision of each replica, by number, ascending.
Replicas = Mapping[int, RoleRevision]
#: The replicas of each role.
Unit = Mapping[str, Replicas]


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Replicas of a role that each unit shall have, and without how many it must not start."""

    replicas: int
    minimum: int


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is wanted: the one place where a spec's numbers are read."""

    units: int
    roles: Mapping[str, RoleCount]

    @classmethod
    def of(cls, spec: DisaggregatedInferenceSpec) -> Scale:
        """What a spec asks for; no units while it is suspended."""
        roles = {role.name: RoleCount(role.replicas, role.min_replicas) for role in spec.roles}
        return cls(0 if spec.suspend else spec.replicas, roles)


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a resource, ascending, each with its replicas by role.

    ``together``: labels of replicas (unit, role, number) that are placed all or none.
    """

    units: Mapping[int, Unit]
    together: Mapping[tuple[int, str, int], Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, numbers: Mapping[int, Mapping[str, Iterable[int]]], revision: Revision) -> Layout:
        """Units and replicas by number, all of one revision."""
        return cls(
            {
                unit: {role: dict.fromkeys(found, revision.roles[role]) for role, found in roles.items()}
                for unit, roles in numbers.items()
            }
        )

    @classmethod
    def fresh(cls, scale: Scale, revision: Revision) -> Layout:
        """Units and replicas numbered from 0, as of a resource that is new."""
        unit = {name: range(count.replicas) for name, count in scale.roles.items()}
        return cls.of(dict.fromkeys(range(scale.units), unit), revision)

    def replicas(self) -> Iterator[tuple[int, str, int, RoleRevision]]:
        """Every unit, role and replica with its revision, in order."""
        for unit, roles in self.units.items():
            for role, replicas in roles.items():
                for number, revision in replicas.items():
                    yield unit, role, number, revision

    def slots(self) -> Iterator[Slot]:
        """The place of every pod, by unit, role, replica and index."""
        for unit, role, replica, revision in self.replicas():
            for index in range(revision.size):
                yield Slot(unit, role, replica, index)

    def revision_of(self, slot: Slot) -> RoleRevision | None:
        """The revision of a place's replica; None outside the layout."""
        return self.units.get(slot.unit, {}).get(slot.role, {}).get(slot.replica)
