"""Caches of the operator that are shown events by hand, as watches would show them, and what they asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.operator.model.objects import InferenceText, StoredScaler
from covey.operator.observe.caches import Caches
from covey.operator.observe.triggered import Triggered
from covey.operator.observe.watched import Key, Requeue, Watched

_TYPES: Final[dict[str, Any]] = {
    "DisaggregatedInference": InferenceText,
    "RoleScaler": StoredScaler,
    "ClusterTopology": core.ClusterTopology,
}


class Seen:
    """Caches of which nothing is listening to a server.

    Args:
        time: monotonic seconds; the system's without it.
    """

    def __init__(self, time: Callable[[], float] | None = None) -> None:
        #: Who was to be looked at, and after how many seconds.
        self.looks: list[tuple[Key, float]] = []
        self.namespaces: list[str] = []
        requeue = Requeue(
            lambda key: self.looks.append((key, 0.0)),
            lambda key, delay: self.looks.append((key, delay)),
            self.namespaces.append,
        )
        nobody = cast("Client", None)  # no reflector runs
        self.caches = Caches(nobody, requeue, clock=Clock(time) if time else SYSTEM)
        self._version = 0

    @property
    def asked(self) -> list[Key]:
        """Who was to be looked at since the last question."""
        found = [key for key, _ in self.looks]
        self.looks.clear()
        return found

    def tell(
        self,
        triggered: Triggered[Any],
        name: str,
        kind: str = "MODIFIED",
        *,
        namespace: str = "ml",
        texts: dict[str, Any] | None = None,
        **meta: Any,
    ) -> None:
        """A watch shows an object, and Kopf tells of it; ``texts``: its spec and status."""
        self._version += 1
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        body = {"metadata": metadata | meta, **(texts or {})}
        self.watch(
            triggered, msgspec.json.decode(msgspec.json.encode(body), type=_TYPES[triggered.resource.kind]), kind
        )
        triggered.trigger({"type": kind, "object": body})

    def watch(self, watched: Watched[Any], item: Any, kind: str = "ADDED") -> None:
        """A watch tells of an object."""
        watched.reflectors[0]._take(kind, item)
