"""A small JSON client of the API server, for what tests and tools write and read themselves.

Plain HTTPS on kept connections from as many threads as wanted: thousands of nodes are created with it in seconds,
where one ``kubectl`` call costs a tenth of a second.
"""

import contextlib
import http.client
import json
import queue
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_THREADS = 16


class ApiError(Exception):
    """The API server refused a request.

    Attributes:
        code: HTTP status.
        reason: One word of the ``Status`` object, such as ``Forbidden`` or ``Invalid``.
        status: The whole ``Status`` object.
    """

    def __init__(self, request: str, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.status = status
        super().__init__(f"{request}: {code} {status.get('message') or self.reason}")


class ApiClient:
    """Requests to one API server with one token; safe to use from many threads."""

    def __init__(self, server: str, token: str, authority: Path, *, timeout: float = 30.0) -> None:
        parts = urllib.parse.urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._tls = ssl.create_default_context(cafile=authority)
        self._timeout = timeout
        self._idle: queue.LifoQueue[http.client.HTTPSConnection] = queue.LifoQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(self, method: str, path: str, body: Any = None, *, patch: str | None = None) -> Any:
        """Make a request and return the decoded answer.

        Args:
            method: HTTP method.
            path: Path and query, from ``/api`` on.
            body: What to send as JSON.
            patch: Kind of a PATCH: ``json``, ``merge``, ``strategic`` or ``apply``. Without one a list is sent
                as a JSON patch and an object as a merge patch.

        Raises:
            ApiError: when the server refuses.
            OSError: when it does not answer.
        """
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = _content_type(method, body, patch)
        data = None if body is None else json.dumps(body).encode()
        code, answer = self._exchange(method, path, data, headers)
        content = json.loads(answer) if answer[:1] in {b"{", b"["} else answer.decode()
        if code >= 400:
            status = content if isinstance(content, dict) else {"message": content}
            raise ApiError(f"{method} {path}", code, status)
        return content

    def open_watch(self, path: str, resource_version: str, *, timeout: float = 600.0) -> "Watch":
        """Watch a list from a version on; ends when nothing was heard for ``timeout`` seconds."""
        return Watch(self._connect(timeout), path, resource_version, self._headers)

    def close(self) -> None:
        """Close the kept connections; the client can still be used afterwards."""
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _exchange(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """One request on a kept connection; on a new one when the kept one turns out to be closed."""
        try:
            connection, kept = self._idle.get_nowait(), True
        except queue.Empty:
            connection, kept = self._connect(self._timeout), False
        try:
            connection.request(method, path, data, dict(headers))
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if not kept or isinstance(error, TimeoutError):
                raise
            return self._exchange(method, path, data, headers)
        self._idle.put(connection)
        return response.status, answer

    def _connect(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)


class Watch:
    """The events of a watch; ``close`` may be called from another thread and ends the iteration."""

    def __init__(
        self, connection: http.client.HTTPConnection, path: str, resource_version: str, headers: Mapping[str, str]
    ) -> None:
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        url = f"{path}{'&' if '?' in path else '?'}{urllib.parse.urlencode(parameters)}"
        self._connection = connection
        try:
            connection.request("GET", url, headers=dict(headers))
            # The answer owns the socket once it has been read; it is kept here to be shut down.
            self._socket = connection.sock
            self._response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            for line in self._response:
                yield json.loads(line)
        finally:
            self._response.close()
            self._connection.close()

    def close(self) -> None:
        """End the iteration."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def concurrently(do: Callable[[Item], Result], items: Iterable[Item], *, threads: int = _THREADS) -> list[Result]:
    """Call ``do`` for every item on a few threads; results in the order of the items, the first error is raised."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(do, items))


def _content_type(method: str, body: Any, patch: str | None) -> str:
    if method != "PATCH":
        return "application/json"
    kind = patch or ("json" if isinstance(body, list) else "merge")
    return {
        "json": "application/json-patch+json",
        "merge": "application/merge-patch+json",
        "strategic": "application/strategic-merge-patch+json",
        # JSON is YAML.
        "apply": "application/apply-patch+yaml",
    }[kind]
