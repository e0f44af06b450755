"""Progress of replicas, and the choice of units that stay when there are too many.

Victims are chosen in this order, units like replicas (by their minimum, and the sum over their pods). Of units those go
before that serve nobody, and then those of whose minimum fewer pods hold nodes: one that waits for room takes no nodes
from one that was hit.

1. not admitted, 2. not bound, 3. not Ready, 4. those that lack pods (what was begun goes on),
5. the lowest sum of ``controller.kubernetes.io/pod-deletion-cost`` (KEP-2255),
6. the smallest share of pods that are Ready, bound, admitted,
7. those whose going frees most room (`Rooms`), 8. the highest number.

Growth fills free numbers, lowest first. Which replicas a unit has, and of which revision, is said by
``rolling.layout``.

The room that a replica, or a unit, frees when it goes: whole domains are worth more than single places. Where a pod lies
is what Covey's scheduler has written on it with the pin (``recorded_domains``); pods of other schedulers say nothing,
and then nothing is said here. The one that leaves fewest pods of the resource behind in its domains goes first, the
finest level counting most: one that is alone in a domain frees it. Of several such domains that of the highest number is
emptied first, so that those that go together come from the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from covey.admission.topologies import recorded_domains
from covey.api import constants as names
from covey.api import core
from covey.compile.identity import ReplicaKey, Slot
from covey.compile.layout import RoleCount, Scale, UnitCount
from covey.compile.revision import Revision, RoleRevision
from covey.model import podstate
from covey.operator.model.observed import Observed, number

#: What is lost with a replica or a unit; the one with less goes first.
Standing = tuple[float, ...]
#: Of pods that there should be, those that are Ready, bound, admitted.
_NO_SHARES: Standing = (0.0, 0.0, 0.0)
_NO_PROGRESS: Standing = (0.0, 0.0, 0.0, 0.0)
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


def choose_units(scale: Scale, observed: Observed, states: States) -> tuple[int, ...]:
    """Choose the units that there shall be, given those that there are."""
    groups = {number(owned.metadata, names.LABEL_UNIT) for owned in observed.objects.values()} - {None}
    existing = {unit for unit in {*states, *groups} if unit is not None}
    rooms = Rooms(observed.current.items()).of_units() if len(existing) > scale.units else {}
    units = {unit: (*_unit_standing(scale, states.get(unit, {})), *rooms.get(unit, ())) for unit in existing}
    return _keep(units, scale.units)


def _unit_standing(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> Standing:
    """Worth of a unit: whether it serves, the nodes that its minimum holds, its worst replica, the cost, and what goes beyond."""
    worst: list[tuple[Standing, Standing]] = []
    beyond = [_NO_SHARES]
    serves, holding = True, 0
    for name, count in scale.roles.items():
        replicas = sorted(roles.get(name, {}).values(), key=lambda state: (state.progress, state.shares), reverse=True)
        if count.minimum:
            serves &= any(state.is_ready for state in replicas)
            holding += sum(state.admitted for state in replicas[: count.minimum])
        best = [(state.progress, state.shares) for state in replicas]
        worst += [*best, *[(_NO_PROGRESS, _NO_SHARES)] * count.minimum][: count.minimum]
        beyond += [shares for _, shares in best[count.minimum :]]
    progress, shares = min(worst, default=(_NO_PROGRESS, _NO_SHARES))
    cost = sum(state.cost for states in roles.values() for state in states.values())
    return (serves, holding, *progress, cost, *shares, *(sum(counts) for counts in zip(*beyond, strict=True)))


def _keep(existing: Mapping[int, Standing], count: int) -> tuple[int, ...]:
    """``count`` numbers: the best of the existing ones, then free ones from 0."""
    kept = sorted(existing, key=lambda n: ([-share for share in existing[n]], n))[:count]
    taken = set(kept)
    candidate = 0
    while len(taken) < count:
        taken.add(candidate)
        candidate += 1
    return tuple(sorted(taken))


#: Pods by domain, for each level from broad to narrow. A domain is the path of label values that leads to it.
Footprint = tuple[Counter[tuple[str, ...]], ...]


#: Compared as a whole; the one with less goes first.
Kept = tuple[float, ...]


#: The highest number in each domain, by level.
Tops = list[dict[tuple[str, ...], int]]


class Rooms:
    """The room that one resource takes; ``live`` has the pods that fill places now."""

    def __init__(self, live: Iterable[tuple[Slot, core.Pod]]) -> None:
        self._live = tuple(live)
        self._levels = _levels(pod for _, pod in self._live)
        self._everybody = _footprint((pod for _, pod in self._live), self._levels)

    def of_replicas(self, unit: int, role: str) -> dict[int, Kept]:
        """Worth of the room of each replica of a role; the one with less goes first."""
        return self._rank_footprints(
            (slot.replica, pod) for slot, pod in self._live if (slot.unit, slot.role) == (unit, role)
        )

    def of_units(self) -> dict[int, Kept]:
        """Worth of the room of each unit; the one with less goes first."""
        return self._rank_footprints((slot.unit, pod) for slot, pod in self._live)

    def _rank_footprints(self, numbered: Iterable[tuple[int, core.Pod]]) -> dict[int, Kept]:
        pods: dict[int, list[core.Pod]] = {}
        for rank, pod in numbered:
            pods.setdefault(rank, []).append(pod)
        footprints = {rank: _footprint(rank_pods, self._levels) for rank, rank_pods in pods.items()}
        tops: Tops = [{} for _ in self._levels]
        for rank, footprint in footprints.items():
            for top, counts in zip(tops, footprint, strict=True):
                for domain in counts:
                    top[domain] = max(rank, top.get(domain, rank))
        return {rank: _remaining_rank(footprint, self._everybody, tops) for rank, footprint in footprints.items()}


def _levels(pods: Iterable[core.Pod]) -> tuple[str, ...]:
    """The levels that pods name, from broad to narrow: a broader one has fewer domains."""
    domains: dict[str, set[str]] = {}
    for pod in pods:
        for level, value in recorded_domains(pod).items():
            domains.setdefault(level, set()).add(value)
    return tuple(sorted(domains, key=lambda level: (len(domains[level]), level)))


def _footprint(pods: Iterable[core.Pod], levels: Sequence[str]) -> Footprint:
    """Count the pods in each domain."""
    footprint: Footprint = tuple(Counter() for _ in levels)
    for pod in pods:
        path: tuple[str, ...] = ()
        domains = recorded_domains(pod)
        for level, counts in zip(levels, footprint, strict=True):
            value = domains.get(level)
            if value is not None:
                path = (*path, value)
                counts[path] += 1
    return footprint


def _remaining_rank(footprint: Footprint, everybody: Footprint, tops: Tops) -> Kept:
    rest = [
        sum(total[domain] - count for domain, count in counts.items())
        for counts, total in zip(footprint, everybody, strict=True)
    ]
    highest = [max((top[domain] for domain in counts), default=-1) for counts, top in zip(footprint, tops, strict=True)]
    return (*reversed(rest), *(-number for number in highest))
