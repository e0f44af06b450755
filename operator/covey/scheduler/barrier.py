"""The barrier: it decides when the waiting bind calls of a unit may go. Pure.

A bind call is held until all that must start together is there: arrived, or bound already, or pinned under our start
gate. There is no memory of the plan: the groups' nested minimum and the pods as they are decide, so a restarted
barrier finishes what another began, and a gang is partial only until then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from covey.admission.nodes import Key
from covey.admission.roles import Replica
from covey.admission.tree import Unit, replica_met
from covey.api import core
from covey.api.constants import RELEASE_CAPACITY_TAKEN, RELEASE_NODE_LOST
from covey.model import podstate
from covey.placement.cluster.shape import ANTI_AFFINITY, EXCLUSIVE_CLIQUE_TAKEN, HOST_PORTS

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
    """The waiting pods of a unit that may be bound now, in the order of roles, replicas and indices.

    Whole replicas only: those of the minimum once the unit's minimum is there, a surplus replica when it is complete
    itself (and its ``together`` set with it) while the unit's minimum is bound or goes with it. The pods of a PodGroup
    alone with ``basic`` policy have no minimum to wait for.
    """

    def is_present(pod: core.Pod) -> bool:
        return present(pod, calls)

    # 1. Groups are missing, or nobody waits, or it is no gang.
    if unit.absent or not any(pod.metadata.uid in calls for pod in unit.pods()):
        return []
    if not (unit.one_by_one or any(role.minimum for role in unit.roles)):
        return []
    # 2. The whole replicas of each role, without those whose set is torn, or that follow one that does not go.
    torn = frozenset(
        replica.together
        for role in unit.roles
        for replica in role.replicas
        if replica.together and not replica_met(replica, is_present)
    )
    complete = _with_what_they_follow(unit, [_complete(role.replicas, torn, is_present) for role in unit.roles])
    # 3. The minimum comes first.
    if any(len(whole) < role.minimum for role, whole in zip(unit.roles, complete, strict=True)):
        return []
    # 4. Of these, the pods that wait at the barrier.
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
