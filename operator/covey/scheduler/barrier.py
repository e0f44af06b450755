"""The barrier: it decides when the waiting bind calls of a unit may go. Pure.

A bind call is held until all that must start together is there: arrived, or bound already, or pinned under our start
gate. There is no memory of the plan: the groups' nested minimum and the pods as they are decide, so a restarted
barrier finishes what another began, and a gang is partial only until then.

Released are whole replicas only: those of the minimum once the unit's minimum is there, a surplus replica when it is
complete itself (and its ``together`` set with it) while the unit's minimum is bound or goes with it. The pods of a
PodGroup alone with ``basic`` policy have no minimum to wait for.

Marks on pods whose bind call is held here, for the leader, who may be another replica.

Without them the leader would release such a pod while it still says ``Unschedulable``, for kube-scheduler does not take
that word back when it finds a place. A mark is written again while the call is held; one that is not was left by a
barrier that has died.

Counts how many pods of a unit are present at the barrier, event by event. Pure.

A call that arrives, or a pod that changes, costs the same in a gang of eight pods and of four thousand. Only when the
counts say that the minimum may be complete need the whole unit be looked at (``barrier.releasable``), which decides.
The counts leave out what makes a replica wait for others (``together``), so they are never lower than the truth. Where
it depends on the pods' states which of them are the minimum, nothing is counted, and each event may matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from covey.admission.tree import Key, Replica, Unit, replica_met
from covey.api import core
from covey.api.constants import (
    LABEL_INDEX,
    LABEL_POD_GROUP,
    LABEL_REPLICA,
    LABEL_TOGETHER,
    RELEASE_CAPACITY_TAKEN,
    RELEASE_NODE_LOST,
)
from covey.model import podstate
from covey.placement.cluster.shape import ANTI_AFFINITY, EXCLUSIVE_CLIQUE_TAKEN, HOST_PORTS
from covey.scheduler.bindings import Tasks
from covey.scheduler.index import Index
from covey.scheduler.writer import ARRIVED, LEFT, RENEW, PodWriter, says_arrived


class ArrivalMarks:
    """Writes the marks.

    Args:
        index: the pods as they are.
        writer: annotates them.
        held: whether a call for the pod of a UID is held.
    """

    def __init__(self, index: Index, writer: PodWriter, held: Callable[[str], bool]) -> None:
        self._index = index
        self._writer = writer
        self._held = held
        self._tasks = Tasks()
        #: UIDs of held pods whose mark is to be written again.
        self._renewals: dict[str, asyncio.TimerHandle] = {}

    def tell(self, pod: core.Pod | None) -> None:
        """A call for this pod is held."""
        if pod is None or not podstate.counts(pod) or not podstate.scheduling_failure(pod):
            return
        uid = pod.metadata.uid
        if says_arrived(pod) and uid in self._renewals:
            return
        if uid not in self._renewals:
            self._renewals[uid] = asyncio.get_running_loop().call_later(RENEW, self._renew, uid)
        self._tasks.start(self._writer.wake(pod, f"{pod.metadata.resource_version}{ARRIVED}"))

    def end(self, uid: str, *, failed: bool) -> None:
        """No call for this pod is held any more.

        A mark that stays behind keeps the leader's doubts away, not the pin's time-out.
        """
        if (renewal := self._renewals.pop(uid, None)) is not None:
            renewal.cancel()
        pod = self._index.pod(uid)
        gone = pod is None or not podstate.counts(pod) or pod.spec.node_name is not None
        if failed and pod is not None and not gone and says_arrived(pod):
            self._tasks.start(self._writer.wake(pod, f"{pod.metadata.resource_version}{LEFT}"))

    def _renew(self, uid: str) -> None:
        del self._renewals[uid]
        if self._held(uid):
            self.tell(self._index.pod(uid))


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


class Progress:
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


#: Bind calls of gangs that are held at one time, about 17 KB of memory and one file descriptor each.
MAX_HELD: Final = 4096


@dataclass(frozen=True, slots=True)
class Call:
    """One bind call. ``turn`` tells a newer call for the same pod from the one it replaced.

    ``root`` is the unit that the pod belonged to when the call came: whatever becomes of the groups, the call is found
    under it.
    """

    uid: str
    namespace: str
    name: str
    node: str
    root: Key
    turn: int
    since: float


class HeldCalls:
    """The calls that are held, one for each pod."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._by_root: dict[Key, dict[str, Call]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, uid: object) -> bool:
        return uid in self._calls

    def arrive(self, call: Call) -> Call | None:
        """Hold a call. Returns the older call for the same pod, which nobody waits for any more."""
        older = self._calls.get(call.uid)
        if older is not None:
            self.leave(older)
        self._calls[call.uid] = call
        self._by_root.setdefault(call.root, {})[call.uid] = call
        return older

    def leave(self, call: Call) -> bool:
        """The caller hung up or was answered. A newer call for the same pod stays. True if this one was held."""
        if self._calls.get(call.uid) is not call:
            return False
        del self._calls[call.uid]
        beside = self._by_root[call.root]
        del beside[call.uid]
        if not beside:
            del self._by_root[call.root]
        return True

    def get(self, uid: str) -> Call | None:
        """The call that waits for a pod."""
        return self._calls.get(uid)

    def holds(self, root: Key) -> bool:
        """A call waits for a pod of a unit."""
        return root in self._by_root

    def of(self, root: Key) -> list[Call]:
        """The calls that came for the pods of a unit."""
        return list(self._by_root.get(root, {}).values())

    @property
    def calls(self) -> Mapping[str, Call]:
        """All calls by pod UID."""
        return self._calls


