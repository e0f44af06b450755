"""The aiohttp session that Kopf watches through: metadata only, and nothing that would end Kopf.

============================  ===========================================================================================
The API server                Kopf gets
============================  ===========================================================================================
an object of a list or of a   its name, UID and version, without managedFields, which may be too deep for Kopf; one that
watch                         cannot be read is left out, logged and counted
``"items": null``             an empty list
no answer, 401, 403, 429,     nothing: the request is made again after half a second, for ever
5xx
any other refusal of a list   a broken connection, after half a second: it lists again from the beginning
any refusal of a watch, and   an ERROR event with code 410: it lists again. Kopf ends its operator at any other
any ERROR event in one
half a line                   nothing: the event comes again when the watch is resumed
============================  ===========================================================================================

A watch of one kind begins at most twice a second: Kopf resumes one that has ended at once, and without a pause.
Reflectors watch the same kinds (``observe.triggered``): their metrics say how the API server serves them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import msgspec
from yarl import URL

from covey.kube import request as requests
from covey.kube.connection import Connection
from covey.kube.errors import ApiError, KubeError, Undecodable
from covey.kube.resources import Resource
from covey.kube.session import new_session
from covey.kube.watch import LineBuffer, decode_chunk, decode_event
from covey.observability import metrics
from covey.observability.logging import get_logger

_log = get_logger(__name__)

#: Seconds before a request is made again, and between two watches of one kind.
_PAUSE: Final = 0.5
#: Answers after which the same request may be made again.
_PASSING: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
#: What makes Kopf list again; of its details Kopf reads the code.
_LIST_AGAIN: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


class _Identity(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Partial(msgspec.Struct, frozen=True):
    """``PartialObjectMetadata``, as far as handlers read it. What tenants write freely is not handed to Kopf."""

    metadata: _Identity


_encode: Final = msgspec.json.Encoder().encode


def open_session(connection: Connection, kinds: Iterable[Resource], namespaces: Iterable[str]) -> aiohttp.ClientSession:
    """A session of this connection for Kopf, which closes it."""
    base = URL(connection.server).path.rstrip("/")
    paths = {
        base + kind.path(namespace if kind.namespaced else None): kind
        for kind in kinds
        for namespace in tuple(namespaces) or (None,)
    }
    return new_session(connection, user_agent="covey-operator (kopf)", middlewares=(KopfAnswers(paths),))


class KopfAnswers:
    """A middleware of aiohttp's client: the table above.

    Args:
        paths: of the collections that Kopf watches; requests for anything else are only made again where that may help.
    """

    def __init__(self, paths: dict[str, Resource]) -> None:
        self._paths = paths
        self._troubled: set[str] = set()
        self._begun: dict[str, float] = {}

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Answer a request of Kopf's."""
        path = request.url.path
        kind = self._paths.get(path)
        if kind is None:
            return await self._send(request, handler, "get", "")
        if "watch" not in request.url.query:
            request.headers["Accept"] = requests.METADATA_LIST
            response = await self._send(request, handler, "list", kind.plural)
            if not response.ok:
                await _dismiss(response)
                raise aiohttp.ClientPayloadError(f"list of {kind.plural}: {response.status}")
            response.content = _List(response.content, kind)  # type: ignore[assignment] # all that is asked of it is there
            return response
        now = asyncio.get_running_loop().time
        await asyncio.sleep(self._begun.get(path, 0.0) + _PAUSE - now())
        self._begun[path] = now()
        request.headers["Accept"] = requests.METADATA
        response = await self._send(request, handler, "watch", kind.plural)
        is_refused = not response.ok
        if is_refused:
            await _dismiss(response)
            response.status = HTTPStatus.OK
        response.content = _Watch(response.content, kind, is_refused=is_refused)  # type: ignore[assignment] # likewise
        return response

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, verb: str, plural: str
    ) -> aiohttp.ClientResponse:
        """Repeat a request until it has an answer that another try would not change."""
        path = request.url.path
        while True:
            code, sent = "error", time.perf_counter()
            try:
                response = await handler(request)
                code = trouble = str(response.status)
            except (aiohttp.ClientConnectionError, OSError, TimeoutError, KubeError) as error:
                trouble = repr(error)
            else:
                if response.status not in _PASSING and response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    if path in self._troubled:
                        self._troubled.discard(path)
                        _log.info("contact restored", path=path)
                    return response
                response.release()
            finally:
                metrics.KUBE_REQUESTS.labels(verb, plural, code).inc()
                metrics.KUBE_REQUEST_DURATION.labels(verb).observe(time.perf_counter() - sent)
            if path not in self._troubled:
                self._troubled.add(path)
                _log.warning("contact lost", path=path, error=trouble)
            await asyncio.sleep(_PAUSE)


async def _dismiss(response: aiohttp.ClientResponse) -> None:
    """Log a refusal, and wait before Kopf asks again."""
    _log.info("list or watch refused", path=response.url.path, status=response.status)
    response.release()
    await asyncio.sleep(_PAUSE)


class _Content:
    """The body of a response; all that is not converted is the connection's own."""

    def __init__(self, content: aiohttp.StreamReader, kind: Resource) -> None:
        self._content = content
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def _as_object(self, item: _Partial) -> dict[str, Any]:
        return {"apiVersion": self._kind.api_version, "kind": self._kind.kind, "metadata": item.metadata}

    def _note_unreadable(self, error: Undecodable) -> None:
        metrics.UNREADABLE_OBJECTS.labels(self._kind.plural).inc()
        _log.warning("object not read", resource=self._kind.plural, key=error.key, error=str(error))


class _List(_Content):
    async def read(self) -> bytes:
        """Read the whole list.

        Raises:
            ClientPayloadError: it is no list.
        """
        try:
            chunk = decode_chunk(await self._content.read(), _Partial, self._note_unreadable)
        except Undecodable as error:
            raise aiohttp.ClientPayloadError(str(error)) from error
        return _encode({"metadata": chunk.metadata, "items": [self._as_object(item) for item in chunk.items or ()]})


class _Watch(_Content):
    def __init__(self, content: aiohttp.StreamReader, kind: Resource, *, is_refused: bool) -> None:
        super().__init__(content, kind)
        self._is_refused = is_refused

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield events in whole lines, whatever size is asked for."""
        if self._is_refused:
            yield _LIST_AGAIN
            return
        buffer = LineBuffer()
        async for chunk in self._content.iter_chunked(size):
            for line in buffer.feed(chunk):
                try:
                    kind, item = decode_event(line, _Partial)
                except ApiError as error:
                    _log.info("watch ended with an error", resource=self._kind.plural, error=str(error))
                    yield _LIST_AGAIN
                except Undecodable as error:
                    self._note_unreadable(error)
                else:
                    yield _encode({"type": kind, "object": self._as_object(item)}) + b"\n"
