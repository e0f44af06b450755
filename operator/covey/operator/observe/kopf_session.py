"""The aiohttp session that Kopf watches through: it hands Kopf what Kopf can bear, and nothing that would end it.

============================  ===========================================================================================
The API server                Kopf gets
============================  ===========================================================================================
a list, a watch event         shallow copies (``kube.shallow``), in whole lines; an informer has seen the list before
no answer, 401, 403, 429,     nothing: the request is made again after half a second, for ever
5xx
404 of a list                 a broken connection, after half a second: it lists again. The kind is known not to be served
410 of a list (an expired     a broken connection: it lists again from the beginning
``continue``), other 4xx
any refusal of a watch, and   an ERROR event with code 410: it lists again. Kopf ends its operator at any other
any ERROR event in one
half a line                   nothing: the event comes again when the watch is resumed
============================  ===========================================================================================

A watch of one kind begins at most twice a second: Kopf resumes one that has ended at once, and without a pause.

Storages of Kopf that store nothing.

Kopf builds an object's essence at every event, by a deep copy, and clears its own traces from it by another; both serve
handlers of changes, of which Covey has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import kopf
from yarl import URL

from covey.kube.connection import Connection
from covey.kube.errors import KubeError, Undecodable
from covey.kube.shallow import shallow_event, shallow_list
from covey.kube.transport import new_session
from covey.kube.watch import LineBuffer
from covey.observability import metrics
from covey.observability.logging import get_logger
from covey.operator.observe.informer import EVERYWHERE, Informer


class NoDiffBase(kopf.DiffBaseStorage):
    """No last-handled configuration."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:  # noqa: ARG002 - Kopf's signature
        """Return an empty essence."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002 - likewise
        """Return nothing."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """No progress of handlers."""

    def fetch(self, *, key: Any, body: kopf.Body) -> Any:  # noqa: ARG002 - Kopf's signature
        """Return nothing."""
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        """Store nothing."""

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Store nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """The essence as it is."""
        return essence


_log = get_logger(__name__)

#: Seconds before a request is made again, and between two watches of one kind.
_PAUSE: Final = 0.5
#: Answers after which the same request may be made again.
_PASSING: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
#: What makes Kopf list again; of its details Kopf reads the code.
_LIST_AGAIN: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


def open_session(connection: Connection, informers: Iterable[Informer[Any]]) -> aiohttp.ClientSession:
    """A session of this connection for Kopf, which closes it."""
    answers = KopfAnswers(informers, base=URL(connection.server).path.rstrip("/"))
    return new_session(connection, user_agent="covey-operator (kopf)", middlewares=(answers,))


class KopfAnswers:
    """A middleware of aiohttp's client: the table above.

    Args:
        informers: of the kinds that Kopf watches; requests for anything else are only made again where that may help.
        base: what the path of every request begins with, where the API server stands behind a path of its address.
    """

    def __init__(self, informers: Iterable[Informer[Any]], base: str = "") -> None:
        self._places = {
            base + each.kind.path(None if scope == EVERYWHERE else scope): (each, scope)
            for each in informers
            for scope in each.scopes
        }
        self._troubled: set[str] = set()
        self._begun: dict[str, float] = {}

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Answer a request of Kopf's."""
        place = self._places.get(request.url.path)
        if place is None:
            return await self._send(request, handler, "")
        informer, scope = place
        if "watch" in request.url.query:
            return await self._watch(request, handler, informer)
        return await self._list(request, handler, informer, scope)

    async def _list(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, informer: Informer[Any], scope: str
    ) -> aiohttp.ClientResponse:
        response = await self._send(request, handler, informer.resource)
        if response.ok:
            first = "continue" not in request.url.query
            _convert(response, _ListContent(response.content, partial(_take_list, informer, scope, first=first)))
            return response
        await self._note_refusal(response, informer)
        # Kopf lists again after a broken connection; a refusal would end it.
        raise aiohttp.ClientPayloadError(f"list of {informer.resource}: {response.status}")

    async def _watch(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, informer: Informer[Any]
    ) -> aiohttp.ClientResponse:
        path, now = request.url.path, asyncio.get_running_loop().time
        await asyncio.sleep(self._begun.get(path, 0.0) + _PAUSE - now())
        self._begun[path] = now()
        response = await self._send(request, handler, informer.resource)
        if response.ok:
            informer.note_contact()
            metrics.WATCH_STARTS.labels(informer.resource).inc()
            _convert(response, _WatchContent(response.content, informer))
            return response
        await self._note_refusal(response, informer)
        response.status = HTTPStatus.OK
        _convert(response, _WatchContent(response.content, informer, refused=True))
        return response

    async def _note_refusal(self, response: aiohttp.ClientResponse, informer: Informer[Any]) -> None:
        plural, absent = informer.resource, response.status == HTTPStatus.NOT_FOUND
        cause = "absent" if absent else "expired" if response.status == HTTPStatus.GONE else "lost"
        metrics.WATCH_FAILURES.labels(plural, cause).inc()
        if absent:
            if informer.served:
                _log.warning("resource is not served", resource=plural)
            informer.lose()
        else:
            _log.info("list or watch refused", resource=plural, status=response.status)
        response.release()
        await asyncio.sleep(_PAUSE)

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, plural: str
    ) -> aiohttp.ClientResponse:
        """Repeat a request until it has an answer that another try would not change."""
        verb = "watch" if "watch" in request.url.query else "list" if plural else "get"
        while True:
            code, sent = "error", time.perf_counter()
            try:
                response = await handler(request)
                code = str(response.status)
            except (aiohttp.ClientConnectionError, OSError, TimeoutError, KubeError) as error:
                trouble = repr(error)
            else:
                if response.status not in _PASSING and response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    self._note_end_of_trouble(request.url.path)
                    return response
                trouble = code
                response.release()
            finally:
                metrics.KUBE_REQUESTS.labels(verb, plural, code).inc()
                metrics.KUBE_REQUEST_DURATION.labels(verb).observe(time.perf_counter() - sent)
            self._note_trouble(request.url.path, plural, trouble)
            await asyncio.sleep(_PAUSE)

    def _note_trouble(self, path: str, plural: str, trouble: str) -> None:
        metrics.WATCH_FAILURES.labels(plural, "lost").inc()
        if path not in self._troubled:
            self._troubled.add(path)
            _log.warning("contact lost", path=path, error=trouble)

    def _note_end_of_trouble(self, path: str) -> None:
        if path in self._troubled:
            self._troubled.discard(path)
            _log.info("contact restored", path=path)


