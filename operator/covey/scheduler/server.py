"""The extender's HTTP calls, as two entries of kube-scheduler's configuration make them.

``POST /guard/filter``, ``POST /guard/preempt``, ``POST /barrier/bind``, ``GET /healthz``, ``GET /readyz``. A caller
that hangs up cancels its request (``handler_cancellation``), else the calls of a dead kube-scheduler would be held for
ever. Nothing is answered from a cache that is not synced. Behind a Service every replica guards, and binds ordinary
pods; members are bound by the holder of the lease alone, for one barrier must hold all calls of a gang.

What is read at once is bounded: one body, all bodies together, the time for one, and the calls that are held.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.barrier import MAX_HELD
from covey.scheduler.binder import Binder
from covey.scheduler.guard import BIND_ARGS, ENCODER, FILTER_ARGS, PREEMPT_ARGS, BindResult, Guard
from covey.scheduler.leader_label import NotLeadingError

log = get_logger(__name__)

#: Bytes of one call. A filter call carries one pod and the names of all nodes: 1.3 MB for 20,000 nodes with names of
#: 63 letters. A preempt call carries the victims' UIDs; one that is too large fails, and nobody is evicted.
MAX_BODY: Final = 4 * 1024 * 1024
#: Bytes of the bodies that are read at one time, and the seconds for one of them.
MAX_READING: Final = 64 * MAX_BODY
READ_SECONDS: Final = 10.0
#: Bind calls of ordinary pods that are answered at one time; gangs that wait take nothing of it.
MAX_STRANGERS: Final = 512

#: What became of a call (the metric's ``result``), and the answer.
_Outcome = tuple[str, web.Response]


class ExtenderServer:
    """The calls.

    Args:
        guard: answers filter calls.
        binder: answers bind calls.
        synced: whether the cache is complete.
        most: bind calls of gangs that are held at one time.
        strangers: bind calls of other pods, beside them.
        heard: is told of each call.
    """

    def __init__(
        self,
        guard: Guard,
        binder: Binder,
        synced: Callable[[], bool],
        *,
        most: int = MAX_HELD,
        strangers: int = MAX_STRANGERS,
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._binder = binder
        self._synced = synced
        self._heard = heard
        self._most = {True: most, False: strangers}
        #: Bind calls under way, by whether the pod says that it is a member.
        self._binding = {True: 0, False: 0}
        self._reading = 0

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(client_max_size=MAX_BODY)
        application.add_routes(
            [
                web.post("/guard/filter", self._answer("filter", self._filter)),
                web.post("/guard/preempt", self._answer("preempt", self._preempt)),
                web.post("/barrier/bind", self._answer("bind", self._bind)),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        return application

    def _answer(
        self, verb: str, work: Callable[[bytes], Awaitable[_Outcome]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A handler that counts and times its calls."""

        async def answer(request: web.Request) -> web.Response:
            started = time.perf_counter()
            self._heard()
            result = "hung_up"
            try:
                result, response = await self._call(request, work)
            finally:
                metrics.EXTENDER_REQUESTS.labels(verb, result).inc()
                metrics.EXTENDER_DURATION.labels(verb).observe(time.perf_counter() - started)
            return response

        return answer

    async def _call(self, request: web.Request, work: Callable[[bytes], Awaitable[_Outcome]]) -> _Outcome:
        # 1. Nothing is answered from a cache that is not synced.
        if not self._synced():
            return "unavailable", _failure(503, "the cache is not synced yet")
        # 2. One body, and all together, are bounded, and so is the time for one.
        size = MAX_BODY if request.content_length is None else request.content_length
        if size > MAX_BODY:
            return _too_large()
        if self._reading + size > MAX_READING:
            return "busy", _failure(503, "too many calls are read at once")
        self._reading += size
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _too_large()
        except TimeoutError:
            return "timeout", _failure(408, f"the call did not come within {READ_SECONDS:g} s")
        finally:
            self._reading -= size
        # 3. The answer, for what can be read.
        try:
            return await work(body)
        except msgspec.MsgspecError as error:
            return "bad", _failure(400, str(error))

    async def _filter(self, body: bytes) -> _Outcome:
        result = self._guard.filter(FILTER_ARGS.decode(body))
        return "refused" if result.failed_and_unresolvable_nodes else "ok", _json(ENCODER.encode(result))

    async def _preempt(self, body: bytes) -> _Outcome:
        result = self._guard.preempt(PREEMPT_ARGS.decode(body))
        return "ok" if result.node_name_to_meta_victims else "refused", _json(ENCODER.encode(result))

    async def _bind(self, body: bytes) -> _Outcome:
        # 1. So many are held, of gangs and of ordinary pods; one that calls again for the same pod has its place.
        args = BIND_ARGS.decode(body)
        member = self._binder.is_member(args)
        under_way = self._binding[member]
        if under_way >= self._most[member] and args.pod_uid not in self._binder.waiting:
            return "busy", _bound(f"{under_way} calls are held already; it is tried again")
        # 2. It waits at the barrier until its gang may go, and is bound.
        self._binding[member] += 1
        try:
            why = await self._binder.bind(args)
        except NotLeadingError:
            response = _failure(503, "another replica leads")
            response.force_close()  # the next call is to find that one
            return "unavailable", response
        finally:
            self._binding[member] -= 1
        # 3. A refusal has kube-scheduler try again.
        if why:
            log.info("bind refused", namespace=args.pod_namespace, pod=args.pod_name, node=args.node, why=why)
        return "refused" if why else "ok", _bound(why)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._synced() else _failure(503, "not ready")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _bound(error: str) -> web.Response:
    return _json(ENCODER.encode(BindResult(error)))


def _failure(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _too_large() -> _Outcome:
    response = _failure(413, f"a call has at most {MAX_BODY} bytes")
    response.force_close()
    return "too_large", response
