"""The order in which pods start: those that the start gate holds, what they wait for, and whose turn it is.

A gang is placed as a whole, so a pod that waits here has its node already and can miss nothing but time. What a pod
waits for is judged in its own unit, by what is now: a successor of a pod that had started starts at once where the
others run.

Pods that the operator itself lets go, where the backend's scheduler does not.

The backend decides which ones; it is given how far every replica has come, and which are the minimum: bound ones
first, then those that were let go, then those of lower number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.api.roles import Dependency, DependencyCondition, Role, Startup
from covey.backends import Release, ReleaseFacts, ReplicaProgress
from covey.compile import Layout, Scale, Slot
from covey.model import podstate
from covey.operator.model.actions import Actions, DeletePod, Outcome, Ungate
from covey.operator.model.observed import Observed
from covey.operator.replicas.scale import ReplicaState, States, count_unit

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
    gated = ((slot, pod) for slot, pod in observed.current.items() if names.GATE_START in core.gates(pod))
    for slot, pod in gated:
        causes = tuple(_causes(roles.get(slot.role), slot, scale, states.get(slot.unit, _NOTHING), observed))
        until = starts_at(pod, roles.get(slot.role))
        if until > observed.now:
            later.append(until - observed.now)
            failed = f"{podstate.past(pod).failures} failures in a row"
            causes = (*causes, f"{slot.role} starts at {core.rfc3339(until)} after {failed}")
        if not causes:
            ungate.append(Ungate(pod, names.GATE_START))
        for cause in causes:
            waits.setdefault(slot.unit, {})[cause] = None
    messages = {unit: "; ".join(sorted(causes)) for unit, causes in waits.items()}
    return Starting(tuple(ungate), messages, min(later, default=None))


def starts_at(pod: core.Pod, role: Role | None) -> float:
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


def progress_of(inference: DisaggregatedInference, layout: Layout, states: States, observed: Observed) -> ReleaseFacts:
    """Progress of all replicas, for the backend to decide."""
    scale = Scale.of(inference.spec)
    units = {unit: tuple(_progress(unit, scale, layout, states.get(unit, {}), observed)) for unit in layout.units}
    return ReleaseFacts(inference, units, observed.objects, observed.room, observed.now)


def find_released(release: Release, observed: Observed) -> Outcome:
    """Carry out a backend's decision: lift gates, and delete pods that must not be there yet."""
    ungate = tuple(
        Ungate(pod, names.GATE_GANG, release.confined.get(slot, {}))
        for slot in release.slots
        if (pod := observed.current.get(slot)) is not None and not podstate.is_let_go(pod)
    )
    withheld = (pod for slot in release.withheld for pod in observed.pods.get(slot, ()))
    delete = tuple(
        DeletePod(pod, "the minimum comes first")
        for pod in withheld
        if not podstate.is_bound(pod) and not podstate.is_terminating(pod)
    )
    return Outcome(Actions(ungate=ungate, delete_pods=delete), again=release.again)


def _progress(
    unit: int, scale: Scale, layout: Layout, states: Mapping[str, Mapping[int, ReplicaState]], observed: Observed
) -> Iterator[ReplicaProgress]:
    for role, replicas in layout.units[unit].items():
        known = states.get(role, {})
        bound = {number for number in replicas if number in known and known[number].is_bound}
        slots = {
            number: tuple(Slot(unit, role, number, index) for index in range(revision.size))
            for number, revision in replicas.items()
        }
        pods = {
            number: tuple(pod for slot in places if (pod := observed.current.get(slot)) is not None)
            for number, places in slots.items()
        }
        free = {
            number
            for number, pods_of in pods.items()
            if len(pods_of) == len(slots[number]) and all(map(podstate.is_let_go, pods_of))
        }
        ranked = sorted(replicas, key=lambda number: (number not in bound, number not in free, number))
        minimum = ranked[: scale.roles[role].minimum]
        for number, places in slots.items():
            yield ReplicaProgress(
                places,
                in_minimum=number in minimum,
                is_complete=len(pods[number]) == len(places),
                is_let_go=number in free,
                is_bound=number in bound,
                pods=pods[number],
            )
