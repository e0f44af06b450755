"""What this process has applied lately. Another process applies once more what is undone, and finds the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covey.api import core
from covey.backends import Identity
from covey.compile import identity_of
from covey.operator.model.application import Application
from covey.operator.model.objects import ANNOTATION_APPLIED

Key = tuple[str, str]


class Applications:
    """The last application of each object, by the resource's key."""

    def __init__(self) -> None:
        self._last: dict[Key, dict[Identity, Application]] = {}

    def of(self, key: Key) -> Mapping[Identity, Application]:
        """Those of a resource."""
        return dict(self._last.get(key, {}))

    def note(self, key: Key, body: Mapping[str, Any], before: core.Meta, result: core.Meta, now: float) -> None:
        """Note that an object was applied.

        Args:
            key: of its resource.
            body: what was applied.
            before: metadata of the object as it was known before.
            result: the API server's answer.
            now: seconds since the epoch.
        """
        last, identity = self._last.setdefault(key, {}), identity_of(body)
        known = last.get(identity) or Application("", result, 0, now)
        last[identity] = known.follow(body["metadata"]["annotations"][ANNOTATION_APPLIED], before, result, now)

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._last.pop(key, None)
