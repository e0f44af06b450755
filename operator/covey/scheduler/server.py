"""The extender's HTTP server, as two entries of kube-scheduler's configuration call it.

``POST /guard/filter``, ``POST /guard/preempt``, ``POST /barrier/bind``,
``GET /healthz``, ``GET /readyz``. A caller that hangs up cancels its request (``handler_cancellation``), else the
calls of a dead kube-scheduler would be held for ever. Nothing is answered from a cache that is not synced.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from covey.observability import metrics
from covey.observability.http import parse_address
from covey.observability.logging import get_logger
from covey.scheduler.binder import Binder
from covey.scheduler.guard import Guard
from covey.scheduler.settings import Settings, Tls
from covey.scheduler.wire import BIND_ARGS, ENCODER, FILTER_ARGS, PREEMPT_ARGS, BindResult

log = get_logger(__name__)

#: A filter call carries one pod and the names of all nodes; a preempt call every victim too.
MAX_BODY: Final = 64 * 1024 * 1024


class Extender:
    """The handlers. ``ready`` says whether calls may be answered."""

    def __init__(self, guard: Guard, binder: Binder, ready: Callable[[], bool], synced: Callable[[], bool]) -> None:
        self._guard = guard
        self._binder = binder
        self._ready = ready
        self._synced = synced

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(client_max_size=MAX_BODY)
        application.add_routes(
            [
                web.post("/guard/filter", self._filter),
                web.post("/guard/preempt", self._preempt),
                web.post("/barrier/bind", self._bind),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        return application

    async def _filter(self, request: web.Request) -> web.Response:
        if not self._synced():
            return _unavailable("filter")
        try:
            args = FILTER_ARGS.decode(await request.read())
        except msgspec.MsgspecError as error:
            return _bad("filter", error)
        result = self._guard.filter(args)
        metrics.EXTENDER_REQUESTS.labels("filter", "refused" if result.failed_and_unresolvable_nodes else "ok").inc()
        return _json(ENCODER.encode(result))

    async def _preempt(self, request: web.Request) -> web.Response:
        if not self._synced():
            return _unavailable("preempt")
        try:
            args = PREEMPT_ARGS.decode(await request.read())
        except msgspec.MsgspecError as error:
            return _bad("preempt", error)
        result = self._guard.preempt(args)
        metrics.EXTENDER_REQUESTS.labels("preempt", "ok" if result.node_name_to_meta_victims else "refused").inc()
        return _json(ENCODER.encode(result))

    async def _bind(self, request: web.Request) -> web.Response:
        if not self._synced():
            return _unavailable("bind")
        try:
            args = BIND_ARGS.decode(await request.read())
        except msgspec.MsgspecError as error:
            return _bad("bind", error)
        why = await self._binder.bind(args)
        if why:
            log.info("bind refused", namespace=args.pod_namespace, pod=args.pod_name, node=args.node, why=why)
        metrics.EXTENDER_REQUESTS.labels("bind", "refused" if why else "ok").inc()
        return _json(ENCODER.encode(BindResult(why)))

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._ready() else web.Response(status=503, text="not ready\n")


async def serve(application: web.Application, settings: Settings) -> web.AppRunner:
    """Listen. The caller cleans the runner up, which ends the calls that are held."""
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    host, port = parse_address(settings.bind_address)
    site = web.TCPSite(runner, host, port, ssl_context=_tls(settings.tls) if settings.tls else None, backlog=2048)
    await site.start()
    return runner


def _tls(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.cert_file, tls.private_key_file)
    if tls.client_ca_file:
        context.load_verify_locations(tls.client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _unavailable(verb: str) -> web.Response:
    metrics.EXTENDER_REQUESTS.labels(verb, "unavailable").inc()
    return web.Response(status=503, text="the cache is not synced yet\n")


def _bad(verb: str, error: Exception) -> web.Response:
    metrics.EXTENDER_REQUESTS.labels(verb, "bad").inc()
    return web.Response(status=400, text=f"{error}\n")
