"""Start times of rollout deadlines: none runs while nobody leads, or while something is on its way out.

Another process begins again, so nothing of this has to be remembered anywhere else.
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
        """Note that this process leads from now on."""
        self._begun = now
        self._since.clear()
        self._standing.clear()

    def since(self, key: Key, now: float) -> float:
        """Time since which a deadline of a resource runs; ``now`` where something was on its way out so far."""
        return now if key in self._standing else self._since.get(key, self._begun)

    def note(self, key: Key, now: float, *, stands: bool) -> None:
        """Note whether the clock of a resource stands still."""
        if stands or key in self._standing:
            self._since[key] = now
        if stands:
            self._standing.add(key)
        else:
            self._standing.discard(key)

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._since.pop(key, None)
        self._standing.discard(key)
