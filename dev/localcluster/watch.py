"""Record what happens to objects, without a gap, for claims about every moment ("never half bound")."""

import http.client
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from localcluster.client import ApiClient, ApiError


class Recording:
    """All changes of a list from the moment it is opened, in the order of the API server; a context manager.

    The API server ends the watch of a reader that is too slow, and any watch after a while. It is then resumed from
    the last version seen, which misses nothing; only a version that the server no longer has (410) is a gap.

    Attributes:
        events: ``(type, object)`` with type ``ADDED``, ``MODIFIED`` or ``DELETED``; what is there at the start
            comes first, as ``ADDED``.
        times: When each of them arrived, by ``time.monotonic``.
    """

    def __init__(self, client: ApiClient, path: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._client = client
        self._path = path
        self._changed = threading.Condition()
        found = client.request("GET", path)
        self.events.extend(("ADDED", item) for item in found["items"])
        self.times = [time.monotonic()] * len(self.events)
        self._version: str = found["metadata"]["resourceVersion"]
        self._watch = client.open_watch(path, self._version)
        self._closing = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"recording of {path}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._watch.close()
        self._thread.join()

    def wait(self, reached: Callable[[list[tuple[str, dict[str, Any]]]], bool], timeout: float = 60.0) -> None:
        """Wait until the events so far fulfil a condition, looking at each change.

        Raises:
            TimeoutError: when they do not in ``timeout`` seconds.
            RuntimeError: when a change may have been missed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._error is not None or reached(self.events), timeout):
                raise TimeoutError(f"not reached in {timeout:g} s; {len(self.events)} events so far")
        self.check()

    def check(self) -> None:
        """Make sure that nothing was missed.

        Raises:
            RuntimeError: when the watch could not be resumed where it had ended.
        """
        if self._error is not None:
            raise RuntimeError("the recording has a gap") from self._error

    def disconnect(self) -> None:
        """End the watch as the API server may at any time."""
        self._watch.close()

    def _run(self) -> None:
        try:
            while True:
                self._follow()
                with self._changed:
                    if self._closing:
                        return
                    self._watch = self._client.open_watch(self._path, self._version)
        except (ApiError, OSError, http.client.HTTPException) as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _follow(self) -> None:
        """Take the events of one watch until it ends, however it does.

        Raises:
            ApiError: when the server says that it cannot go on from this version.
        """
        try:
            for event in self._watch:
                self._take(event)
        except (OSError, ValueError, http.client.HTTPException):
            return  # cut off, perhaps in the middle of a line, which comes again

    def _take(self, event: dict[str, Any]) -> None:
        if event.get("kind") == "Status" or event["type"] == "ERROR":
            status = event.get("object", event)
            raise ApiError(f"watch of {self._path}", status.get("code", 500), status)
        with self._changed:
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                # Whoever reads both without waiting finds a time for each event.
                self.times.append(time.monotonic())
                self.events.append((event["type"], event["object"]))
                self._changed.notify_all()
