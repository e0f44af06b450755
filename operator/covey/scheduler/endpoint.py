"""The extender's port: it listens with TLS from files that may change.

A caller without a valid certificate gets no further than the handshake, and sees nothing of what is served.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from covey.observability import scheduler_metrics as metrics
from covey.observability.addresses import parse_address
from covey.observability.listener import BoundedListener, Bounds, bind
from covey.scheduler.barrier import MAX_HELD
from covey.scheduler.certificates import Certificates
from covey.scheduler.server import MAX_STRANGERS
from covey.scheduler.settings import EndpointMode, SchedulerSettings

#: Every held call is a connection; the rest is for calls that are answered at once.
MAX_CONNECTIONS: Final = MAX_HELD + MAX_STRANGERS + 512


#: Seconds for the next request's head. Go's client gives an idle connection up after 90 s, which must come first:
#: a call that is sent while we close would fail.
IDLE: Final = 120.0


class Endpoint:
    """The extender's port. Made by ``open``, ended by ``close``."""

    def __init__(self, listener: BoundedListener, certificates: Certificates | None) -> None:
        self._listener = listener
        self.certificates = certificates

    @classmethod
    async def open(
        cls, application: web.Application, settings: SchedulerSettings, *, most: int = MAX_CONNECTIONS
    ) -> Endpoint:
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
        listener = BoundedListener(
            application,
            await bind(*parse_address(settings.bind_address)),
            bounds=Bounds(most, IDLE),
            abandon=True,
            context=lambda: certificates.context if certificates else None,
            dropped=lambda why: metrics.EXTENDER_REQUESTS.labels("connect", why).inc(),
        )
        await listener.open()
        return cls(listener, certificates)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._listener.address[1]

    async def run(self) -> None:
        """Take connections, and look after the certificate, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listener.run())
            if self.certificates is not None:
                tasks.create_task(self.certificates.watch())

    async def close(self) -> None:
        """Listen no more, and cut off the calls that are held."""
        await self._listener.close()


def _closing(certificates: Certificates) -> Middleware:
    """Have callers connect again after their connection's certificates were replaced."""

    @web.middleware
    async def close(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if certificates.is_outdated(request.transport):
            response.force_close()
        return response

    return close
