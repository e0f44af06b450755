"""A port with bounds on what its callers can use up: connections, time for a request's head, handshakes.

aiohttp bounds neither connections nor the time of a TLS handshake or of a head, so connections are taken here and
handed to it. A connection without a request under way may be closed: when all connections are in use, the one that has
waited longest is closed for the next, so half-open ones keep no probe out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

#: Connections of a port that answers at once.
CONNECTIONS: Final = 256
#: Seconds for the head of the first request of a connection.
HEAD: Final = 10.0
#: Seconds for a TLS handshake, as Go has them.
HANDSHAKE: Final = 10.0
#: Seconds that pass when no connection can be taken, for want of file descriptors.
_PAUSE: Final = 0.1
_BACKLOG: Final = 2048


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the connections to one address."""

    #: At a time.
    most: int = CONNECTIONS
    #: Seconds that a connection may wait for its next request.
    keepalive: float = 75.0


BOUNDS: Final = Bounds()


class BoundedListener:
    """The sockets of one address, those of ``bind``, and the HTTP server behind them; ended by ``close``.

    Args:
        application: what is served; the listener notes which of its connections have a request under way.
        sockets: bound, and listened on.
        bounds: of its connections.
        abandon: cancel the handler of a request whose sender has gone.
        context: of TLS, asked for each connection; None for none.
        dropped: called for each connection that gets no answer: ``too_many``, or ``denied`` in the handshake.
    """

    def __init__(
        self,
        application: web.Application,
        sockets: list[socket.socket],
        *,
        bounds: Bounds = BOUNDS,
        abandon: bool = False,
        context: Callable[[], ssl.SSLContext | None] = lambda: None,
        dropped: Callable[[str], None] = lambda _why: None,
    ) -> None:
        application.middlewares.append(self._watch())
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handler_cancellation=abandon,
            shutdown_timeout=1.0,
            keepalive_timeout=bounds.keepalive,
            lingering_time=1.0,
        )
        self._sockets = sockets
        self._most = bounds.most
        self._context = context
        self._dropped = dropped
        self._starting: set[asyncio.Task[None]] = set()
        #: Connections without a request under way, those that have waited longest first, and whether they have had one.
        self._idle: dict[asyncio.WriteTransport, bool] = {}

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the first socket."""
        host, port = self._sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self) -> None:
        """Make ready to answer."""
        await self._runner.setup()

    async def run(self) -> None:
        """Take connections, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for listening in self._sockets:
                tasks.create_task(self._accept(listening))

    async def close(self) -> None:
        """Listen no more, and cut off what is under way."""
        for listening in self._sockets:
            listening.close()
        for task in self._starting:
            task.cancel()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        server = self._runner.server
        assert server is not None
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._starting) + len(server.connections) >= self._most and not self._make_room():
                connection.close()
                continue
            task = loop.create_task(self._start(server, connection))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _make_room(self) -> bool:
        """Close the connection that has waited longest without a request; False when each has one under way."""
        self._dropped("too_many")
        while self._idle:
            transport = next(iter(self._idle))
            del self._idle[transport]
            if not transport.is_closing():
                transport.abort()
                return True
        return False

    async def _start(self, server: web.Server, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        context = self._context()
        timeout = HANDSHAKE if context else None
        try:
            made, _ = await loop.connect_accepted_socket(server, connection, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # no certificate, a bad one, no TLS at all, or too slow
            self._dropped("denied")
            with contextlib.suppress(OSError):
                connection.close()
            return
        self._rest(made, heard=False)
        loop.call_later(HEAD, self._give_up, made)

    def _rest(self, transport: asyncio.WriteTransport, *, heard: bool) -> None:
        """Record that a connection has no request under way; those that have ended are forgotten now and then."""
        if len(self._idle) > 2 * self._most:
            self._idle = {
                connection: answered for connection, answered in self._idle.items() if not connection.is_closing()
            }
        self._idle[transport] = heard

    def _give_up(self, transport: asyncio.WriteTransport) -> None:
        """End a connection that has sent no head; aiohttp does so with one that waits for its next."""
        if self._idle.get(transport) is False:
            del self._idle[transport]
            transport.abort()

    def _watch(self) -> Middleware:
        """Note which connections have a request under way."""

        @web.middleware
        async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
            transport = request.transport
            if transport is None:  # it has gone
                return await handler(request)
            self._idle.pop(transport, None)
            try:
                return await handler(request)
            finally:
                if not transport.is_closing():
                    self._rest(transport, heard=True)

        return watch


async def bind(host: str | None, port: int) -> list[socket.socket]:
    """Sockets of every address of a host; of every interface without one, with a kernel that may know no IPv6.

    Raises:
        OSError: one cannot be bound.
    """
    addresses = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            try:
                sockets.append(_listen(family, address))
            except OSError as error:
                if host is not None or error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                    raise
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    return sockets


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)  # noqa: FBT003 - the standard library's signature
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(error.errno, f"{address[0]}:{address[1]}: {str(error.strerror).lower()}") from None
    return made
