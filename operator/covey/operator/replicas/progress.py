"""Progress of replicas: how far the pods of each have come, and of which revision it is.

Which replicas a unit has, and of which revision, is said by ``rolling.layout``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.compile.identity import ReplicaKey, Slot
from covey.compile.layout import RoleCount, UnitCount
from covey.compile.revision import Revision, RoleRevision
from covey.model import podstate
from covey.operator.model.observed import Observed

#: What is lost with a replica or a unit; the one with less goes first.
Standing = tuple[float, ...]
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Progress of one replica: its pods that are live, admitted, bound and ready, of as many as its revision has.

    ``cost`` is the sum of what people say its pods cost to delete.
    """

    revision: RoleRevision
    live: int = 0
    admitted: int = 0
    bound: int = 0
    ready: int = 0
    cost: int = 0

    @property
    def size(self) -> int:
        """Pods that it shall have."""
        return self.revision.size

    @property
    def is_ready(self) -> bool:
        """Tell whether all its pods are Ready."""
        return self.ready >= self.size

    @property
    def is_bound(self) -> bool:
        """Tell whether all its pods have nodes."""
        return self.bound >= self.size

    @property
    def is_admitted(self) -> bool:
        """Tell whether all its pods are admitted."""
        return self.admitted >= self.size

    @property
    def progress(self) -> Standing:
        """Progress of the whole replica: admitted, bound, Ready, and the share of its pods that live."""
        return (self.is_admitted, self.is_bound, self.is_ready, self.live / self.size)

    @property
    def shares(self) -> Standing:
        """Shares of its pods that are Ready, bound, admitted."""
        return (self.ready / self.size, self.bound / self.size, self.admitted / self.size)

    @property
    def standing(self) -> Standing:
        """Worth of what is lost with the replica; the one with less goes first."""
        return (*self.progress, self.cost, *self.shares)


def count_unit(
    roles: Mapping[str, RoleCount],
    states: Mapping[str, Mapping[int, ReplicaState]],
    is_counted: Callable[[ReplicaState], bool],
) -> UnitCount:
    """Count the replicas of a unit that have come as far as is asked, next to its minimum.

    Args:
        roles: what the unit shall have.
        states: how far its replicas have come.
        is_counted: whether a replica has come as far.
    """
    counts = {name: sum(map(is_counted, states.get(name, {}).values())) for name in roles}
    return UnitCount.of(counts, roles)


#: By unit, role and replica.
States = Mapping[int, Mapping[str, Mapping[int, ReplicaState]]]


#: The revisions that replicas run at, by unit, role and replica.
Running = Mapping[ReplicaKey, RoleRevision]


def running_revisions(observed: Observed, in_force: Revision) -> Running:
    """The revision that each replica is made from, as the labels of its pods say.

    Pods that have, or are to get, a node are asked before those that wait, and the dead and the lost last: a replica
    that was lost is made again as it was. A hash that no stored revision explains keeps the replica at the size that it
    has; new pods of it are of the revision in force, of which alone the content is known.
    """
    known, sizes = known_revisions(observed), dict[ReplicaKey, int]()
    labelled: dict[ReplicaKey, tuple[int, set[str]]] = {}
    for slot, rank, label in _labels(observed):
        if slot.role not in in_force.roles:
            continue
        replica = slot[:3]
        before = labelled.get(replica)
        if before is None or rank < before[0]:
            labelled[replica] = (rank, {label})
        elif rank == before[0]:
            before[1].add(label)
        if rank == _ADMITTED and slot.index >= sizes.get(replica, 0):
            sizes[replica] = slot.index + 1
    revisions: dict[ReplicaKey, RoleRevision] = {}
    for replica, (_, labels) in labelled.items():
        wanted = in_force.roles[replica[1]]
        explained = next(
            (known[replica[1], revision] for revision in sorted(labels) if (replica[1], revision) in known), wanted
        )
        if wanted.hash in labels or replica not in sizes or explained is not wanted:
            revisions[replica] = wanted if wanted.hash in labels else explained
        else:
            revisions[replica] = wanted.of_size(sizes[replica])
    return revisions


_ADMITTED = 0


def _labels(observed: Observed) -> Iterator[tuple[Slot, int, str]]:
    """Places, ranks and revision labels of all pods and tombstones: of a replica, the labels of the least rank count."""
    for slot, incarnations in observed.pods.items():
        pod = observed.current.get(slot)
        if pod is not None:
            rank = _ADMITTED if podstate.is_admitted(pod) else 1
            yield slot, rank, pod.metadata.label(names.LABEL_REVISION) or ""
        for incarnation in incarnations:
            if incarnation is not pod and incarnation.metadata.uid not in observed.retired:
                yield slot, 2, incarnation.metadata.label(names.LABEL_REVISION) or ""
    for slot, tombstone in observed.tombstones.items():
        if not tombstone.retired:
            yield slot, 3, tombstone.labels.get(names.LABEL_REVISION, "")


def known_revisions(observed: Observed) -> dict[tuple[str, str], RoleRevision]:
    """Stored revisions by role and hash."""
    return {
        (name, role.hash): role
        for stored in observed.revisions
        if stored.record is not None
        for name, role in stored.record.revision.roles.items()
    }


def replica_states(observed: Observed, in_force: Revision, running: Running) -> States:
    """The state of every replica that has pods; dead pods count for nothing."""
    counts: dict[int, dict[str, dict[int, list[int]]]] = {}
    revisions: dict[ReplicaKey, RoleRevision] = {}
    tallies: dict[ReplicaKey, list[int]] = {}
    sizes: dict[ReplicaKey, int] = {}
    for slot in observed.pods:
        if slot.role not in in_force.roles:
            continue
        replica = slot[:3]
        tally = tallies.get(replica)
        if tally is None:
            revisions[replica] = running.get(replica, in_force.roles[slot.role])
            sizes[replica] = revisions[replica].size
            tally = tallies[replica] = [0, 0, 0, 0, 0]
            counts.setdefault(slot.unit, {}).setdefault(slot.role, {})[slot.replica] = tally
        pod = observed.current.get(slot)
        if pod is None or slot.index >= sizes[replica]:
            continue
        bound = podstate.is_bound(pod)
        tally[0] += 1
        tally[1] += bound or podstate.is_admitted(pod)
        tally[2] += bound
        tally[3] += podstate.is_ready(pod)
        tally[4] += _cost(pod)
    return {
        unit: {
            role: {number: ReplicaState(revisions[unit, role, number], *tally) for number, tally in replicas.items()}
            for role, replicas in roles.items()
        }
        for unit, roles in counts.items()
    }


def _cost(pod: core.Pod) -> int:
    """Deletion cost of a pod; 0 where no value is given that Kubernetes would take (``int32``)."""
    stated = pod.metadata.annotation(_COST)
    if stated is None or not stated.removeprefix("-").isdecimal():
        return 0
    cost = int(stated)
    return cost if -_INT32 <= cost < _INT32 else 0
