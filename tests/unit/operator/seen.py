"""Caches of the operator that are shown events by hand, as watches would show them, and what they asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from covey.kube.client import Client
from covey.kube.clock import SYSTEM, Clock
from covey.operator.observe.caches import Caches
from covey.operator.observe.informer import Informer
from covey.operator.observe.watched import Key, Requeue, Watched


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
        informer: Informer[Any],
        name: str,
        kind: str | None = "MODIFIED",
        *,
        namespace: str = "ml",
        texts: dict[str, Any] | None = None,
        **meta: Any,
    ) -> None:
        """Kopf tells of an object; ``texts``: its spec and status."""
        self._version += 1
        metadata = {"namespace": namespace, "name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        body = {"metadata": metadata | meta, **{key: json.dumps(value) for key, value in (texts or {}).items()}}
        informer.take({"type": kind, "object": body})

    def watch(self, watched: Watched[Any], item: Any, kind: str = "ADDED") -> None:
        """A watch tells of an object."""
        watched.reflectors[0]._take(kind, item)
