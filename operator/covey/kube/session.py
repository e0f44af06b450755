"""Sessions of aiohttp with the API server, for Covey's own requests and for kopf."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import aiohttp
from yarl import URL

from covey.kube.connection import Connection

#: Seconds an idle connection is kept, and bytes that a response may hold before its connection is paused.
KEEP_ALIVE: Final = 60.0


_SESSION_READ_BUFFER: Final = 1 << 16


def new_session(
    connection: Connection,
    *,
    user_agent: str,
    connections: int = 0,
    headers: Sequence[tuple[str, str]] = (),
    middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
    keep_alive: float = KEEP_ALIVE,
    read_buffer: int = _SESSION_READ_BUFFER,
) -> aiohttp.ClientSession:
    """Open a session within an event loop; the caller closes it.

    Each request carries the Authorization header as it is then. After a 401 it is sent once more, if there is another
    header to be had; ConfigurationError ends a request for which there is none. The client's own factory of sessions is
    not used: it has aiohttp read ``~/.netrc`` in a thread for each request.
    https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/client/rest.py#L148

    Args:
        connection: the server, and the identity towards it.
        user_agent: shown in the API server's audit log and flow control.
        connections: at most that many at once; 0 for no bound.
        headers: what else goes with each request.
        middlewares: the first is the outermost; all see a request before it is authorized, and its last answer.
        keep_alive: seconds an idle connection is kept.
        read_buffer: bytes that a response may hold before its connection is paused.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=connections,
            ssl=True if connection.tls is None else connection.tls,
            keepalive_timeout=keep_alive,
        ),
        headers=[("User-Agent", user_agent), *headers, *connection.headers],
        middlewares=(*middlewares, _make_authorizer(connection)),
        proxy=connection.configuration.proxy,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=read_buffer,
    )


def _make_authorizer(connection: Connection) -> aiohttp.ClientMiddlewareType:
    server_name, server = connection.configuration.tls_server_name, URL(connection.server).origin()

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        # Wherever a redirect leads, credentials are for the API server alone.
        if request.url.origin() != server:
            return await handler(request)
        if server_name is not None:
            request.server_hostname = server_name
        header = await connection.authorization()
        response = await _send(request, handler, header)
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        fresh = await connection.authorization(refused=header or "")
        if fresh == header:
            return response
        response.release()
        return await _send(request, handler, fresh)

    return authorize


async def _send(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, header: str | None
) -> aiohttp.ClientResponse:
    if header is not None:
        request.headers["Authorization"] = header
    return await handler(request)
