"""A rate limit for actions that are not urgent, over all resources together."""

from __future__ import annotations

import time
from collections.abc import Callable


class Allowance:
    """A token bucket: ``rate`` tokens a second, of which at most one second's worth is saved up.

    Args:
        rate: tokens a second.
        clock: monotonic, seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._at = clock()

    def take(self, wanted: int) -> int:
        """Take up to ``wanted`` tokens; return how many were taken."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._rate, self._rate)
        self._at = now
        taken = min(wanted, int(self._left))
        self._left -= taken
        return taken
