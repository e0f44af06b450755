"""The layout of a resource, unit → role → replica number → revision, and the numbers that are wanted.

Numbers need not be consecutive: scale-down takes what is not ready first, so holes appear; they are filled lowest first
when the resource grows again. Every replica has a revision of its own, so that replicas of two revisions can stand side
by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import ReplicaKey, Slot
from covey.compile.revision import Revision, RoleRevision

#: The revision of each replica, by number, ascending.
Replicas = Mapping[int, RoleRevision]


#: The replicas of each role.
Unit = Mapping[str, Replicas]


@dataclass(frozen=True, slots=True)
class RoleCount:
    """Replicas of a role that each unit shall have, and the minimum without which it must not start."""

    replicas: int
    minimum: int


@dataclass(frozen=True, slots=True)
class UnitCount:
    """Replicas of one unit that have come as far as is asked, by role, next to the minimum of each.

    The one place where that is decided: whether a unit has its minimum of bound, of Ready or of any other replicas.
    """

    counts: Mapping[str, int]
    minimums: Mapping[str, int]

    @classmethod
    def of(cls, counts: Mapping[str, int], roles: Mapping[str, RoleCount]) -> UnitCount:
        """Compare counts of replicas with the minimums of ``roles``."""
        return cls(counts, {name: count.minimum for name, count in roles.items()})

    @property
    def has_minimum(self) -> bool:
        """Tell whether every role has as many replicas as its minimum."""
        return not self.lacking

    @property
    def lacking(self) -> Mapping[str, tuple[int, int]]:
        """The roles that have too few: their replicas and their minimum."""
        counts = ((name, self.counts.get(name, 0), least) for name, least in self.minimums.items())
        return {name: (count, least) for name, count, least in counts if count < least}

    def __str__(self) -> str:
        """``prefill 1/2, decode 0/1``: the roles that have too few."""
        return ", ".join(f"{name} {count}/{least}" for name, (count, least) in self.lacking.items())


@dataclass(frozen=True, slots=True)
class Scale:
    """Units and replicas that are wanted: the one place where a spec's numbers are read.

    ``roles`` has what the spec says of each unit. ``totals`` has the replicas of roles that somebody else sets, over
    all units; ``shares`` what that makes of each unit.
    """

    units: int
    roles: Mapping[str, RoleCount]
    totals: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[int, Mapping[str, RoleCount]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: DisaggregatedInferenceSpec, totals: Mapping[str, int] | None = None) -> Scale:
        """The scale that a spec asks for; no units while it is suspended.

        Args:
            spec: the spec.
            totals: replicas over all units, by role, where it is not the spec that says how many.
        """
        roles = {role.name: RoleCount(role.replicas, role.min_replicas) for role in spec.roles}
        units = 0 if spec.suspend else spec.replicas
        return cls(units, roles, totals or {}).over(range(units))

    def over(self, units: Iterable[int]) -> Scale:
        """The same scale for these units: totals are spread evenly, and units of lower number have the remainder."""
        numbers = sorted(units)
        spread = {
            name: dict(zip(numbers, shares(total, len(numbers), self.roles[name].minimum), strict=True))
            for name, total in self.totals.items()
        }
        by_unit = {
            unit: {**self.roles}
            | {name: replace(self.roles[name], replicas=counts[unit]) for name, counts in spread.items()}
            for unit in (numbers if spread else ())
        }
        return replace(self, shares=by_unit)

    def unit(self, unit: int) -> Mapping[str, RoleCount]:
        """Replicas and minimum of each role of one unit."""
        return self.shares.get(unit, self.roles)

    def count(self, unit: int, role: str) -> RoleCount:
        """Replicas and minimum of one role of one unit."""
        return self.unit(unit)[role]

    def total(self, role: str) -> int:
        """Replicas of a role that all units shall have together."""
        if role not in self.totals:
            return self.roles[role].replicas * self.units
        return sum(share[role].replicas for share in self.shares.values())


def shares(total: int, units: int, minimum: int) -> list[int]:
    """Replicas of each unit: as even as can be, none below its minimum, the greater ones first."""
    share, rest = divmod(max(total, minimum * units), units) if units else (0, 0)
    return [share + (rank < rest) for rank in range(units)]


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of a resource, ascending, each with its replicas by role.

    ``together``: labels of replicas (unit, role, number) that are placed all or none. ``scale``: how many there are
    meant to be, where that is not what the spec says of each unit.
    """

    units: Mapping[int, Unit]
    together: Mapping[ReplicaKey, Mapping[str, str]] = field(default_factory=dict)
    scale: Scale | None = None

    @classmethod
    def of(cls, numbers: Mapping[int, Mapping[str, Iterable[int]]], revision: Revision) -> Layout:
        """Units and replicas by number, all of one revision."""
        return cls(
            {
                unit: {role: dict.fromkeys(numbers, revision.roles[role]) for role, numbers in roles.items()}
                for unit, roles in numbers.items()
            }
        )

    @classmethod
    def fresh(cls, scale: Scale, revision: Revision) -> Layout:
        """Units and replicas numbered from 0, as of a resource that is new."""
        units = {
            unit: {name: range(count.replicas) for name, count in scale.unit(unit).items()}
            for unit in range(scale.units)
        }
        return replace(cls.of(units, revision), scale=scale if scale.totals else None)

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
