"""A plan becomes patches: all pods of a decision, or none that can still be stopped.

Room counts from the decision: every pod is assumed before the first patch is sent. When a pod turns out to be gone or
to conflict, or its node to take it no more by the time that its turn has come, patches that were not sent are dropped
and, once the others have come, their room is given back. Pods that were let go already are
facts: the rest is planned again around them (``admission``), and if that cannot be, their pins are undone
(``releases``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from covey.api import core
from covey.kube.turns import Rank
from covey.scheduler.cache import Cache
from covey.scheduler.writer import Pinned, PodWriter


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod, its node, and the node's domain at each level that it has."""

    pod: core.Pod
    node: str
    domains: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a decision: counts of pods; ``denied`` has the pin that the API server denied, and its words."""

    outcomes: Mapping[Pinned, int]
    denied: str = ""


class Committer:
    """Carries out decisions."""

    def __init__(self, cache: Cache, writer: PodWriter) -> None:
        self._cache = cache
        self._writer = writer

    def assume(self, placements: Sequence[Placement]) -> None:
        """Reserve the room of a decision; synchronous, so that nothing can come between it and the plan."""
        for each in placements:
            self._cache.assume(each.pod, each.node)

    async def commit(self, placements: Sequence[Placement], *, rank: Rank = (), rehearse: bool = False) -> Committed:
        """Send the patches of a decision that was assumed.

        Args:
            placements: the decision.
            rank: its place among those that wait for a turn.
            rehearse: ask first whether the API server would take every patch (a dry run), and let no pod go unless
                it would: after a denial, so that its mates do not hold room again and again for nothing.
        """
        course = _Course(rank)
        try:
            if rehearse:
                tried = await asyncio.gather(*(self._send(each, course, dry_run=True) for each in placements))
                if course.broken:
                    return _sum_up(placements, [Pinned.DROPPED if one is Pinned.DONE else one for one in tried], course)
            return _sum_up(placements, await asyncio.gather(*(self._send(each, course) for each in placements)), course)
        finally:
            # Not one by one: others would take that room before the rest can be planned anew.
            for each in placements:
                if each.pod.metadata.uid not in course.pinned:
                    self._cache.unassume(each.pod.metadata.uid)

    async def _send(self, placement: Placement, course: _Course, *, dry_run: bool = False) -> Pinned:
        result = await self._writer.pin(
            placement.pod,
            placement.node,
            placement.domains,
            lambda: course.broken or self._is_spoilt(placement),
            rank=course.rank,
            dry_run=dry_run,
        )
        if result.outcome is not Pinned.DONE:
            course.broken = True
        elif not dry_run:
            course.pinned.add(placement.pod.metadata.uid)
        if result.outcome is Pinned.DENIED:
            course.said[placement.pod.metadata.uid] = result.said
        return result.outcome

    def _is_spoilt(self, placement: Placement) -> bool:
        """The node does not take the pod any more: a pin may wait for its turn long after the plan was made."""
        leaving = self._cache.leaving(placement.node)
        return self._cache.capacity.refusal_in_place(placement.pod, placement.node, leaving) is not None


@dataclass(slots=True)
class _Course:
    """The course of a decision's patches: ``broken`` once one failed; UIDs of pinned pods; the server's words by UID."""

    rank: Rank
    broken: bool = False
    pinned: set[str] = field(default_factory=set)
    said: dict[str, str] = field(default_factory=dict)


def _sum_up(placements: Sequence[Placement], outcomes: Sequence[Pinned], course: _Course) -> Committed:
    """The first denied pod in the plan's order speaks for all."""
    counts = {outcome: outcomes.count(outcome) for outcome in Pinned if outcome in outcomes}
    for each in placements:
        said = course.said.get(each.pod.metadata.uid)
        if said is not None:
            where = f"the pin of pod {each.pod.metadata.name} to node {each.node}"
            return Committed(counts, f"the API server denied {where}: {said}")
    return Committed(counts)
