"""The order in which pods start: those that the start gate holds, what they wait for, and whose turn it is.

A gang is placed as a whole, so a pod that waits here has its node already and can miss nothing but time. What a pod
waits for is judged in its own unit, by what is now: a successor of a pod that had started starts at once where the
others run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from covey.api import constants as names
from covey.api import core, times
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Dependency, DependencyCondition, Role, Startup
from covey.compile import Scale, Slot
from covey.operator.replicas.scale import ReplicaState, States, count_unit
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Actions, Ungate
from covey.operator.terms.outcome import Outcome

_NOTHING: Final[Mapping[str, Mapping[int, ReplicaState]]] = {}


@dataclass(frozen=True, slots=True)
class Starting:
    """Pods whose turn it is, and by unit what the others wait for."""

    ungate: tuple[Ungate, ...] = ()
    waits: Mapping[int, str] | None = None
    #: Seconds after which a pod has waited long enough since its replica failed.
    again: float | None = None

    @property
    def outcome(self) -> Outcome:
        """Gates to lift."""
        return Outcome(Actions(ungate=self.ungate), again=self.again)

    def of(self, unit: int) -> str:
        """Reasons to wait in a unit, as ``decode waits for prefill to be Ready``; empty when no pod waits."""
        return (self.waits or {}).get(unit, "")

    @property
    def everybody(self) -> str:
        """Reasons to wait in all units, each once; empty when no pod waits."""
        return "; ".join(dict.fromkeys((self.waits or {}).values()))


def find_starting(spec: DisaggregatedInferenceSpec, states: States, observed: Observed) -> Starting:
    """Judge every pod that has the start gate.

    Args:
        spec: what is kept up.
        states: how far each replica has come.
        observed: the snapshot.
    """
    roles, scale = {role.name: role for role in spec.roles}, Scale.of(spec)
    ungate: list[Ungate] = []
    waits: dict[int, dict[str, None]] = {}
    later: list[float] = []
    for slot, pod in _held(observed):
        causes = tuple(_causes(roles.get(slot.role), slot, scale, states.get(slot.unit, _NOTHING), observed))
        until = starts_at(pod, roles.get(slot.role))
        if until > observed.now:
            later.append(until - observed.now)
            failed = f"{podstate.past(pod).failures} failures in a row"
            causes = (*causes, f"{slot.role} starts at {times.rfc3339(until)} after {failed}")
        if not causes:
            ungate.append(Ungate(pod, names.GATE_START))
        for cause in causes:
            waits.setdefault(slot.unit, {})[cause] = None
    told = {unit: "; ".join(sorted(causes)) for unit, causes in waits.items()}
    return Starting(tuple(ungate), told, min(later, default=None))


def starts_at(pod: core.Pod, role: Role | None) -> float:
    """Time at which a pod may start after failures of its replica, in seconds since the epoch."""
    return podstate.past(pod).starts_at(role.backoff) if role is not None else 0.0


def _held(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if names.GATE_START in core.gates(pod):
            yield slot, pod


def _causes(
    role: Role | None, slot: Slot, scale: Scale, unit: Mapping[str, Mapping[int, ReplicaState]], observed: Observed
) -> Iterator[str]:
    if role is None:
        return
    for dependency in role.depends_on:
        if not _holds(dependency, scale, unit):
            yield f"{role.name} waits for {dependency.role} to be {dependency.condition}"
    if role.startup is Startup.LEADER_READY and slot.index > 0:
        leader = observed.current.get(slot._replace(index=0))
        if leader is None or not podstate.is_ready(leader):
            yield f"the workers of {role.name} wait for their leader to be Ready"


def _holds(dependency: Dependency, scale: Scale, unit: Mapping[str, Mapping[int, ReplicaState]]) -> bool:
    """Tell whether the minimum of the other role has come as far; a role that is not wanted at all holds none back."""
    role = {name: count for name, count in scale.roles.items() if name == dependency.role}
    scheduled = dependency.condition is DependencyCondition.SCHEDULED
    return count_unit(role, unit, attrgetter("is_bound" if scheduled else "is_ready")).has_minimum
