"""Replicas that have to leave their nodes (``snapshot.notice`` says which nodes are to be empty)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from covey.api import core
from covey.api.avoided import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Slot
from covey.operator.snapshot.observed import Observed

#: ``evacuateAfterSeconds`` where nothing is said.
_PATIENCE: Final = 60.0
#: Seconds that successors keep off candidates, at least; a round time, since it is written on groups.
_TERM: Final = 600.0

#: A replica: unit, role and number.
Place = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Leaving:
    """Replicas that have to leave their nodes: why, by place; and seconds after which there will be more.

    ``patient`` are those that do not go without a successor yet, however many of their role serve; ``patience`` is for
    how long, in seconds since their nodes were cordoned.
    """

    places: Mapping[Place, str] = field(default_factory=dict)
    again: float | None = None
    patient: Collection[Place] = frozenset()
    patience: float = _PATIENCE
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
    urgent: set[Place] = set()
    left: list[float] = []
    for slot, pod in _placed(observed):
        node = pod.spec.node_name or ""
        notice = observed.notices[node]
        why = notice.drives(pod)
        due = (observed.now if notice.since is None else notice.since) + patience - observed.now
        waits = due > 0 and (notice.waits_with(pod) if why else bool(notice.candidate))
        if waits:
            left.append(due)
        if not why and notice.candidate and not waits:
            why = f"taint {notice.candidate}"
        if why:
            place = (slot.unit, slot.role, slot.replica)
            places.setdefault(place, f"node {node}: {why}")
            if not waits:
                urgent.add(place)
    until = (observed.now // _TERM + 2) * _TERM
    avoided = (Avoided(until, "an autoscaler may delete it", node) for node in observed.candidates if places)
    return Leaving(places, min(left, default=None), frozenset(places.keys() - urgent), patience, tuple(avoided))


def _placed(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if pod.spec.node_name in observed.notices:
            yield slot, pod
