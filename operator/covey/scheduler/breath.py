"""Long work on the event loop, in pieces: everybody else gets a turn every few milliseconds.

Those who share one breath work by turns: in one round of the loop one of them works, however many there are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

#: Seconds of work after which others get their turn.
BREATH: Final = 0.004


class Breath:
    """The rest of the present turn of its sharers.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = clock()
        self._next = asyncio.Lock()

    def begin(self) -> None:
        """Others have just had their turn."""
        self._begun = self._clock()

    async def take(self) -> None:
        """Let others have their turn, if it is time."""
        if self._clock() - self._begun > BREATH:
            async with self._next:
                await asyncio.sleep(0)
                self._begun = self._clock()
