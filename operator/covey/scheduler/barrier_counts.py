"""Counts how many pods of a unit are present at the barrier, event by event. Pure.

A call that arrives, or a pod that changes, costs the same in a gang of eight pods and of four thousand. Only when the
counts say that the minimum may be complete need the whole unit be looked at (``barrier.releasable``), which decides.
The counts leave out what makes a replica wait for others (``together``), so they are never lower than the truth. Where
it depends on the pods' states which of them are the minimum, nothing is counted, and each event may matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from covey.admission.roles import Replica
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_POD_GROUP, LABEL_REPLICA, LABEL_TOGETHER
from covey.model import podstate
from covey.scheduler.barrier import Call, present

#: What places a pod in the tree; a pin adds others.
_LABELS: Final = (LABEL_POD_GROUP, LABEL_REPLICA, LABEL_INDEX, LABEL_TOGETHER)


class _Standing(NamedTuple):
    """The fields of a pod that decide whether, and where, it stands in the tree."""

    counts: bool
    labels: tuple[str | None, ...]
    owner: str | None


@dataclass(slots=True)
class _Role:
    """``complete``: replicas of which every pod is present."""

    minimum: int
    complete: int = 0


@dataclass(slots=True)
class _Replica:
    """``missing``: pods that are neither present nor bound, or do not exist."""

    role: _Role
    missing: int


@dataclass(slots=True)
class _Slot:
    """One pod in its replica."""

    standing: _Standing
    replica: _Replica
    here: bool = False
    bound: bool = False


class BarrierCounts:
    """The counts of one unit.

    Args:
        unit: as it is now.
        members: all pods that carry the label of one of its groups.
        calls: the held calls, as they are at any time.
    """

    def __init__(self, unit: Unit, members: Iterable[core.Pod], calls: Mapping[str, Call]) -> None:
        self._calls = calls
        self._slots: dict[str, _Slot] = {}
        self._roles: list[_Role] = []
        #: How often the unit has lost something: a pod that was present, or its shape.
        self.losses = 0
        #: The tree has changed since it was counted.
        self.stale = False
        #: A Binding may complete a replica of which every pod was present already.
        self._each_counts = False
        self._loose = bool(unit.guessed)
        self._waits = unit.absent > 0 or not (unit.one_by_one or any(role.minimum for role in unit.roles))
        for role in unit.roles:
            self._roles.append(counted := _Role(role.minimum))
            for replica in role.replicas:
                self._count(counted, replica)
        self._others = {pod.metadata.uid: _standing(pod) for pod in members if pod.metadata.uid not in self._slots}
        # A member that could stand for a place, and does not: which of them does is a matter of their states.
        self._loose |= any(standing.counts for standing in self._others.values())

    @property
    def pods(self) -> int:
        """The number of pods that are counted."""
        return len(self._slots)

    def may_go(self) -> bool:
        """The minimum may be complete."""
        if self._loose or self.stale:
            return True
        return not self._waits and all(role.complete >= role.minimum for role in self._roles)

    def change(self, pod: core.Pod, *, called: bool = False) -> bool:
        """A pod has changed, or its call has come (``called``) or gone. Returns whether to look at the unit."""
        uid = pod.metadata.uid
        slot = self._slots.get(uid)
        standing = _standing(pod)
        if slot is None or slot.standing != standing:
            if slot is None and self._others.get(uid) == standing:
                return self._loose
            self.stale = True
            self.losses += 1
            return True
        was = (slot.here, slot.bound)
        self._update_slot(slot, pod)
        news = called or (slot.here and not was[0]) or (self._each_counts and slot.bound and not was[1])
        return self._loose or (news and self._matters(slot))

    def drop(self, uid: str) -> bool:
        """A pod is gone. Returns whether to look at the unit."""
        self._others.pop(uid, None)
        slot = self._slots.pop(uid, None)
        if slot is not None:
            self._update_slot(slot, None)
        return self._loose

    def _matters(self, slot: _Slot) -> bool:
        return self._loose or (slot.here and not slot.replica.missing and self.may_go())

    def _count(self, role: _Role, replica: Replica) -> None:
        counted = _Replica(role, max(replica.size, len(replica.pods)))
        role.complete += not counted.missing
        self._each_counts |= replica.together is not None
        self._loose |= replica.after is not None or bool(replica.parts)
        for pod in replica.pods:
            slot = self._slots[pod.metadata.uid] = _Slot(_standing(pod), counted)
            self._update_slot(slot, pod)

    def _update_slot(self, slot: _Slot, pod: core.Pod | None) -> None:
        """Note how a pod is now; one that is gone is nowhere."""
        slot.bound = pod is not None and podstate.occupies_node(pod)
        there = pod is not None and present(pod, self._calls)
        # A replica whose pods are all bound is complete wherever they are.
        self._each_counts |= slot.bound and not there
        here = there or slot.bound
        if slot.here is here:
            return
        slot.here = here
        replica = slot.replica
        replica.role.complete -= not replica.missing
        replica.missing += -1 if here else 1
        replica.role.complete += not replica.missing
        self.losses += not here


def _standing(pod: core.Pod) -> _Standing:
    meta = pod.metadata
    labels = tuple(meta.label(label) for label in _LABELS)
    return _Standing(podstate.counts(pod), labels, meta.controller.uid if meta.controller else None)
