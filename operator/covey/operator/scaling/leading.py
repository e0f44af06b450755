"""One pod of each unit stands for it: an autoscaler multiplies by the number of pods that its selector finds.

It is the leader of the lowest replica of the first role of the gang. Another one keeps the label as long as it lives
and the lowest is not Ready, so that what is measured is a pod that serves. It is born with the label where the unit has
no other; otherwise the label is taken from one pod in one pass and given to the next in a later one. A pod is seen as
it was written: no unit has it twice at any moment, unless the answer to a creation was lost or the watch of pods is
later than a creation is remembered (``observe.newborn``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import Layout, Slot
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Relabel

_GIVEN: Final = {names.LABEL_UNIT_LEADER: "true"}
_TAKEN: Final = {names.LABEL_UNIT_LEADER: None}


def unit_leaders(spec: DisaggregatedInferenceSpec, layout: Layout, observed: Observed) -> Iterator[Relabel]:
    """Take the leader label from pods that must not have it, and give it where a unit has none."""
    role, carriers = _role(spec), _carriers(observed)
    chosen = {unit: _chosen(unit, role, layout, observed, carriers.get(unit, ())) for unit in layout.units}
    for unit, pods in carriers.items():
        leader = chosen.get(unit) if unit is not None else None
        yield from (Relabel(pod, _TAKEN) for pod in pods if leader is None or pod.metadata.uid != leader.metadata.uid)
    for unit, leader in chosen.items():
        if leader is not None and unit not in carriers:
            yield Relabel(leader, _GIVEN)


def labels_at_birth(
    spec: DisaggregatedInferenceSpec, layout: Layout, observed: Observed
) -> Mapping[Slot, Mapping[str, str]]:
    """Places whose pod is born with the label: the leader of each unit where no pod has it or could be given it."""
    role, carriers = _role(spec), _carriers(observed)
    return {
        Slot(unit, role, min(replicas), 0): _GIVEN
        for unit, roles in layout.units.items()
        if unit not in carriers and (replicas := roles.get(role)) and _chosen(unit, role, layout, observed, ()) is None
    }


def _role(spec: DisaggregatedInferenceSpec) -> str:
    return next((role.name for role in spec.roles if role.min_replicas), spec.roles[0].name)


def _chosen(
    unit: int, role: str, layout: Layout, observed: Observed, carriers: tuple[core.Pod, ...]
) -> core.Pod | None:
    leaders = (observed.current.get(Slot(unit, role, n, 0)) for n in sorted(layout.units[unit][role]))
    live = [pod for pod in leaders if pod is not None]
    present = next((pod for pod in live for each in carriers if pod.metadata.uid == each.metadata.uid), None)
    if present is not None and not podstate.is_ready(live[0]):
        return present
    return live[0] if live else None


def _carriers(observed: Observed) -> dict[int | None, tuple[core.Pod, ...]]:
    """Pods that have the label, but for those that are going, which no autoscaler counts."""
    found: dict[int | None, tuple[core.Pod, ...]] = {}
    placed = ((slot.unit, pod) for slot, pods in observed.pods.items() for pod in pods)
    for unit, pod in (*placed, *((None, pod) for pod in observed.strays)):
        if _carries(pod) and not podstate.is_going(pod):
            found[unit] = (*found.get(unit, ()), pod)
    return found


def _carries(pod: core.Pod) -> bool:
    return pod.metadata.label(names.LABEL_UNIT_LEADER) is not None
