"""Metrics and probes over HTTP, each on an address of its own.

``/healthz`` and ``/readyz`` ask the process; ``/metrics`` renders in a thread, since with many series it takes
long enough to hold up the event loop that bind calls hang on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from covey.observability import metrics
from covey.observability.addresses import is_off, parse_address
from covey.observability.listener import BoundedListener, bind

#: Says whether all is well, and a line of text for the caller.
Probe = Callable[[], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class Served:
    """Addresses of the endpoints, as URLs without path; None where one is switched off."""

    metrics_url: str | None
    health_url: str | None


@asynccontextmanager
async def serve_health(
    metrics_address: str, health_address: str, healthz: Probe, readyz: Probe
) -> AsyncIterator[Served]:
    """Serve metrics and probes inside an ``async with``.

    Args:
        metrics_address: of ``/metrics``; port 0 takes a free one, ``""`` or ``"0"`` serves none.
        health_address: of ``/healthz`` and ``/readyz``; likewise.
        healthz: whether the process should go on living.
        readyz: whether it should be sent work.

    Raises:
        ValueError: an address that cannot be read.
        OSError: an address that cannot be bound.
    """
    async with AsyncExitStack() as stack:
        metrics_url = await stack.enter_async_context(serve(metrics_app(), metrics_address))
        health_url = await stack.enter_async_context(serve(health_app(healthz, readyz), health_address))
        yield Served(metrics_url, health_url)


@asynccontextmanager
async def serve(app: web.Application, address: str, *, abandon: bool = False) -> AsyncIterator[str | None]:
    """Serve an application at an address; yields its URL, None when the address switches it off.

    Args:
        app: the application.
        address: where to listen; port 0 takes a free one, ``""`` or ``"0"`` serves nothing.
        abandon: cancel the handler of a request whose sender has gone.
    """
    if is_off(address):
        yield None
        return
    listener = BoundedListener(
        app,
        await bind(*parse_address(address)),
        abandon=abandon,
        dropped=lambda _why: metrics.CONNECTIONS_DROPPED.inc(),
    )
    await listener.open()
    running = asyncio.create_task(listener.run())
    try:
        yield _url(*listener.address)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await listener.close()


def metrics_app() -> web.Application:
    """The application behind ``/metrics``."""

    async def render(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(metrics.render)
        return web.Response(body=body, headers={"Content-Type": metrics.CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", render)
    return app


def health_app(healthz: Probe, readyz: Probe) -> web.Application:
    """The application behind the probes: 200 when well, 503 with the reason when not."""

    def answer(probe: Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(_: web.Request) -> web.Response:
            well, text = probe()
            return web.Response(status=200 if well else 503, text=f"{text}\n")

        return handle

    app = web.Application()
    app.router.add_get("/healthz", answer(healthz))
    app.router.add_get("/readyz", answer(readyz))
    return app


def _url(host: str, port: int) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - to be replaced, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
