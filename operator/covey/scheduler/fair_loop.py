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

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = clock()
        self._next = asyncio.Lock()

    def restart(self) -> None:
        """Others have just had their turn."""
        self._begun = self._clock()

    async def share(self) -> None:
        """Let others have their turn, if it is time."""
        if self._clock() - self._begun > SLICE:
            async with self._next:
                await asyncio.sleep(0)
                self._begun = self._clock()
