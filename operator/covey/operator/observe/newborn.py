"""Objects that this process has created and that its watch has not shown yet.

A thousand answers to creations arrive before the watch has shown the last of them; a plan from the watch alone
would create those again, and each would exist already. So what the API server has answered counts as seen.

An object that was created and deleted while the watch was broken is never shown, so nothing is believed for long: what
expires here is created again if it is wanted, under the same name. Nothing depends on this memory but needless
writes, and that no unit has two leaders for a moment (``scaling.leading``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from covey.kube.store import Described

Key = tuple[str, str]
T = TypeVar("T", bound=Described)

#: Seconds that a watch may be behind before its silence counts as the object's absence.
PATIENCE: Final = 10.0


class Newborns(Generic[T]):
    """Objects of one kind, by the resource that they belong to; ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._items: dict[Key, dict[str, tuple[float, T]]] = {}

    def add(self, key: Key, item: T) -> None:
        """Note an object that was created, as the API server has answered."""
        self._items.setdefault(key, {})[item.metadata.uid] = (self._clock() + PATIENCE, item)

    def shown(self, key: Key, uid: str) -> None:
        """Note that the watch shows an object: from now on the watch alone counts."""
        items = self._items.get(key)
        if items is not None and items.pop(uid, None) is not None and not items:
            del self._items[key]

    def of(self, key: Key) -> tuple[T, ...]:
        """The objects of a resource that still count as seen."""
        now = self._clock()
        for uid in [uid for uid, (until, _) in self._items.get(key, {}).items() if until <= now]:
            self.shown(key, uid)
        return tuple(item for _, item in self._items.get(key, {}).values())

    def patience(self, key: Key) -> float | None:
        """Seconds after which the first of them no longer counts as seen; None when there is none."""
        items = self._items.get(key)
        return max(min(until for until, _ in items.values()) - self._clock(), 0.0) if items else None

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._items.pop(key, None)
