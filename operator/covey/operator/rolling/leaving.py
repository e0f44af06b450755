"""Which replicas have to leave their nodes (``snapshot.notice`` says which nodes are to be empty)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from covey.api import core
from covey.api.avoided import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.operator.snapshot.observed import Observed

_PATIENCE: Final = 60.0
#: Seconds that successors keep off candidates, at least; a round time, since it is written on groups.
_TERM: Final = 600.0

#: A replica: unit, role and number.
Place = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Leaving:
    """Replicas that have to leave their nodes: why, by place; and seconds after which there will be more."""

    places: Mapping[Place, str] = field(default_factory=dict)
    again: float | None = None
    #: What successors keep off: a scheduler keeps them off cordons and hard taints, not off soft ones.
    avoided: tuple[Avoided, ...] = ()


def find_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> Leaving:
    """The replicas of a resource that have to leave.

    Args:
        spec: what is kept up.
        observed: the snapshot; ``notices`` has the nodes in question.
    """
    if not observed.notices:
        return Leaving()
    told = spec.disruption.evacuate_after_seconds if spec.disruption else None
    patience = _PATIENCE if told is None else float(told)
    places: dict[Place, str] = {}
    left: list[float] = []
    for slot, pod in _placed(observed):
        node = pod.spec.node_name or ""
        notice = observed.notices[node]
        why = notice.drives(pod)
        if not why and notice.candidate:
            due = (observed.now if notice.since is None else notice.since) + patience - observed.now
            if due > 0:
                left.append(due)
                continue
            why = f"taint {notice.candidate}"
        if why:
            places.setdefault((slot.unit, slot.role, slot.replica), f"node {node}: {why}")
    until = (observed.now // _TERM + 2) * _TERM
    avoided = (Avoided(until, "an autoscaler may delete it", node) for node in observed.candidates if places)
    return Leaving(places, min(left, default=None), tuple(avoided))


def _placed(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if pod.spec.node_name in observed.notices:
            yield slot, pod
