"""Which units exist, and which replicas of each role in each of them, by number.

Numbers need not be consecutive: scale-down takes what is not ready first, so holes appear; they are filled lowest
first when the resource grows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Numbers of the replicas of each role, ascending.
Unit = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The numbers of a resource's units, ascending, each with the numbers of its replicas by role."""

    units: Mapping[int, Unit]

    @classmethod
    def fresh(cls, units: int, replicas: Mapping[str, int]) -> Layout:
        """Units and replicas numbered from 0, as of a resource that is new."""
        unit = {role: tuple(range(count)) for role, count in replicas.items()}
        return cls(dict.fromkeys(range(units), unit))

    def replicas(self) -> Iterator[tuple[int, str, int]]:
        """Every (unit, role, replica), in order."""
        for unit, roles in self.units.items():
            for role, numbers in roles.items():
                for number in numbers:
                    yield unit, role, number
