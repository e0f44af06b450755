"""Reports on a unit that has no group of its own, made of what kube-scheduler says of the unit's PodGroups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends.kubernetes.gates import LET_GO, REASON
from covey.backends.seam import Identity, Owned, UnitReport

#: Condition of a PodGroup: of 1.36, and of 1.37.
CONDITIONS: Final = ("PodGroupScheduled", "PodGroupInitiallyScheduled")


class Reports:
    """Groups by unit, sorted once for each snapshot, however many units are asked for.

    Args:
        kind: type of the groups.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._objects: Mapping[Identity, Owned] = {}
        self._units: Mapping[str, Sequence[Owned]] = {}

    def of(self, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """The report of a unit; None where it has no groups."""
        if objects is not self._objects:
            self._objects, self._units = objects, _by_unit(self._kind, objects)
        groups = self._units.get(str(unit))
        if not groups:
            return None
        first = min(groups, key=lambda group: (group.metadata.creation_timestamp, group.metadata.name))
        return UnitReport(first.metadata.uid, first.metadata.creation_timestamp, _admitted_condition(groups))


def _by_unit(kind: str, objects: Mapping[Identity, Owned]) -> dict[str, list[Owned]]:
    by_unit: dict[str, list[Owned]] = {}
    for (type_, _), owned in objects.items():
        unit = owned.metadata.label(names.LABEL_UNIT)
        if type_ == kind and unit is not None:
            by_unit.setdefault(unit, []).append(owned)
    return by_unit


def _admitted_condition(groups: Sequence[Owned]) -> core.Condition:
    """Return the condition of a unit whose minimum was let go; who keeps a minimum says why."""
    for group in sorted(groups, key=lambda group: group.metadata.name):
        condition = next(filter(None, (core.condition(group.status.conditions, kind) for kind in CONDITIONS)), None)
        if condition is not None and condition.status != "True":
            what = f"kube-scheduler says of PodGroup {group.metadata.name}: {condition.message or condition.reason}"
            return core.Condition(names.ADMITTED, "True", REASON, f"{LET_GO}; {what}")
    return core.Condition(names.ADMITTED, "True", REASON, LET_GO)
