"""How many of something that is not urgent may be done now, over all resources together."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """So many a second, and no more than that saved up.

    Args:
        rate: a second.
        clock: monotonic, seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def take(self, wanted: int) -> int:
        """Take at most as many as are wanted; how many there are."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, self._rate)
        self._at = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken
