"""A clock that stands still while something is going on that nobody can see through."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

#: Seconds after the last disturbance before it goes on: watches are opened again, caches filled.
SETTLING: Final = 4.0


class Quiet:
    """Seconds without a disturbance.

    Args:
        clock: Seconds of any beginning.
        settling: Seconds that it stands still after a disturbance.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, settling: float = SETTLING) -> None:
        self._clock = clock
        self._settling = settling
        self._lock = threading.Lock()
        self._active: set[str] = set()
        self._elapsed = 0.0
        self._since = clock()

    def now(self) -> float:
        """Quiet seconds so far."""
        with self._lock:
            return self._read()

    def disturb(self, name: str) -> None:
        """Something begins that hides events."""
        with self._lock:
            self._elapsed = self._read()
            self._active.add(name)
            self._since = self._clock() + self._settling

    def settle(self, name: str) -> None:
        """It has ended."""
        with self._lock:
            if name in self._active:
                self._active.remove(name)
                self._since = self._clock() + self._settling

    @property
    def disturbed(self) -> frozenset[str]:
        """What is going on."""
        with self._lock:
            return frozenset(self._active)

    def _read(self) -> float:
        if self._active:
            return self._elapsed
        return self._elapsed + max(0.0, self._clock() - self._since)
