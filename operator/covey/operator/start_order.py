"""The order in which pods start: those that the start gate holds, what they wait for, and whose turn it is.

A gang is placed as a whole, so a pod that waits here has its node already and can miss nothing but time. What a pod
waits for is judged in its own unit, by what is now: a successor of a pod that had started starts at once where the
others run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.roles import Dependency, DependencyCondition, Role, Startup
from covey.compile import Scale, Slot
from covey.model import podstate
from covey.operator.feature import Changes, Feature, StatusPart
from covey.operator.intent import Intent
from covey.operator.model.actions import Actions, Ungate
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome
from covey.operator.replicas.progress import ReplicaState, count_unit

_NOTHING: Final[Mapping[str, Mapping[int, ReplicaState]]] = {}


@dataclass
class StartOrder(Feature):
    """The order in which pods start, by the gate that they are born with."""

    HONOURS = frozenset({"spec.roles[].dependsOn", "spec.roles[].startup"})

    _waits: Mapping[int, str] = field(init=False, default_factory=dict)

    def outcome(self, changes: Changes) -> Outcome:
        """The pods whose turn it is, and when another has waited long enough since its replica failed."""
        spec, observed = self.given.spec, self.given.observed
        roles, scale = {role.name: role for role in spec.roles}, Scale.of(spec)
        ungate: list[Ungate] = []
        waits: dict[int, dict[str, None]] = {}
        later: list[float] = []
        gated = ((slot, pod) for slot, pod in observed.current.items() if names.GATE_START in core.gates(pod))
        for slot, pod in gated:
            unit = changes.intent.states.get(slot.unit, _NOTHING)
            causes = tuple(_causes(roles.get(slot.role), slot, scale, unit, observed))
            until = _starts_at(pod, roles.get(slot.role))
            if until > observed.now:
                later.append(until - observed.now)
                failed = f"{podstate.past(pod).failures} failures in a row"
                causes = (*causes, f"{slot.role} starts at {core.rfc3339(until)} after {failed}")
            if not causes:
                ungate.append(Ungate(pod, names.GATE_START))
            for cause in causes:
                waits.setdefault(slot.unit, {})[cause] = None
        self._waits = {unit: "; ".join(sorted(causes)) for unit, causes in waits.items()}
        return Outcome(Actions(ungate=tuple(ungate)), again=min(later, default=None))

    def status(self, intent: Intent) -> StatusPart:
        """What the others wait for, as ``decode waits for prefill to be Ready``."""
        del intent
        return StatusPart(waits=self._waits)


def _starts_at(pod: core.Pod, role: Role | None) -> float:
    """Time at which a pod may start after failures of its replica, in seconds since the epoch."""
    return podstate.past(pod).starts_at(role.backoff) if role is not None else 0.0


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
