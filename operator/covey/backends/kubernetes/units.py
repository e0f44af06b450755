"""One unit's tree as stored, and what kube-scheduler has said of it.

In 1.37 it writes conditions to PodGroups alone: whether a CompositePodGroup has its minimum is counted here, as
``GangScheduling.isCPGTreeReady`` counts it. ``PodGroupInitiallyScheduled`` never turns back from True. 1.38 says of a
CompositePodGroup, too, why it has no places: what is wrong with the tree itself (``CompositePodGroupError``) is said there
alone.

Reports on a unit that has no group of its own, made of what kube-scheduler says of the unit's PodGroups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends.kubernetes.gates import LET_GO, REASON
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.backends.seam import Identity, Owned, UnitReport
from covey.compile.identity import group_name
from covey.kube.resources import Resource

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


#: Condition of a PodGroup from 1.37 on, and of a CompositePodGroup from 1.38 on.
INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
COMPOSITE_INITIALLY_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"


@dataclass(frozen=True)
class UnitTree:
    """The groups of one unit."""

    root: Owned
    composites: Mapping[str, Owned]
    leaves: Mapping[str, Owned]

    @classmethod
    def of(
        cls,
        inference: str,
        unit: int,
        objects: Mapping[Identity, Owned],
        composites: Resource = COMPOSITE_POD_GROUPS,
    ) -> UnitTree | None:
        """The tree of a unit of a resource, with its CompositePodGroups in one version; None without its root."""
        root = objects.get((composites.type, group_name(inference, unit)))
        if root is None:
            return None
        mine = [
            (kind, name, owned)
            for (kind, name), owned in objects.items()
            if owned.metadata.label(names.LABEL_UNIT) == str(unit)
        ]
        return cls(
            root,
            {name: owned for kind, name, owned in mine if kind == composites.type},
            {name: owned for kind, name, owned in mine if kind == POD_GROUPS.type},
        )

    @property
    def is_scheduled(self) -> bool:
        """Tell whether every minimum of the tree was placed once."""
        return self._is_scheduled(self.root)

    @cached_property
    def failed(self) -> core.Condition | None:
        """Why the minimum has no places: as its root says, else the first leaf that it waits for; None where neither does."""
        said = core.condition(self.root.status.conditions, COMPOSITE_INITIALLY_SCHEDULED)
        if said is not None and said.status != "True":
            return said
        return next(self._failures(self.root), None)

    def _failures(self, composite: Owned) -> Iterator[core.Condition]:
        """Conditions of the children without which a group lacks its minimum, those that were placed left out."""
        children = sorted(
            self._child_groups(composite), key=lambda child: (not self._is_scheduled(child), _order(child))
        )
        for child in children[: _least(composite)]:
            if child.metadata.name in self.leaves and self.leaves[child.metadata.name] is child:
                condition = scheduled_condition(child)
                if condition is not None and condition.status != "True":
                    yield condition
            else:
                yield from self._failures(child)

    def _child_groups(self, parent: Owned) -> Iterator[Owned]:
        yield from self._by_parent.get(parent.metadata.name, ())

    @cached_property
    def _by_parent(self) -> Mapping[str, Sequence[Owned]]:
        by_parent: dict[str, list[Owned]] = {}
        for owned in (*self.composites.values(), *self.leaves.values()):
            by_parent.setdefault(str(owned.spec.get("parentCompositePodGroupName")), []).append(owned)
        return by_parent

    def _is_scheduled(self, group: Owned) -> bool:
        if self.leaves.get(group.metadata.name) is group:
            condition = scheduled_condition(group)
            return condition is not None and condition.status == "True"
        return sum(self._is_scheduled(child) for child in self._child_groups(group)) >= _least(group)


def scheduled_condition(leaf: Owned) -> core.Condition | None:
    """Return kube-scheduler's condition on a PodGroup; None where it has written nothing."""
    return core.condition(leaf.status.conditions, INITIALLY_SCHEDULED)


def _least(composite: Owned) -> int:
    gang = (composite.spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minGroupCount", 1))


def _order(group: Owned) -> tuple[str, int]:
    """The sort key of a group: its role, then the number of its replica."""
    replica = group.metadata.label(names.LABEL_REPLICA) or ""
    return group.metadata.label(names.LABEL_ROLE) or "", int(replica) if replica.isdecimal() else 0
