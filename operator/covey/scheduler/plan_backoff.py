"""The back-off of units whose plans were out of date, each time, when they were made."""

from __future__ import annotations

from typing import Final

from covey.admission.nodes import Key

#: Seconds until the first new attempt, doubled at each further one, and the most.
FIRST: Final = 0.02


LONGEST: Final = 5.0


class Misses:
    """Plans in a row that something had changed under."""

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}

    def back_off(self, root: Key) -> float:
        """Count one more. Returns the seconds until the next attempt."""
        count = self._counts[root] = self._counts.get(root, 0) + 1
        return min(FIRST * 2.0 ** min(count - 1, 16), LONGEST)

    def forget(self, root: Key) -> None:
        """A plan was good, or the unit wants none any more."""
        self._counts.pop(root, None)
