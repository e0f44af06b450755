"""Long work on the event loop, in pieces: everybody else gets a turn every few milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

#: Seconds of work after which others get their turn.
BREATH: Final = 0.004


class Breath:
    """One worker's breath.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = clock()

    def begin(self) -> None:
        """Others have just had their turn."""
        self._begun = self._clock()

    async def take(self) -> None:
        """Let others have their turn, if it is time."""
        if self._clock() - self._begun > BREATH:
            await asyncio.sleep(0)
            self._begun = self._clock()
