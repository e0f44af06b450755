"""The last look at a gang's places before it goes: a large one's in pieces, so that nobody waits for it.

While a call is held nobody checks the node any more: a Binding to a deleted node is accepted, and one whose devices
were taken meanwhile is over-committed. And what is pinned in the end need not be one plan (``required_levels``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from covey.admission.gangs import Surroundings, UnplannableError, build_gang
from covey.admission.required_levels import Astray, astray, requires_levels
from covey.admission.tree import Unit
from covey.api import core
from covey.model import podstate
from covey.placement.model import Topology
from covey.scheduler.cache import Cache
from covey.scheduler.fair_loop import FairLoop

#: Pods of a unit from which on its levels are looked at in a thread.
LARGE: Final = 512


class Checks:
    """Judges the places of a unit as the cache shows them.

    Args:
        cache: nodes and pods.
        fair_loop: lets others have their turn.
        topology: the one that a root is planned in.
    """

    def __init__(self, cache: Cache, fair_loop: FairLoop, topology: Callable[[Unit], Topology] | None) -> None:
        self._cache = cache
        self._fair_loop = fair_loop
        self._topology = topology

    async def astray(self, unit: Unit, going: Collection[str]) -> Astray | None:
        """Pins that do not keep the levels that the unit requires; nothing is said where no plan could be made."""
        if self._topology is None or not requires_levels(unit):
            return None
        # A Binding that is under way cannot be stopped.
        settled = {pod.metadata.uid for pod in unit.pods() if podstate.occupies_node(pod)} | set(going)
        try:
            topology = self._topology(unit)
            work = partial(self._judge, unit, topology, settled)
            return await asyncio.to_thread(work) if _is_large(unit) else work()
        except (LookupError, UnplannableError):
            return None

    def _judge(self, unit: Unit, topology: Topology, settled: Collection[str]) -> Astray | None:
        gang = build_gang(unit, topology, self._cache.capacity.shape, Surroundings())
        return astray(gang, topology, lambda node: self._cache.path(topology, node), settled.__contains__)

    async def failing(self, pods: Sequence[core.Pod], going: Collection[str]) -> list[tuple[core.Pod, str]]:
        """Pods that could not go to their node now, and why; each judged without those already found."""
        failing: list[tuple[core.Pod, str]] = []
        found: dict[str, list[core.Pod]] = {}
        for pod in pods:
            await self._fair_loop.share()
            node = podstate.pinned_node(pod)
            if node is None:
                continue
            # A Binding that is under way for one that was released takes its room.
            gone = (each for each in self._cache.leaving(node) if each.metadata.uid not in going)
            cause = self._cache.capacity.refusal_in_place(pod, node, [*gone, *found.get(node, ())])
            if cause is not None:
                failing.append((pod, cause))
                found.setdefault(node, []).append(pod)
        return failing


def _is_large(unit: Unit) -> bool:
    return sum(len(replica.pods) for role in unit.roles for replica in role.replicas) > LARGE
