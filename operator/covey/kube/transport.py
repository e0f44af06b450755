"""Carries requests to the API server over aiohttp: connections, credentials, repetition, errors, metrics.

aiohttp: a third of the processor time that a request takes with httpx.  HTTP/1.1 with keep-alive; 64 connections
saturate an API server.  Answers are not compressed: in the cluster CPU is scarcer than bandwidth.

What is repeated, a bounded number of times: 429 and 503 of every verb when the server gives a time
(``Retry-After``; it has not acted then), 429 in any case, 503 and 504 of requests that are ``repeatable``;
a lost connection when the request is ``repeatable`` or when it was never sent; a 401 once, with fresh
credentials.  Below that, aiohttp repeats a GET, PUT or DELETE once when a connection breaks before any answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from covey.kube.connection import Connection
from covey.kube.errors import ApiError, TooManyRequests, Unreachable, api_error
from covey.kube.request import JSON, Request
from covey.kube.session import KEEP_ALIVE, new_session
from covey.observability.metrics import KUBE_REQUEST_DURATION, KUBE_REQUESTS

ATTEMPTS: Final = 5
#: Seconds before the second attempt, doubled for each further one, when the server names no time.
_FIRST_DELAY: Final = 0.1
#: Longest wait, in seconds, that a server's Retry-After can impose on a caller.
_LONGEST_DELAY: Final = 10.0
#: Seconds to connect.
_CONNECT: Final = 5.0
#: Bytes a stream may hold before the connection is paused; watch events are megabytes at worst.
_READ_BUFFER: Final = 1 << 20


class Transport:
    """A session with one server; opened by the first request, closed by ``close``."""

    def __init__(self, connection: Connection, *, user_agent: str, connections: int, generator: random.Random) -> None:
        self._connection = connection
        self._server = connection.server
        self._user_agent = user_agent
        self._connections = connections
        self._random = generator
        self._session: aiohttp.ClientSession | None = None
        self._reading: set[aiohttp.ClientResponse] = set()
        self._closed = False

    async def send(self, request: Request, *, seconds: float) -> bytes:
        """The body of the answer.

        Args:
            request: what to send.
            seconds: of silence that end an attempt. Waiting for one of the connections is not bounded: it is what
                slows down a caller that has more to send than the server takes.

        Raises:
            ApiError: any answer but 2xx.
            Unreachable: no answer.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=seconds)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                return await self._attempt(request, limits)
            except ApiError as error:
                delay = None if last else _delay_after(error, request, attempt)
                if delay is None:
                    raise
            except Unreachable as error:
                if last or not _may_repeat(request, error.__cause__):
                    raise
                delay = _FIRST_DELAY * 2**attempt
            # Half of it at random, so that requests that failed together do not come back together.
            await asyncio.sleep(delay * self._random.uniform(1.0, 1.5))
        raise AssertionError("the last attempt returns or raises")

    @asynccontextmanager
    async def stream(self, request: Request, *, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """The body as it arrives, in chunks of any size; one attempt.

        Args:
            request: what to send.
            silence: seconds without a byte after which the connection is taken for dead.

        Raises:
            ApiError: any answer but 2xx.
            Unreachable: no answer, or the stream was cut; also while iterating.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=silence)
        response = await self._open(request, limits)
        self._reading.add(response)
        try:
            yield _chunks(request, response)
        finally:
            self._reading.discard(response)
            response.close()

    async def close(self) -> None:
        """Close every connection, for good; streams end with Unreachable."""
        self._closed = True
        for response in self._reading:
            # Left to itself aiohttp lets the reader of a body wait for ever when its session is closed.
            response.content.set_exception(aiohttp.ClientConnectionError("the client is closed"))
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _attempt(self, request: Request, limits: aiohttp.ClientTimeout) -> bytes:
        response = await self._open(request, limits)
        self._reading.add(response)
        try:
            with _as_unreachable(request):
                return await response.read()
        finally:
            self._reading.discard(response)

    async def _open(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        """Send; raise unless the answer is 2xx."""
        response = await self._exchange(request, limits)
        if not response.ok:
            with _as_unreachable(request):
                body = await response.read()
            raise api_error(response.status, body, _seconds(response.headers.get("Retry-After")))
        return response

    async def _exchange(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if request.accept != JSON:
            headers["Accept"] = request.accept
        code, sent = "error", time.perf_counter()
        try:
            with _as_unreachable(request):
                response = await self._open_session().request(
                    request.method,
                    URL(self._server + request.url, encoded=True),
                    data=request.body,
                    headers=headers,
                    timeout=limits,
                    allow_redirects=False,
                )
            code = str(response.status)
            return response
        finally:
            KUBE_REQUESTS.labels(request.verb, request.resource, code).inc()
            KUBE_REQUEST_DURATION.labels(request.verb).observe(time.perf_counter() - sent)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Unreachable("the client is closed")
        if self._session is None:
            self._session = new_session(
                self._connection,
                user_agent=self._user_agent,
                connections=self._connections,
                keep_alive=KEEP_ALIVE,
                read_buffer=_READ_BUFFER,
                headers=(("Accept", JSON), ("Accept-Encoding", "identity")),
            )
        return self._session


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    with _as_unreachable(request):
        async for chunk in response.content.iter_any():
            yield chunk


@contextmanager
def _as_unreachable(request: Request) -> Iterator[None]:
    """Whatever aiohttp and the socket say, as one error that names the request."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable(f"{request.method} {request.path}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(f"{request.method} {request.path}: {error!r}") from error


def _may_repeat(request: Request, cause: BaseException | None) -> bool:
    """Tell whether a request may be sent again.

    A time-out is not repeated: the server is slow, and more of the same does not make it faster.
    """
    if cause is None or isinstance(cause, TimeoutError):
        return False
    return request.repeatable or isinstance(cause, aiohttp.ClientConnectorError)


def _delay_after(error: ApiError, request: Request, attempt: int) -> float | None:
    """Return the seconds until the next attempt; None when the answer stands."""
    shed = isinstance(error, TooManyRequests) or (
        error.code == HTTPStatus.SERVICE_UNAVAILABLE and error.retry_after is not None
    )
    passing = error.code in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT} and request.repeatable
    if not (shed or passing):
        return None
    if error.retry_after is not None:
        return min(error.retry_after, _LONGEST_DELAY)
    return _FIRST_DELAY * 2.0**attempt


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` in seconds; the API server never sends its other form, a date."""
    return float(header) if header and header.isdecimal() else None
