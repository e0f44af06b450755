"""Long work on the event loop, in pieces: everybody else gets a turn every few milliseconds.

Those who share one ``FairLoop`` work by turns: in one round of the loop one of them works, however many there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

#: Seconds of work after which others get their turn.
SLICE: Final = 0.004


class FairLoop:
    """The event loop, as those see it who do long work on it by turns.

    A turn ends when the loop has gone round, and no other way: who waited for something that was there already has given
    nobody a turn.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        #: When the first of this turn asked; None once the loop has gone round since.
        self._begun: float | None = None
        self._next = asyncio.Lock()

    async def share(self) -> None:
        """Let others have their turn, if it is time: first of all those who were ready before a turn begins."""
        if self._begun is None or self._clock() - self._begun > SLICE:
            async with self._next:
                await asyncio.sleep(0)
                self._begin()

    def _begin(self) -> None:
        if self._begun is None:
            asyncio.get_running_loop().call_soon(self._end)
        self._begun = self._clock()

    def _end(self) -> None:
        self._begun = None