def _take_list(informer: Informer[Any], scope: str, body: bytes, *, first: bool) -> bytes:
    page = shallow_list(body)
    if page.unreadable:
        metrics.UNREADABLE_OBJECTS.labels(informer.resource).inc(page.unreadable)
        _log.warning("objects not read", resource=informer.resource, number=page.unreadable)
    informer.take_page(scope, page, first=first)
    return page.body


class _Content:
    """The body of a response; all that is not converted is the connection's own."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)


class _ListContent(_Content):
    """A list of shallow copies."""

    def __init__(self, content: aiohttp.StreamReader, convert: Callable[[bytes], bytes]) -> None:
        super().__init__(content)
        self._take = convert

    async def read(self) -> bytes:
        """Read the whole body, and convert it.

        Raises:
            ClientPayloadError: it is no list.
        """
        try:
            return self._take(await self._content.read())
        except Undecodable as error:
            raise aiohttp.ClientPayloadError(str(error)) from error


class _WatchContent(_Content):
    """Events of shallow copies, in whole lines."""

    def __init__(self, content: aiohttp.StreamReader, informer: Informer[Any], *, refused: bool = False) -> None:
        super().__init__(content)
        self._informer = informer
        self._refused = refused

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, whatever size is asked for."""
        if self._refused:
            yield _LIST_AGAIN
            return
        buffer = LineBuffer()
        async for chunk in self._content.iter_chunked(size):
            self._informer.note_contact()
            for line in buffer.feed(chunk):
                if event := self._convert(line):
                    yield event

    def _convert(self, line: bytes) -> bytes:
        plural = self._informer.resource
        try:
            kind, content = shallow_event(line)
        except Undecodable as error:
            metrics.UNREADABLE_OBJECTS.labels(plural).inc()
            _log.warning("watch event not read", resource=plural, size=len(line), error=str(error))
            return b""
        if kind == "ERROR":
            expired = b'"code":410' in content
            metrics.WATCH_FAILURES.labels(plural, "expired" if expired else "lost").inc()
            _log.info("watch ended with an error", resource=plural, error=content[:300].decode(errors="replace"))
            return _LIST_AGAIN
        return b'{"type":"' + kind.encode() + b'","object":' + content + b"}\n"


def _convert(response: aiohttp.ClientResponse, content: _Content) -> None:
    response.content = content  # type: ignore[assignment] # all that aiohttp and Kopf ask of it is there
