"""A status as it is stored: of this release, of another one, or of somebody who has written into it.

An entry of its units that cannot be understood says nothing. It must never end a pass, which would not put it right either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from pydantic import ValidationError

from covey.api import core
from covey.api.status import DisaggregatedInferenceStatus
from covey.operator.model.phase import Phase

_PHASES: Final = {phase.value: phase for phase in Phase}
_ORDER: Final = {phase: position for position, phase in enumerate(Phase)}
_SERVES: Final = frozenset({Phase.PARTIAL, Phase.READY})


@dataclass(frozen=True, slots=True)
class RecordedUnit:
    """Progress of a unit, as recorded; ``phase`` is None where it is none that this release knows.

    ``below_since``: since when it was below its minimum, seconds since the epoch. ``step`` and ``at``: what was
    announced to be given up of it, and when. ``met``: by role, the minimum that was met last.
    """

    phase: Phase | None
    served: bool
    below_since: float | None = None
    step: str = ""
    at: float | None = None
    met: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_available(self) -> bool:
        """Tell whether its minimum was Ready."""
        return self.phase in _SERVES


def recorded_units(status: Mapping[str, Any]) -> dict[int, RecordedUnit]:
    """The units that a status lists, by number."""
    listed = status.get("unitStatuses")
    recorded: dict[int, RecordedUnit] = {}
    for entry in listed if isinstance(listed, list) else ():
        number = entry.get("unit") if isinstance(entry, Mapping) else None
        if isinstance(number, int):
            phase = _PHASES.get(str(entry.get("phase", "")))
            served = entry.get("served") is True or phase in _SERVES
            since = _time(entry.get("belowMinimumSince"))
            recorded[number] = RecordedUnit(phase, served, since, *_escalation(entry), _met_minimum(entry))
    return recorded


def _escalation(entry: Mapping[str, Any]) -> tuple[str, float | None]:
    escalation = entry.get("escalation")
    if not isinstance(escalation, Mapping):
        return "", None
    return str(escalation.get("step", "")), _time(escalation.get("at"))


def _met_minimum(entry: Mapping[str, Any]) -> dict[str, int]:
    minimum = entry.get("metMinimum")
    roles = [role for role in minimum if isinstance(role, Mapping)] if isinstance(minimum, list) else []
    return {str(role.get("name")): role["replicas"] for role in roles if isinstance(role.get("replicas"), int)}


def _time(value: object) -> float | None:
    return core.seconds(value) if isinstance(value, str) else None


def read_complete(status: Mapping[str, Any]) -> str:
    """The hash of the revision that was complete last, as a status remembers it; empty where it says none."""
    complete = status.get("completeRevision")
    return complete if isinstance(complete, str) else ""


def leaves_out(status: Mapping[str, Any]) -> bool:
    """Tell whether there were more units than the status lists."""
    units, listed = status.get("units"), status.get("unitStatuses")
    return isinstance(units, int) and isinstance(listed, list) and units > len(listed)


def find_served(units: Iterable[int], status: Mapping[str, Any]) -> frozenset[int]:
    """Choose the units whose minimum the status has seen Ready: it is read once for all of them."""
    recorded = recorded_units(status)
    known = [unit for unit in recorded.values() if unit.phase is not None]
    # The list had no room for some: they were no worse than all that are there.
    rest = (
        bool(known) and leaves_out(status) and max(known, key=lambda unit: _ORDER[unit.phase or Phase.PENDING]).served
    )
    return frozenset(unit for unit in units if (recorded[unit].served if unit in recorded else rest))


def differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two statuses say different things, whatever defaults are written out."""
    if one == other:
        return False
    try:
        return _normal(one) != _normal(other)
    except ValidationError:
        # One of them is not of this release's making.
        return True


def _normal(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status with defaults written out, and lists that are maps to the API server in one order."""
    stored = DisaggregatedInferenceStatus.model_validate(status).as_object()
    for name, key in (("conditions", "type"), ("roles", "name"), ("unitStatuses", "unit")):
        stored[name] = sorted(stored.get(name, ()), key=itemgetter(key))
    return stored
