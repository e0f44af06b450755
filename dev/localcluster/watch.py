"""Watch lists from an exact version on, and record what happens to objects, for claims about every moment.

``kubernetes.watch.Watch`` is for programs: it begins with its first event, ``stop`` before that is without effect, and
it tries again by itself. Tests want a watch that has begun, ends at once, and fails where it fails.
"""

import contextlib
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from kubernetes.client import ApiClient, ApiException
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from localcluster.api import TIMEOUT, exchange, request

#: A server sends a bookmark a minute; one that is silent for so many seconds is given up.
_SILENCE: Final = 600.0
#: What iterating raises when a watch breaks off, perhaps in the middle of a line: it goes on from the last version.
CUT_OFF: Final = (HTTPError, ValueError)


class WatchStream:
    """The events of a watch; ``close`` may be called from another thread and ends the iteration.

    Args:
        client: Makes the request.
        path: Path and query of the list.
        version: Its resourceVersion, or that of the last event.

    Raises:
        ApiException: when the server refuses.
        urllib3.exceptions.HTTPError: when it does not answer.
    """

    def __init__(self, client: ApiClient, path: str, version: str) -> None:
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        url = f"{path}{'&' if '?' in path else '?'}{urllib.parse.urlencode(parameters)}"
        response = exchange(client, "GET", url, timeout=(TIMEOUT, _SILENCE))
        self._response: HTTPResponse = response.response
        # The answer owns the socket, which is shut down from another thread.
        self._socket: socket.socket = response.response.connection.sock

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the events, bookmarks among them.

        Raises:
            ApiException: for an event ``ERROR``, with the code of its ``Status``: 410 when the version is too old.
            CUT_OFF: when the connection breaks.
        """
        try:
            for line in self._response:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiException(status.get("code", 500), status.get("reason"), body=json.dumps(status))
                yield event
        finally:
            self._response.close()

    def close(self) -> None:
        """End the iteration."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


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
        found = request(client, "GET", path)
        self.events.extend(("ADDED", item) for item in found["items"])
        self.times = [time.monotonic()] * len(self.events)
        self._version: str = found["metadata"]["resourceVersion"]
        self._watch = WatchStream(client, path, self._version)
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
                # Cut off, perhaps in the middle of a line, which comes again.
                with contextlib.suppress(*CUT_OFF):
                    for event in self._watch:
                        self._take(event)
                with self._changed:
                    if self._closing:
                        return
                    self._watch = WatchStream(self._client, self._path, self._version)
        except (ApiException, HTTPError) as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take(self, event: dict[str, Any]) -> None:
        with self._changed:
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                # Whoever reads both without waiting finds a time for each event.
                self.times.append(time.monotonic())
                self.events.append((event["type"], event["object"]))
                self._changed.notify_all()
