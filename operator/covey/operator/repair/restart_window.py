"""Ready replicas of a role that may be given up at once because their containers have restarted."""

from __future__ import annotations

from collections import Counter

from covey.api.roles import Role
from covey.compile import Tree
from covey.model import podstate
from covey.operator.model.observed import Observed
from covey.operator.model.place import Place
from covey.operator.repair.failures import serves
from covey.rollout.model import RolloutBudget


class Spare:
    """Limit on Ready replicas of a role that are given up at once because their containers have restarted.

    A dependency that fails for a moment restarts containers of all replicas together. Those that are Ready all the same
    go one after another: as many of a unit at once as ``maxUnavailable`` says, else down to ``minReplicas``, and one at
    least.

    Args:
        tree: what is wanted.
        observed: the snapshot.
    """

    def __init__(self, tree: Tree, observed: Observed) -> None:
        self._tree = tree
        self._observed = observed
        self._left: dict[tuple[int, str], int] = {}
        self._recovering: Counter[tuple[int, str]] | None = None

    def take(self, unit: int, role: Role) -> bool:
        """Count one more replica that goes, and tell whether it may."""
        key = (unit, role.name)
        if key not in self._left:
            wanted = len(self._tree.layout.units[unit][role.name])
            missing = RolloutBudget.of(role, wanted).unavailable
            most = max(1, wanted - role.min_replicas if missing is None else missing)
            if self._recovering is None:
                self._recovering = self._count()
            self._left[key] = most - self._recovering[key]
        self._left[key] -= 1
        return self._left[key] >= 0

    def _count(self) -> Counter[tuple[int, str]]:
        """Count replicas that have failed and are not Ready yet, by unit and role."""
        failing: Counter[tuple[int, str]] = Counter()
        for (unit, role, _), slots in self._tree.replicas.items():
            places = [self._observed.place(slot) for slot in slots]
            failing[unit, role] += not serves(places) and any(map(_has_failed, places))
        return failing


def _has_failed(place: Place) -> bool:
    if place.now is not None:
        return podstate.past(place.now).failures > 0
    return bool(place.others) or place.tombstone is not None
