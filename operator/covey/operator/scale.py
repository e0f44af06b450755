"""Which units and replicas stay when there are too many, and which numbers are taken when there are too few.

What is lost least stays: a replica that is Ready before one that is only bound, that before one that is only
admitted, that before one that waits; the lower number where that says nothing. So scale-down takes surplus and what
does not serve yet first, and a scale-down that was interrupted goes on with what it has begun. Growth fills free
numbers, lowest first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from covey.api import constants as names
from covey.api import core
from covey.compile.identity import Slot
from covey.compile.layout import Layout, Scale
from covey.compile.revision import Revision, RoleRevision
from covey.operator import podstate
from covey.operator.observe import Observed, number

#: (ready, bound, admitted, live) as shares of the pods that there should be; more is better. Of a unit those of its
#: minimum, then the sums over its surplus.
Standing = tuple[float, ...]
_NOTHING: Standing = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far one replica has come: pods that are live, admitted, bound and ready, of as many as its revision has."""

    revision: RoleRevision
    live: int = 0
    admitted: int = 0
    bound: int = 0
    ready: int = 0

    @property
    def size(self) -> int:
        """Pods that it shall have."""
        return self.revision.size

    @property
    def is_ready(self) -> bool:
        """All its pods are Ready."""
        return self.ready >= self.size

    @property
    def is_bound(self) -> bool:
        """All its pods have nodes."""
        return self.bound >= self.size

    @property
    def is_admitted(self) -> bool:
        """All its pods have been let go."""
        return self.admitted >= self.size

    @property
    def standing(self) -> Standing:
        """What is lost with it."""
        return (self.ready / self.size, self.bound / self.size, self.admitted / self.size, self.live / self.size)


#: By unit, role and replica.
States = Mapping[int, Mapping[str, Mapping[int, ReplicaState]]]


#: The revisions that replicas run at, by unit, role and replica.
Running = Mapping[tuple[int, str, int], RoleRevision]


def running_revisions(observed: Observed, in_force: Revision) -> Running:
    """What the pods of each replica were made from, where a pod of it has, or is to get, a node.

    Their labels say it. A hash that no stored revision explains keeps the replica at the size that it has; what is
    made anew in it is of the revision in force, of which alone the content is known.
    """
    hashes: dict[tuple[int, str, int], set[str]] = {}
    sizes: dict[tuple[int, str, int], int] = {}
    for slot, incarnations in observed.pods.items():
        pod = current(incarnations)
        if pod is None or not podstate.is_admitted(pod) or slot.role not in in_force.roles:
            continue
        replica = (slot.unit, slot.role, slot.replica)
        hashes.setdefault(replica, set()).add(pod.metadata.label(names.LABEL_REVISION) or "")
        sizes[replica] = max(sizes.get(replica, 0), slot.index + 1)
    known = _known_revisions(observed)
    found: dict[tuple[int, str, int], RoleRevision] = {}
    for replica, labels in hashes.items():
        wanted = in_force.roles[replica[1]]
        if wanted.hash in labels:
            found[replica] = wanted
        else:
            explained = next((known[replica[1], each] for each in sorted(labels) if (replica[1], each) in known), None)
            found[replica] = explained or wanted.of_size(sizes[replica])
    return found


def _known_revisions(observed: Observed) -> dict[tuple[str, str], RoleRevision]:
    """Stored revisions by role and hash."""
    return {
        (name, role.hash): role
        for stored in observed.revisions
        if stored.record is not None
        for name, role in stored.record.revision.roles.items()
    }


