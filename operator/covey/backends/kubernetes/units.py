"""One unit's tree as stored, and what kube-scheduler has said of it.

In 1.37 it writes conditions to PodGroups alone: whether a CompositePodGroup has its minimum is counted here, as
``GangScheduling.isCPGTreeReady`` counts it. ``PodGroupInitiallyScheduled`` never turns back from True. 1.38 says of a
CompositePodGroup, too, why it has no places: what is wrong with the tree itself (``CompositePodGroupError``) is said there
alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.backends.seam import Identity, Owned
from covey.compile.identity import group_name
from covey.kube.resources import Resource

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
