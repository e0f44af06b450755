"""Since when the deadlines of rollouts run: not while nobody leads, and not while something is on its way out.

Another process begins anew, so nothing of this has to be remembered anywhere else.
"""

from __future__ import annotations

Key = tuple[str, str]


class RolloutClock:
    """Times in seconds since the epoch, by resource."""

    def __init__(self) -> None:
        self._begun = 0.0
        self._since: dict[Key, float] = {}
        self._standing: set[Key] = set()

    def begin(self, now: float) -> None:
        """This process leads from now on."""
        self._begun = now
        self._since.clear()
        self._standing.clear()

    def since(self, key: Key, now: float) -> float:
        """Since when a deadline of a resource runs; no earlier than now where something was on its way out so far."""
        return now if key in self._standing else self._since.get(key, self._begun)

    def note(self, key: Key, now: float, *, stands: bool) -> None:
        """It was looked: whether the clock of a resource stands still."""
        if stands or key in self._standing:
            self._since[key] = now
        if stands:
            self._standing.add(key)
        else:
            self._standing.discard(key)

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._since.pop(key, None)
        self._standing.discard(key)
