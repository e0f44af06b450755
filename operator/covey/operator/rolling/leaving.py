"""Replicas that have to leave their nodes.

A replica leaves where a node of its pods is to be empty (``node_drain``), and where somebody asks for the eviction of one
of its pods (``model.eviction``): at once, since that is meant. Its successors keep off that node meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from covey.api import core
from covey.api.annotations import Avoided
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile import ReplicaKey
from covey.compile.identity import Slot
from covey.model import podstate
from covey.operator.intent import PATIENCE, Leaving
from covey.operator.model.observed import Observed

#: Seconds that successors keep off candidates, at least; a round time, since it is written on groups.
_TERM: Final = 600.0


def find_leaving(spec: DisaggregatedInferenceSpec, observed: Observed) -> Leaving:
    """The replicas of a resource that have to leave.

    Args:
        spec: what is kept up.
        observed: the snapshot; ``notices`` has the nodes in question, ``evictions`` the pods.
    """
    if not observed.notices and not observed.evictions:
        return Leaving()
    told = spec.disruption.evacuate_after_seconds if spec.disruption else None
    patience = PATIENCE if told is None else float(told)
    places: dict[ReplicaKey, str] = {}
    urgent: set[ReplicaKey] = set()
    left: list[float] = []
    for slot, pod in _bound_pods(observed):
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
    avoided = {node: Avoided(until, "an autoscaler may delete it", node) for node in observed.candidates if places}
    for slot, pod in _evicted_pods(observed):
        node, place = pod.spec.node_name or "", (slot.unit, slot.role, slot.replica)
        requesters = observed.evictions[pod.metadata.uid].requesters
        places.setdefault(place, f"node {node}: {requesters} asked for the eviction of pod {pod.metadata.name}")
        urgent.add(place)
        avoided.setdefault(node, Avoided(until, "a pod there is to be evicted", node))
    again = min(left, default=None)
    return Leaving(places, again, frozenset(places.keys() - urgent), patience, tuple(avoided.values()))


def _evicted_pods(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    """Bound pods that somebody wants evicted, by way of the operator."""
    wanted = {uid for uid, eviction in observed.evictions.items() if eviction.is_wanted}
    for slot, pod in observed.current.items() if wanted else ():
        if pod.metadata.uid in wanted and podstate.is_bound(pod):
            yield slot, pod


def _bound_pods(observed: Observed) -> Iterator[tuple[Slot, core.Pod]]:
    for slot, pod in observed.current.items():
        if pod.spec.node_name in observed.notices:
            yield slot, pod
