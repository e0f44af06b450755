"""Asks for refused units with bound members whether they would fit if some were given up (``admission.moving``)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from covey.admission import podstate
from covey.admission.moving import smallest_move
from covey.admission.tree import Key, Unit
from covey.placement.model import Gang
from covey.placement.planner import is_small
from covey.scheduler.cache import Cache
from covey.scheduler.holding import Holding

#: Seconds for which an answer holds: a unit may be refused many times while others end around it.
ASKED: Final = 10.0


class Moves:
    """The answers of the last seconds."""

    def __init__(self, cache: Cache, holding: Holding) -> None:
        self._cache = cache
        self._holding = holding
        #: Unit → when it was asked (event loop's clock), and the answer.
        self._found: dict[Key, tuple[float, str]] = {}

    async def find(self, unit: Unit, gang: Gang) -> str:
        """Find what would have to be given up for a refused unit to fit; nothing where that would not help.

        Args:
            unit: the unit.
            gang: as it was planned.
        """
        bound = {pod.metadata.uid for pod in unit.pods() if podstate.bound(pod)}
        if not bound:
            return ""
        now = asyncio.get_running_loop().time()
        self._found = {root: each for root, each in self._found.items() if now < each[0] + ASKED}
        if unit.key not in self._found:
            self._found[unit.key] = (now, await self._ask(unit.key, gang, bound))
        return self._found[unit.key][1]

    async def _ask(self, root: Key, gang: Gang, bound: set[str]) -> str:
        planner = partial(smallest_move, gang, bound=bound)
        with self._cache.capacity.planning() as inventory, self._holding.lifted(root, inventory):
            if is_small(gang, inventory):
                return planner(inventory)
            return await asyncio.to_thread(planner, inventory)
