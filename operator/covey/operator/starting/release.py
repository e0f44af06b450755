"""Pods that the operator itself lets go, where the backend's scheduler does not.

The backend decides which ones; it is given how far every replica has come, and which are the minimum: bound ones
first, then those that were let go, then those of lower number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.backends import Progress, Release, ReplicaProgress
from covey.compile import Layout, Scale, Slot
from covey.operator.replicas.scale import ReplicaState, States
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Actions, DeletePod, Ungate
from covey.operator.terms.outcome import Outcome


def progress_of(inference: DisaggregatedInference, layout: Layout, states: States, observed: Observed) -> Progress:
    """Progress of all replicas, for the backend to decide."""
    scale = Scale.of(inference.spec)
    units = {unit: tuple(_progress(unit, scale, layout, states.get(unit, {}), observed)) for unit in layout.units}
    return Progress(inference, units, observed.objects, observed.room, observed.now)


def find_released(release: Release, observed: Observed) -> Outcome:
    """Carry out a backend's decision: lift gates, and delete pods that must not be there yet."""
    actions = Actions(ungate=tuple(_let_go(release, observed)), delete_pods=tuple(_taken_back(release, observed)))
    return Outcome(actions, again=release.again)


def _let_go(release: Release, observed: Observed) -> Iterator[Ungate]:
    """The pods in the places that may go."""
    for slot in release.slots:
        pod = observed.current.get(slot)
        if pod is not None and not podstate.is_let_go(pod):
            yield Ungate(pod, names.GATE_GANG, release.confined.get(slot, {}))


def _taken_back(release: Release, observed: Observed) -> Iterator[DeletePod]:
    """Pods without a node in places where there are to be none yet."""
    for slot in release.withheld:
        for pod in observed.pods.get(slot, ()):
            if not podstate.is_bound(pod) and not podstate.is_going(pod):
                yield DeletePod(pod, "the minimum comes first")


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
        pods = {number: tuple(_live(places, observed)) for number, places in slots.items()}
        free = {
            number
            for number, found in pods.items()
            if len(found) == len(slots[number]) and all(map(podstate.is_let_go, found))
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


def _live(slots: Iterable[Slot], observed: Observed) -> Iterator[core.Pod]:
    for slot in slots:
        pod = observed.current.get(slot)
        if pod is not None:
            yield pod
