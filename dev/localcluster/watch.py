"""Record what happens to objects, without a gap, for claims about every moment ("never half bound")."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from localcluster.client import ApiClient


class Recording:
    """All changes of a list from the moment it is opened, in the order of the API server; a context manager.

    Attributes:
        events: ``(type, object)`` with type ``ADDED``, ``MODIFIED`` or ``DELETED``; what is there at the start
            comes first, as ``ADDED``.
    """

    def __init__(self, client: ApiClient, path: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._changed = threading.Condition()
        found = client.request("GET", path)
        self.events.extend(("ADDED", item) for item in found["items"])
        self._watch = client.open_watch(path, found["metadata"]["resourceVersion"])
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"recording of {path}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Asked before the watch is closed: from here on it ends as it should.
        gap = self._error
        self._watch.close()
        self._thread.join()
        self._error = gap

    def wait(self, reached: Callable[[list[tuple[str, dict[str, Any]]]], bool], timeout: float = 30.0) -> None:
        """Wait until the events so far fulfil a condition, looking at each change.

        Raises:
            TimeoutError: when they do not in ``timeout`` seconds.
            RuntimeError: when the recording has ended, so that a change may have been missed.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._error is not None or reached(self.events), timeout):
                raise TimeoutError(f"not reached in {timeout:g} s; {len(self.events)} events so far")
        self.check()

    def check(self) -> None:
        """Make sure that nothing was missed.

        Raises:
            RuntimeError: when the API server has ended the watch.
        """
        if self._error is not None:
            raise RuntimeError("the recording has a gap") from self._error

    def _run(self) -> None:
        ended: Exception = RuntimeError("the API server ended the watch")
        try:
            for event in self._watch:
                if event["type"] == "ERROR":
                    ended = RuntimeError(str(event["object"]))
                elif event["type"] != "BOOKMARK":
                    with self._changed:
                        self.events.append((event["type"], event["object"]))
                        self._changed.notify_all()
        except (OSError, ValueError) as error:
            ended = error
        with self._changed:
            self._error = ended
            self._changed.notify_all()
