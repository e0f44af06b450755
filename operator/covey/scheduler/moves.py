"""What would have to be given up for a refused unit with bound members to fit (``admission.growth``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from covey.admission.growth import smallest_move
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from covey.placement.planner import is_small

#: Seconds for which an answer holds: a unit may be refused many times while others end around it.
HOLDS: Final = 10.0


class Moves:
    """The answers of the last seconds.

    Args:
        snapshot: the inventory as it is for a unit.
    """

    def __init__(self, snapshot: Callable[[Key], AbstractContextManager[Inventory]]) -> None:
        self._snapshot = snapshot
        #: Unit → when it was asked (event loop's clock), and the answer.
        self._answers: dict[Key, tuple[float, str]] = {}

    async def find(self, unit: Unit, gang: Gang) -> str:
        """Find what would have to be given up for a refused unit to fit; nothing where that would not help.

        Args:
            unit: the unit.
            gang: as it was planned.
        """
        bound = {pod.metadata.uid for pod in unit.pods() if podstate.occupies_node(pod)}
        if not bound:
            return ""
        now = asyncio.get_running_loop().time()
        self._answers = {root: answer for root, answer in self._answers.items() if now < answer[0] + HOLDS}
        if unit.key not in self._answers:
            ask = partial(smallest_move, gang, bound=bound)
            with self._snapshot(unit.key) as inventory:
                move = ask(inventory) if is_small(gang, inventory) else await asyncio.to_thread(ask, inventory)
            self._answers[unit.key] = (now, move)
        return self._answers[unit.key][1]
