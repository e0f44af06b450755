"""Pods that the operator itself lets go, where the backend's scheduler does not.

Which ones is the backend's decision; it is told how far every replica has come, and which are the minimum: bound ones
first, then those of lower number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from covey.backends import Backend, ReplicaProgress
from covey.compile import Layout, Scale, Slot
from covey.operator import podstate
from covey.operator.actions import Ungate
from covey.operator.observe import Observed
from covey.operator.scale import ReplicaState, States, current


def released(backend: Backend, scale: Scale, layout: Layout, states: States, observed: Observed) -> Iterator[Ungate]:
    """The pods that may go."""
    progress = {unit: tuple(_progress(unit, scale, layout, states.get(unit, {}))) for unit in layout.units}
    for slot in backend.release(progress):
        pod = current(observed.pods.get(slot, ()))
        if pod is not None and not podstate.is_admitted(pod):
            yield Ungate(pod)


def _progress(
    unit: int, scale: Scale, layout: Layout, states: Mapping[str, Mapping[int, ReplicaState]]
) -> Iterator[ReplicaProgress]:
    for role, replicas in layout.units[unit].items():
        known = states.get(role, {})
        bound = {number for number in replicas if number in known and known[number].is_bound}
        minimum = sorted(replicas, key=lambda number: (number not in bound, number))[: scale.roles[role].minimum]
        for number, revision in replicas.items():
            state = known.get(number)
            yield ReplicaProgress(
                tuple(Slot(unit, role, number, index) for index in range(revision.size)),
                in_minimum=number in minimum,
                is_complete=state is not None and state.live >= state.size,
                is_bound=number in bound,
            )