def present(pod: core.Pod, calls: Mapping[str, Call]) -> bool:
    """The pod is bound where it belongs, waits at the barrier for its pinned node, or waits under our start gate."""
    if podstate.occupies_node(pod):
        pin = core.pinned_node(pod)
        return pin is None or pin == pod.spec.node_name
    call = calls.get(pod.metadata.uid)
    if call is not None:
        return call.node == podstate.pinned_node(pod)
    return podstate.waits_for_start(pod)


def releasable(unit: Unit, calls: Mapping[str, Call]) -> list[core.Pod]:
    """The waiting pods of a unit that may be bound now, in the order of roles, replicas and indices."""

    def is_present(pod: core.Pod) -> bool:
        return present(pod, calls)

    if unit.absent or not any(pod.metadata.uid in calls for pod in unit.pods()):
        return []
    torn = _torn(unit, is_present)
    complete = _with_what_they_follow(unit, [_complete(role.replicas, torn, is_present) for role in unit.roles])
    if not (unit.one_by_one or any(role.minimum for role in unit.roles)):
        return []
    if any(len(whole) < role.minimum for role, whole in zip(unit.roles, complete, strict=True)):
        return []
    return [
        pod
        for whole in complete
        for replica in whole
        for pod in replica.pods
        if pod.metadata.uid in calls and not podstate.occupies_node(pod)
    ]


def _with_what_they_follow(unit: Unit, complete: list[list[Replica]]) -> list[list[Replica]]:
    """Without the surplus of replicas that may not go themselves."""
    while True:
        going = {(role.name, r.number) for role, whole in zip(unit.roles, complete, strict=True) for r in whole}
        kept = [[r for r in whole if r.after is None or r.after in going] for whole in complete]
        if kept == complete:
            return kept
        complete = kept


def _torn(unit: Unit, here: Callable[[core.Pod], bool]) -> frozenset[str]:
    """The ``together`` marks under which a replica is not whole."""
    return frozenset(
        replica.together
        for role in unit.roles
        for replica in role.replicas
        if replica.together and not replica_met(replica, here)
    )


def _complete(replicas: tuple[Replica, ...], torn: frozenset[str], here: Callable[[core.Pod], bool]) -> list[Replica]:
    """Whole replicas that may go: what is bound stays counted, whatever became of its ``together`` set."""
    return [
        replica
        for replica in replicas
        if replica_met(replica, podstate.occupies_node) or (replica.together not in torn and replica_met(replica, here))
    ]


def release_reason(cause: str) -> str:
    """The release reason that goes with the planner's cause."""
    taken = cause.startswith("insufficient") or cause in {HOST_PORTS, ANTI_AFFINITY, EXCLUSIVE_CLIQUE_TAKEN}
    return RELEASE_CAPACITY_TAKEN if taken else RELEASE_NODE_LOST
