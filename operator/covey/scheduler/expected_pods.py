"""Nodes that are reserved for pods which are about to be created, so that a gang is placed before all of it exists."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from covey.admission.entry import RESERVED as MESSAGE
from covey.admission.entry import Entry, QueueStage
from covey.admission.expected import is_expected
from covey.admission.nodes import Key
from covey.api.constants import REASON_RESERVED, REASON_WAITING
from covey.model import podstate
from covey.placement.cluster.inventory import domains_of
from covey.scheduler.cache import Cache
from covey.scheduler.commit import Placement
from covey.scheduler.plugin import Plugin, Rejection
from covey.scheduler.ranks import rank_of

#: Seconds for which nodes are reserved for pods that are about to be created.
RESERVED: Final = 60.0
#: What a unit's status says when they were not.
NOT_CREATED: Final = f"the pods of its minimum were not created while nodes were reserved for them ({RESERVED:.0f} s)"


class ExpectedPods(Plugin):
    """The units whose pods are being created."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        #: The end of each reservation.
        self._reserved: dict[Key, asyncio.TimerHandle] = {}

    def permit(self, entry: Entry, placements: Sequence[Placement]) -> Rejection | None:
        """Pin the pods of a decision together, once the last one is there."""
        if not any(map(is_expected, entry.unit.pods())):
            return None
        there = (placement.pod for placement in placements if not is_expected(placement.pod))
        self._cache.arrived.update(pod.metadata.uid for pod in there)
        return Rejection(REASON_RESERVED, MESSAGE)

    def note_assessed(self, root: Key) -> None:
        """Reserve nodes for pods that are about to be created, for a while, and pin these there when all of them are."""
        entry = self.handle.queue.get(root)
        assumed, pods = self._cache.capacity.assumed, [*entry.unit.pods()] if entry is not None else []
        expected = [pod for pod in pods if is_expected(pod)]
        if any(pod.metadata.uid in assumed for pod in expected):
            if root not in self._reserved:
                self._reserved[root] = asyncio.get_running_loop().call_later(RESERVED, self._end, root)
            return
        if (timer := self._reserved.pop(root, None)) is not None:
            timer.cancel()
        arrived = [pod for pod in pods if pod.metadata.uid in self._cache.arrived] if self._cache.arrived else []
        if entry is None or expected or not arrived:
            return
        topology = entry.decision.topology
        if topology is None or not entry.unit.minimum_met(lambda pod: podstate.place_of(pod, assumed) is not None):
            for pod in arrived:
                self._cache.unassume(pod.metadata.uid)
            return
        self._cache.arrived.difference_update(pod.metadata.uid for pod in arrived)
        nodes = [(pod, assumed[pod.metadata.uid]) for pod in arrived]
        placements = [
            Placement(pod, node, domains_of(topology, self._cache.path(topology, node))) for pod, node in nodes
        ]
        assert entry.gang is not None, "it was planned"
        self.handle.commits.admit(root, topology.name, placements, QueueStage.MINIMUM, rank_of(entry.gang))

    def _end(self, root: Key) -> None:
        """Give up nodes that were reserved for pods which nobody has created."""
        del self._reserved[root]
        unit = self._cache.index.unit(root)
        self.handle.queue.note_failure(root, REASON_WAITING, NOT_CREATED)
        for pod in unit.pods() if unit is not None else ():
            if is_expected(pod) or pod.metadata.uid in self._cache.arrived:
                self._cache.unassume(pod.metadata.uid)
        self.handle.queue.requeue(root)
