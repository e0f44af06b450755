"""Which units and replicas stay when there are too many, and which numbers are taken when there are too few.

What is lost least stays: a replica that is Ready before one that is only bound, that before one that is only
admitted, that before one that waits; the lower number where that says nothing. So scale-down takes surplus and what
does not serve yet first, and a scale-down that was interrupted goes on with what it has begun. Growth fills free
numbers, lowest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.compile.layout import Layout
from covey.operator import podstate
from covey.operator.observe import Observed, number

#: (ready, bound, admitted, live) as shares of the pods that there should be; more is better. Of a unit those of its
#: minimum, then the sums over its surplus.
Standing = tuple[float, ...]
_NOTHING: Standing = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How far one replica has come: pods that are live, admitted, bound and ready, of ``size``."""

    size: int
    live: int = 0
    admitted: int = 0
    bound: int = 0
    ready: int = 0

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


def replica_states(pods: Mapping[Slot, tuple[core.Pod, ...]], sizes: Mapping[str, int]) -> States:
    """The state of every replica that has pods, dead ones included (with nothing to their credit)."""
    counts: dict[int, dict[str, dict[int, list[int]]]] = {}
    for slot, incarnations in pods.items():
        if slot.role not in sizes:
            continue
        role = counts.setdefault(slot.unit, {}).setdefault(slot.role, {})
        tally = role.setdefault(slot.replica, [0, 0, 0, 0])
        if slot.index >= sizes[slot.role]:
            continue
        pod = current(incarnations)
        if pod is None:
            continue
        marks = (True, podstate.is_admitted(pod), podstate.is_bound(pod), podstate.is_ready(pod))
        for position, mark in enumerate(marks):
            tally[position] += mark
    return {
        unit: {
            role: {replica: ReplicaState(sizes[role], *tally) for replica, tally in replicas.items()}
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


def choose_layout(spec: DisaggregatedInferenceSpec, observed: Observed, states: States) -> Layout:
    """The units and replicas that there shall be, given those that there are."""
    if spec.suspend:
        return Layout({})
    groups = _grouped(observed)
    units = {unit: _unit_standing(spec, states.get(unit, {})) for unit in {*states, *groups}}
    return Layout(
        {
            unit: {
                role.name: _keep(
                    dict.fromkeys(groups.get(unit, {}).get(role.name, ()), _NOTHING)
                    | {n: state.standing for n, state in states.get(unit, {}).get(role.name, {}).items()},
                    role.replicas,
                )
                for role in spec.roles
            }
            for unit in _keep(units, spec.replicas)
        }
    )


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


def _unit_standing(spec: DisaggregatedInferenceSpec, roles: Mapping[str, Mapping[int, ReplicaState]]) -> Standing:
    """A unit is worth what the worst of its minimums is; of equal ones the one with more replicas beyond it."""
    standings: list[Standing] = []
    beyond = [_NOTHING]
    for role in spec.roles:
        best = sorted((state.standing for state in roles.get(role.name, {}).values()), reverse=True)
        standings += [*best, *[_NOTHING] * role.min_replicas][: role.min_replicas]
        beyond += best[role.min_replicas :]
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
