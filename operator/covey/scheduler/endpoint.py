"""Where the extender listens: with TLS from files that may change, and a bound on everything a caller can use up.

aiohttp bounds neither connections nor the time of a TLS handshake, so connections are taken here and handed to it. A
caller without a valid certificate gets no further than the handshake, and sees nothing of what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from covey.observability import scheduler_metrics as metrics
from covey.observability.http import parse_address
from covey.scheduler.barrier import MAX_HELD
from covey.scheduler.certificates import Certificates
from covey.scheduler.server import MAX_STRANGERS
from covey.scheduler.settings import EndpointMode, Settings

#: Every held call is a connection; the rest is for calls that are answered at once.
MAX_CONNECTIONS: Final = MAX_HELD + MAX_STRANGERS + 512
#: Seconds for a TLS handshake, as Go has them; a burst of bind calls makes thousands at once.
HANDSHAKE: Final = 10.0
#: Seconds for the next request's head. Go's client gives an idle connection up after 90 s, which must come first:
#: a call that is sent while we close would fail.
IDLE: Final = 120.0
#: Seconds that pass when no connection can be taken, for want of file descriptors.
_PAUSE: Final = 0.1
_BACKLOG: Final = 2048


class Endpoint:
    """The sockets, and the HTTP server behind them. Made by ``open``, ended by ``close``."""

    def __init__(
        self, runner: web.AppRunner, sockets: list[socket.socket], certificates: Certificates | None, most: int
    ) -> None:
        self._runner = runner
        self._sockets = sockets
        self.certificates = certificates
        self._most = most
        self._starting: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, application: web.Application, settings: Settings, *, most: int = MAX_CONNECTIONS) -> Endpoint:
        """Listen; nothing is answered before ``run``.

        Raises:
            OSError: the address cannot be bound, or a certificate file cannot be used.
            ValueError: a Service without mutual TLS, or a certificate file that is none.
        """
        tls = settings.tls
        if settings.endpoint_mode is EndpointMode.SERVICE and (tls is None or tls.client_ca_file is None):
            raise ValueError("an extender behind a Service needs mutual TLS")
        certificates = Certificates(tls) if tls else None
        if certificates is not None:
            application.middlewares.append(_closing(certificates))
        runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0, keepalive_timeout=IDLE
        )
        host, port = parse_address(settings.bind_address)
        sockets = await _bind(host, port)
        await runner.setup()
        return cls(runner, sockets, certificates, most)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._sockets[0].getsockname()[1])

    async def run(self) -> None:
        """Take connections, and look after the certificate, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._sockets:
                tasks.create_task(self._accept(each))
            if self.certificates is not None:
                tasks.create_task(self.certificates.watch())

    async def close(self) -> None:
        """Listen no more, and cut off the calls that are held."""
        for each in self._sockets:
            each.close()
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
            if len(self._starting) + len(server.connections) >= self._most:
                metrics.EXTENDER_REQUESTS.labels("connect", "too_many").inc()
                connection.close()
                continue
            task = loop.create_task(self._start(server, connection))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    async def _start(self, server: web.Server, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        context = self.certificates.context if self.certificates else None
        timeout = HANDSHAKE if context else None
        try:
            await loop.connect_accepted_socket(server, connection, ssl=context, ssl_handshake_timeout=timeout)
        except OSError:  # no certificate, a bad one, no TLS at all, or too slow
            metrics.EXTENDER_REQUESTS.labels("connect", "denied").inc()
            with contextlib.suppress(OSError):
                connection.close()


def _closing(certificates: Certificates) -> Middleware:
    """Have callers connect again after their connection's certificates were replaced."""

    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if certificates.outdated(request.transport):
            response.force_close()
        return response

    return close


async def _bind(host: str | None, port: int) -> list[socket.socket]:
    """Sockets of every address of a host; of every interface without one, with a kernel that may know no IPv6."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                sockets.append(_listen(family, address))
            except OSError as error:
                if host is not None or error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                    raise
    except OSError:
        for each in sockets:
            each.close()
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
    except OSError:
        made.close()
        raise
    return made
