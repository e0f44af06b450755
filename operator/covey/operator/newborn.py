"""Pods that this process has created and that its watch has not shown yet.

A thousand answers to creations arrive before the watch has told of the last of them; who plans on the watch alone
creates those again, to be told for each that it exists. So what the API server has answered counts as seen.

A pod that was created and deleted while the watch was broken is never shown, so nothing is believed for long: what
expires here is created again if it is wanted, under the same name. Nothing depends on this memory but needless writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from covey.api import core

Key = tuple[str, str]

#: Seconds that a watch may be behind before its silence counts as the pod's absence.
PATIENCE: Final = 10.0


class Newborns:
    """By resource; ``clock`` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pods: dict[Key, dict[str, tuple[float, core.Pod]]] = {}

    def add(self, key: Key, pod: core.Pod) -> None:
        """The API server has answered that it has created this pod."""
        self._pods.setdefault(key, {})[pod.metadata.uid] = (self._clock() + PATIENCE, pod)

    def shown(self, key: Key, uid: str) -> None:
        """The watch has told of the pod: from now on it alone counts."""
        pods = self._pods.get(key)
        if pods is not None and pods.pop(uid, None) is not None and not pods:
            del self._pods[key]

    def of(self, key: Key) -> tuple[core.Pod, ...]:
        """The pods of a resource that are still believed in."""
        now = self._clock()
        for uid in [uid for uid, (until, _) in self._pods.get(key, {}).items() if until <= now]:
            self.shown(key, uid)
        return tuple(pod for _, pod in self._pods.get(key, {}).values())

    def patience(self, key: Key) -> float | None:
        """Seconds after which the first of them is no longer believed in; None when there is none."""
        pods = self._pods.get(key)
        return max(min(until for until, _ in pods.values()) - self._clock(), 0.0) if pods else None

    def forget(self, key: Key) -> None:
        """The resource is gone."""
        self._pods.pop(key, None)