def replica_states(pods: Mapping[Slot, tuple[core.Pod, ...]], in_force: Revision, running: Running) -> States:
    """The state of every replica that has pods, dead ones included (with nothing to their credit)."""
    counts: dict[int, dict[str, dict[int, list[int]]]] = {}
    revisions: dict[tuple[int, str, int], RoleRevision] = {}
    for slot, incarnations in pods.items():
        if slot.role not in in_force.roles:
            continue
        replica = (slot.unit, slot.role, slot.replica)
        revision = revisions[replica] = running.get(replica, in_force.roles[slot.role])
        tally = counts.setdefault(slot.unit, {}).setdefault(slot.role, {}).setdefault(slot.replica, [0, 0, 0, 0])
        pod = current(incarnations)
        if pod is None or slot.index >= revision.size:
            continue
        marks = (True, podstate.is_admitted(pod), podstate.is_bound(pod), podstate.is_ready(pod))
        for position, mark in enumerate(marks):
            tally[position] += mark
    return {
        unit: {
            role: {number: ReplicaState(revisions[unit, role, number], *tally) for number, tally in replicas.items()}
            for role, replicas in roles.items()
        }
        for unit, roles in counts.items()
    }


def current(incarnations: Iterable[core.Pod]) -> core.Pod | None:
    """The pod that fills a place now: neither dead nor released; of several the one furthest on, then the oldest."""
    live = [pod for pod in incarnations if not podstate.is_dead(pod) and not podstate.is_released(pod)]
    if len(live) < 2:
        return live[0] if live else None
    return min(
        live,
        key=lambda pod: (
            not podstate.is_addressed(pod),
            not podstate.is_bound(pod),
            pod.metadata.creation_timestamp,
            pod.metadata.uid,
        ),
    )


def choose_layout(scale: Scale, in_force: Revision, observed: Observed, states: States) -> Layout:
    """The units and replicas that there shall be, given those that there are."""
    if not scale.units:
        return Layout({})
    groups = _grouped(observed)
    units = {unit: _unit_standing(scale, states.get(unit, {})) for unit in {*states, *groups}}
    return Layout(
        {
            unit: {
                name: _replicas(
                    groups.get(unit, {}).get(name, set()), states.get(unit, {}).get(name, {}), role, count.replicas
                )
                for name, role in in_force.roles.items()
                if (count := scale.roles.get(name)) is not None
            }
            for unit in _keep(units, scale.units)
        }
    )


def _replicas(
    grouped: Collection[int], states: Mapping[int, ReplicaState], in_force: RoleRevision, count: int
) -> dict[int, RoleRevision]:
    """The replicas of one role in one unit: those that stay keep their revision, new ones have the one in force."""
    existing = dict.fromkeys(grouped, _NOTHING) | {n: state.standing for n, state in states.items()}
    return {n: states[n].revision if n in states else in_force for n in _keep(existing, count)}


def _grouped(observed: Observed) -> dict[int, dict[str, set[int]]]:
    """Numbers that have groups, with or without pods."""
    found: dict[int, dict[str, set[int]]] = {}
    for owned in observed.objects.values():
        unit = number(owned.metadata, names.LABEL_UNIT)
        role = owned.metadata.label(names.LABEL_ROLE)
        replica = number(owned.metadata, names.LABEL_REPLICA)
        if unit is None:
            continue
        roles = found.setdefault(unit, {})
        if role is not None and replica is not None:
            roles.setdefault(role, set()).add(replica)
    return found


def _unit_standing(scale: Scale, roles: Mapping[str, Mapping[int, ReplicaState]]) -> Standing:
    """A unit is worth what the worst of its minimums is; of equal ones the one with more replicas beyond it."""
    standings: list[Standing] = []
    beyond = [_NOTHING]
    for name, count in scale.roles.items():
        best = sorted((state.standing for state in roles.get(name, {}).values()), reverse=True)
        standings += [*best, *[_NOTHING] * count.minimum][: count.minimum]
        beyond += best[count.minimum :]
    return (*min(standings, default=_NOTHING), *(sum(shares) for shares in zip(*beyond, strict=True)))


def _keep(existing: Mapping[int, Standing], count: int) -> tuple[int, ...]:
    """``count`` numbers: the best of the existing ones, then free ones from 0."""
    kept = sorted(existing, key=lambda n: ([-share for share in existing[n]], n))[:count]
    taken = set(kept)
    candidate = 0
    while len(taken) < count:
        taken.add(candidate)
        candidate += 1
    return tuple(sorted(taken))
