"""Pods that the operator itself lets go, where the backend's scheduler does not.

Which ones is the backend's decision; it is told how far every replica has come, and which are the minimum: bound ones
first, then those that were let go, then those of lower number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from covey.api.inference import DisaggregatedInference
from covey.backends import Progress, Release, ReplicaProgress
from covey.compile import Layout, Scale, Slot
from covey.operator import podstate
from covey.operator.actions import Ungate
from covey.operator.observe import Observed
from covey.operator.scale import ReplicaState, States, current


def progress_of(inference: DisaggregatedInference, layout: Layout, states: States, observed: Observed) -> Progress:
    """How far all replicas have come."""
    scale = Scale.of(inference.spec)
    units = {unit: tuple(_progress(unit, scale, layout, states.get(unit, {}))) for unit in layout.units}
    return Progress(inference, units, observed.objects, observed.room, observed.now)


def let_go(release: Release, observed: Observed) -> Iterator[Ungate]:
    """The pods in the places that may go."""
    for slot in release.slots:
        pod = current(observed.pods.get(slot, ()))
        if pod is not None and not podstate.is_admitted(pod):
            yield Ungate(pod)


def _progress(
    unit: int, scale: Scale, layout: Layout, states: Mapping[str, Mapping[int, ReplicaState]]
) -> Iterator[ReplicaProgress]:
    for role, replicas in layout.units[unit].items():
        known = states.get(role, {})

        def rank(number: int, known: Mapping[int, ReplicaState] = known) -> tuple[bool, bool, int]:
            state = known.get(number)
            return (state is None or not state.is_bound, state is None or not state.is_admitted, number)

        minimum = sorted(replicas, key=rank)[: scale.roles[role].minimum]
        for number, revision in replicas.items():
            state = known.get(number)
            yield ReplicaProgress(
                tuple(Slot(unit, role, number, index) for index in range(revision.size)),
                in_minimum=number in minimum,
                is_complete=state is not None and state.live >= state.size,
                is_let_go=state is not None and state.is_admitted,
                is_bound=state is not None and state.is_bound,
            )
