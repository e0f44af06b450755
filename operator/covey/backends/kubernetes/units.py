"""One unit's tree as stored, and what kube-scheduler has said of it.

In 1.37 it writes conditions to PodGroups alone: whether a CompositePodGroup has its minimum is counted here, as
``GangScheduling.isCPGTreeReady`` counts it. ``PodGroupInitiallyScheduled`` never turns back from True.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from covey.api import constants as names
from covey.api import core
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.backends.seam import Identity, Owned
from covey.compile.identity import group_name

#: Condition of a PodGroup in 1.37.
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"


@dataclass(frozen=True)
class UnitTree:
    """The groups of one unit."""

    root: Owned
    composites: Mapping[str, Owned]
    leaves: Mapping[str, Owned]

    @classmethod
    def of(cls, inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitTree | None:
        """The tree of a unit of a resource; None without its root."""
        root = objects.get((COMPOSITE_POD_GROUPS.type, group_name(inference, unit)))
        if root is None:
            return None
        mine = [
            (kind, name, owned)
            for (kind, name), owned in objects.items()
            if owned.metadata.label(names.LABEL_UNIT) == str(unit)
        ]
        return cls(
            root,
            {name: owned for kind, name, owned in mine if kind == COMPOSITE_POD_GROUPS.type},
            {name: owned for kind, name, owned in mine if kind == POD_GROUPS.type},
        )

    @property
    def is_scheduled(self) -> bool:
        """Tell whether every minimum of the tree was placed once."""
        return self._is_scheduled(self.root)

    @cached_property
    def failed(self) -> core.Condition | None:
        """Condition of the first failed leaf that the minimum waits for; None where kube-scheduler has said nothing."""
        return next(self._failures(self.root), None)

    def _failures(self, composite: Owned) -> Iterator[core.Condition]:
        """Conditions of the children without which a group lacks its minimum, those that were placed left out."""
        children = sorted(self._children(composite), key=lambda child: (not self._is_scheduled(child), _order(child)))
        for child in children[: _least(composite)]:
            if child.metadata.name in self.leaves and self.leaves[child.metadata.name] is child:
                condition = said(child)
                if condition is not None and condition.status != "True":
                    yield condition
            else:
                yield from self._failures(child)

    def _children(self, parent: Owned) -> Iterator[Owned]:
        yield from self._by_parent.get(parent.metadata.name, ())

    @cached_property
    def _by_parent(self) -> Mapping[str, Sequence[Owned]]:
        found: dict[str, list[Owned]] = {}
        for owned in (*self.composites.values(), *self.leaves.values()):
            found.setdefault(str(owned.spec.get("parentCompositePodGroupName")), []).append(owned)
        return found

    def _is_scheduled(self, group: Owned) -> bool:
        if self.leaves.get(group.metadata.name) is group:
            condition = said(group)
            return condition is not None and condition.status == "True"
        return sum(self._is_scheduled(child) for child in self._children(group)) >= _least(group)


def said(leaf: Owned) -> core.Condition | None:
    """Return kube-scheduler's condition on a PodGroup; None where it has written nothing."""
    return core.condition(leaf.status.conditions, INITIALLY_SCHEDULED)


def _least(composite: Owned) -> int:
    gang = (composite.spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minGroupCount", 1))


def _order(group: Owned) -> tuple[str, int]:
    """By role, then by number of replica."""
    replica = group.metadata.label(names.LABEL_REPLICA) or ""
    return group.metadata.label(names.LABEL_ROLE) or "", int(replica) if replica.isdecimal() else 0
