"""Pods that the operator itself lets go, where the backend's scheduler does not.

The backend decides which ones; it is given how far every replica has come, and which are the minimum: bound ones
first, then those that were let go, then those of lower number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Release, ReleaseFacts, ReplicaProgress
from covey.compile import Layout, Scale, Slot
from covey.model import podstate
from covey.operator.model.actions import Actions, DeletePod, Ungate
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome
from covey.operator.replicas.progress import ReplicaState, States


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
