"""Nodes that come one by one for a gang that waits: they are kept for it, so that nobody behind it eats half a rack.

The operator notes on the root that an autoscaler makes nodes for it (``api.annotations.NodesAsked``). Of those that have
come since, the gang's claim keeps what its minimum needs, within the limits of all kept room (``reservations``), for as
long as another one may come after the last of them. All of it follows from objects: another process finds the same.

Whoever writes such a note by hand gets no node that was there before its gang waited, and none for longer than three
times the patience with each, an hour at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from covey.admission.entry import Entry, QueueStage, waiting_since
from covey.admission.preemption import MOST_NODES
from covey.admission.reservation import choose_arrived
from covey.api import core
from covey.api.annotations import LONGEST_WAIT, NodesAsked, read_asked
from covey.api.constants import ANNOTATION_CAPACITY_ASKED, PURPOSE_CAPACITY, REASON_OVER_QUOTA
from covey.placement.model import Gang
from covey.scheduler.cache import Cache
from covey.scheduler.claims import scarcest

#: A node that came for a gang is kept for no longer than this many times the patience with each.
_LONGEST: Final = 3


class Arrivals:
    """The claims of refused gangs to nodes that have come for them."""

    def __init__(self, cache: Cache, clock: Callable[[], float]) -> None:
        self._cache = cache
        self._clock = clock

    def read_asked(self, entry: Entry) -> NodesAsked | None:
        """The nodes that an autoscaler makes for a minimum that was refused, as far as they count now."""
        root = self._cache.index.root(entry.unit.key) or entry.unit.root
        note = root.metadata.annotation(ANNOTATION_CAPACITY_ASKED)
        if note is None or entry.stage is not QueueStage.MINIMUM or root.is_native:
            return None
        asked, since = read_asked(note), waiting_since(root)
        if asked is None or since is None:
            return None
        return replace(asked, since=max(asked.since, since, self._clock() - _LONGEST * asked.wait))

    def find_recent(self, names: Iterable[str]) -> list[core.Node]:
        """Find the nodes that may have come for somebody: older ones are nobody's, whatever is asked for."""
        since, nodes = core.rfc3339(self._clock() - _LONGEST * LONGEST_WAIT), map(self._cache.node, names)
        return [node for node in nodes if node is not None and node.metadata.creation_timestamp >= since]

    def awaits(self, entry: Entry, nodes: Iterable[core.Node]) -> bool:
        """Some of these nodes have come for a refused gang that nobody gives way to."""
        asked, claim = self.read_asked(entry), entry.decision.claim
        is_free = claim is None or claim.purpose in {"", PURPOSE_CAPACITY}
        return is_free and asked is not None and bool(_find_new(asked, nodes))

    def find_claim(self, entry: Entry, asked: Gang) -> core.Claim | None:
        """Find what a refused unit needs of the nodes that came for it; None where no more of them are expected.

        Args:
            entry: the unit.
            asked: its gang, as it may be planned.
        """
        wish, now, decision = self.read_asked(entry), self._clock(), entry.decision
        if wish is None or decision.topology is None or decision.reason == REASON_OVER_QUOTA:
            return None
        if self._cache.capacity.planned.topologies.get(asked.topology) != decision.topology:
            return None  # another one by now: the unit is about to be assessed anew
        created = _find_new(wish, self._cache.nodes.store.values())
        late = core.rfc3339(now - wish.wait)
        came = {name: created[name] > late for name in sorted(created, key=lambda name: (created[name], name))}
        is_one = decision.claim is not None and decision.claim.purpose == PURPOSE_CAPACITY
        current = decision.claim if is_one else None
        path, nodes = choose_arrived(
            asked, self._cache.capacity.planned, came, tuple(current.path) if current is not None else None
        )
        if not nodes or len(nodes) > MOST_NODES:
            return None
        last = max(map(created.__getitem__, nodes))
        return core.Claim(
            path,
            current.since if current is not None else core.rfc3339(now),
            decision.topology.levels[len(path) - 1].name if path else "",
            scarcest(asked),
            tuple(sorted(nodes)),
            last_progress_time=last,
            purpose=PURPOSE_CAPACITY,
            message=f"{len(nodes)} of the nodes that it waits for have come and are kept for it, the last at {last}",
        )


def _find_new(asked: NodesAsked, nodes: Iterable[core.Node]) -> dict[str, str]:
    """Find the nodes that have come since such ones were asked for, and when each did."""
    since, labels = core.rfc3339(asked.since), asked.labels.items()
    return {
        node.metadata.name: node.metadata.creation_timestamp
        for node in nodes
        if node.metadata.creation_timestamp >= since and labels <= (node.metadata.labels or {}).items()
    }
