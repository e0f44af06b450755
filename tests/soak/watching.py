"""Watches straight from the API server, through its restarts, into a checker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from kubernetes.client import ApiClient, ApiException

from localcluster import request
from localcluster.watch import CUT_OFF, WatchStream
from soak.checker import Checker
from soak.invariants import Violation
from soak.quiet import Quiet

KINDS: Final[Mapping[str, str]] = {
    "Node": "/api/v1/nodes",
    "DisaggregatedInference": "/apis/inference.covey.dev/v1alpha1/disaggregatedinferences",
    "Pod": "/api/v1/pods",
    "CompositePodGroup": "/apis/scheduling.covey.dev/v1alpha1/compositepodgroups",
    "PodGroup": "/apis/scheduling.covey.dev/v1alpha1/podgroups",
}
_AGAIN: Final = 0.3
_LEVELS: Final = 20_000


@dataclass
class Watching:
    """Feeds a checker; a context manager.

    Args:
        client: The administrator's.
        checker: Is told every event, one at a time.
        quiet: The time of events.
        found: Called with what an event broke.
    """

    client: ApiClient
    checker: Checker
    quiet: Quiet
    found: Callable[[Violation], object]
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: Lists that stand for events that were missed.
    gaps: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _open: dict[str, WatchStream] = field(default_factory=dict)

    def __enter__(self) -> Self:
        # Tenants nest objects deeper than Python reads by itself.
        sys.setrecursionlimit(_LEVELS)
        for kind in KINDS:
            thread = threading.Thread(target=self._follow, args=(kind,), name=f"watch of {kind}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for watch in list(self._open.values()):
            watch.close()
        for thread in self._threads:
            thread.join(10)

    def tick(self) -> None:
        """Time has passed."""
        with self.lock:
            self._say(self.checker.tick(self.quiet.now()))

    def _follow(self, kind: str) -> None:
        try:
            self._keep_following(kind)
        finally:
            if not self._end.is_set():
                self._give_up(kind)

    def _give_up(self, kind: str) -> None:
        """Say that a watch has broken for good: what is judged from now on is judged by what was long ago."""
        with self.lock:
            blind = Violation("blind", f"the watch of {kind} has ended, so nothing can be judged", self.quiet.now())
            self.checker.violations.append(blind)
            self._say([blind])

    def _keep_following(self, kind: str) -> None:
        known: dict[str, dict[str, Any]] = {}
        version = ""
        while not self._end.is_set():
            try:
                version = version or self._list(kind, known)
                version = self._watch(kind, known, version)
            except ApiException as error:
                if error.status in {404, 410}:
                    version = ""
                self._end.wait(_AGAIN)
            except CUT_OFF:
                self._end.wait(_AGAIN)

    def _list(self, kind: str, known: dict[str, dict[str, Any]]) -> str:
        """Take what is there; what came in between was missed, so that only the result is known."""
        found = request(self.client, "GET", KINDS[kind])
        items = {item["metadata"]["uid"]: item for item in found["items"]}
        with self.lock:
            self.gaps += bool(known)
            at = self.quiet.now()
            for uid in known.keys() - items.keys():
                self.checker.take_unseen(kind, "DELETED", known[uid], at)
            for item in items.values():
                self.checker.take_unseen(kind, "MODIFIED", item, at)
        known.clear()
        known.update(items)
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, kind: str, known: dict[str, dict[str, Any]], version: str) -> str:
        """Take events until the watch ends; the version to go on from, empty when that is not possible."""
        watch = self._open[kind] = WatchStream(self.client, KINDS[kind], version)
        if self._end.is_set():
            watch.close()
        try:
            for event in watch:
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                if event["type"] == "DELETED":
                    known.pop(item["metadata"]["uid"], None)
                else:
                    known[item["metadata"]["uid"]] = item
                with self.lock:
                    self._say(self.checker.take(kind, event["type"], item, self.quiet.now()))
        except ApiException:
            return ""
        except CUT_OFF:
            pass  # cut off, perhaps in the middle of a line, which comes again
        return version

    def _say(self, violations: list[Violation]) -> None:
        for violation in violations:
            self.found(violation)
