"""Requests through the router, independent of each other, and what became of each."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from kubernetes.client import ApiException

from localcluster import Cluster, Recording
from routed.router import HEADER, SESSION, Router

#: Requests in a second, on average; seconds between looks at what the watch has brought; the longest that a request is waited for.
_RATE: Final = 25
_LOOK: Final = 0.02
_PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it was sent, in seconds from the beginning, how long it took, and what became of it.

    ``status`` 200 is an answer, 409 a decode that could not read the cache, anything else a loss.
    """

    at: float
    seconds: float
    status: int
    images: str


class Traffic:
    """Engines of all pods of a resource, a router and clients; a context manager, which waits for the last answers.

    Args:
        cluster: where the pods are.
        pods: path of their list.
    """

    def __init__(self, cluster: Cluster, pods: str) -> None:
        self.requests: list[Request] = []
        #: The combinations of images that were in force at some time; whoever writes a spec adds to it first.
        self.fits: set[tuple[str, str]] = set()
        self._cluster = cluster
        self._path = pods
        self._router = Router(self.fits, self._say_idle)
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(2 * _PATIENCE)
        assert not self._thread.is_alive(), "the last requests have not ended"
        if self._error is not None and error is None:
            raise self._error

    @property
    def lost(self) -> int:
        """Requests without an answer."""
        return sum(each.status not in {200, 409} for each in self.requests)

    @property
    def mixed(self) -> int:
        """Requests whose decode could not read the cache."""
        return sum(each.status == 409 for each in self.requests)

    @property
    def blind(self) -> int:
        """Requests that would have been mixed had each role been chosen by itself, whatever its pairing."""
        return self._router.blind

    def _run(self) -> None:
        try:
            with self._cluster.record(self._path) as recording:
                asyncio.run(self._serve(recording))
                recording.check()
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
            self._error = error

    async def _serve(self, recording: Recording) -> None:
        application = web.Application()
        application.router.add_post("/v1/completions", self._router.answer)
        connections = TCPConnector(limit=0, force_close=True)
        async with ClientSession(connector=connections, timeout=ClientTimeout(_PATIENCE)) as session:
            application[SESSION] = session
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            follower = asyncio.create_task(self._follow(recording))
            try:
                await self._send(session, f"http://{host}:{port}/v1/completions")
            finally:
                follower.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await follower
                await self._router.stop()
                await runner.cleanup()

    async def _follow(self, recording: Recording) -> None:
        seen = 0
        while True:
            events = recording.events[seen:]
            seen += len(events)
            for change, pod in events:
                await self._router.take(change, pod)
            await asyncio.sleep(_LOOK)

    async def _send(self, session: ClientSession, url: str) -> None:
        """Send at the rate, whatever becomes of those before, and wait for the last."""
        generator = random.Random(1)
        await asyncio.sleep(10 * _LOOK)
        self.began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while not self._ended.is_set():
                group.create_task(self._ask(session, url))
                await asyncio.sleep(generator.expovariate(_RATE))

    async def _ask(self, session: ClientSession, url: str) -> None:
        before = time.monotonic()
        status, images = 0, ""
        with contextlib.suppress(ClientError, TimeoutError):
            async with session.post(url, json={"prompt": "…"}) as answer:
                await answer.read()
                status, images = answer.status, answer.headers.get(HEADER, "")
        self.requests.append(Request(before - self.began, time.monotonic() - before, status, images))

    def _say_idle(self, pod: dict[str, Any]) -> None:
        """Write that nothing is under way; of a pod that has gone meanwhile nobody asks."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        body = {"metadata": {"uid": metadata["uid"], "annotations": {"covey.dev/in-flight": "0"}}}
        with contextlib.suppress(ApiException):
            self._cluster.api("PATCH", path, body)
