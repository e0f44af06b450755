"""A plan becomes patches: all pods of a decision, or none that can still be stopped.

Room counts from the decision: every pod is assumed before the first patch is sent. When a pod turns out to be gone or
to conflict, patches that were not sent are dropped and their room is given back. Pods that were let go already are
facts: the rest is planned again around them (``admission``), and if that cannot be, their pins are undone
(``releases``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.writer import Pinned, PodWriter


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, its node, and the node's domain at each level that it has."""

    pod: core.Pod
    node: str
    domains: Mapping[str, str]


class Committer:
    """Carries out decisions."""

    def __init__(self, cache: Cache, writer: PodWriter) -> None:
        self._cache = cache
        self._writer = writer

    def assume(self, placements: Sequence[Placement]) -> None:
        """Reserve the room of a decision; synchronous, so that nothing can come between it and the plan."""
        for each in placements:
            self._cache.assume(each.pod, each.node)

    async def commit(self, placements: Sequence[Placement]) -> dict[Pinned, int]:
        """Send the patches of a decision that was assumed. Returns how many pods ended how."""
        broken = asyncio.Event()
        results = await asyncio.gather(*(self._one(each, broken) for each in placements))
        return {outcome: results.count(outcome) for outcome in Pinned if outcome in results}

    async def _one(self, placement: Placement, broken: asyncio.Event) -> Pinned:
        outcome = Pinned.CONFLICT
        try:
            outcome = await self._writer.pin(placement.pod, placement.node, placement.domains, broken.is_set)
        finally:
            if outcome is not Pinned.DONE:
                broken.set()
                self._cache.unassume(placement.pod.metadata.uid)
        return outcome
