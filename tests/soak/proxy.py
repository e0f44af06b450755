"""A proxy between one of Covey's processes and the API server, which can be told to fail.

It speaks plain HTTP on loopback and hands on whatever is asked with the caller's own bearer token, so that rights are
the caller's. It runs on an event loop in a thread of its own; ``Trouble`` says what goes wrong meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from localcluster import Cluster, access, free_port
from localcluster.ports import HOST

#: Answers that a real API server gives when it cannot do what is asked: status, reason, and headers.
REFUSALS: Final[Mapping[str, tuple[int, str, Mapping[str, str]]]] = {
    "403": (403, "Forbidden", {}),
    "409": (409, "Conflict", {}),
    "429": (429, "TooManyRequests", {"Retry-After": "1"}),
    "500": (500, "InternalError", {}),
    "503": (503, "ServiceUnavailable", {}),
}
#: What else can happen to a request: its connection ends before it is sent on, or after it was done; it takes long.
OTHERS: Final = ("reset", "lost answer", "slow")
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}
)
_POD: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)")
_EXPIRED: Final = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Expired",
        "code": 410,
        "message": "too old resource version",
    },
}


@dataclass
class Trouble:
    """What goes wrong now: the share of requests that each kind hits, and of new watches that are told 410."""

    shares: dict[str, float] = field(default_factory=dict)
    expired: float = 0.0
    #: No watch can be begun.
    blind: bool = False
    #: Longest time in seconds that a slow answer takes.
    slowness: float = 2.0

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self.shares.clear()
        self.expired = 0.0
        self.blind = False


class Proxy:
    """One proxy, a context manager.

    Attributes:
        url: Where it listens.
        trouble: What goes wrong; may be changed at any time, from any thread.
        injected: What went wrong so far, by kind.
        watches: How many watches were cut.

    Args:
        server: Address of the API server.
        authority: The certificate to trust it by.
        generator: Decides which requests are hit.
        deleting: Called with namespace and name before a pod's deletion is sent on.
    """

    def __init__(
        self,
        server: str,
        authority: Path,
        generator: random.Random,
        deleting: Callable[[str, str], object] = lambda _namespace, _name: None,
    ) -> None:
        self._server = server
        self._authority = authority
        self._random = generator
        self._deleting = deleting
        self._port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._end: asyncio.Event | None = None
        self._watching: set[asyncio.Transport] = set()
        self._mute: set[asyncio.Transport] = set()
        self.url = f"http://{HOST}:{self._port}"
        self.trouble = Trouble()
        self.injected: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def cut_watches(self) -> None:
        """End every watch without a word, as a load balancer does."""

        def cut() -> None:
            for transport in self._watching:
                self.injected["cut watch"] += 1
                transport.abort()

        self._loop.call_soon_threadsafe(cut)

    def silence_watches(self) -> None:
        """Hand on nothing more of the watches that are open, and end none, as a firewall that has forgotten them."""
        self._loop.call_soon_threadsafe(lambda: self._mute.update(self._watching))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._started.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        tls = ssl.create_default_context(cafile=self._authority)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=120)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls), timeout=limits, auto_decompress=False
        ) as session:
            self._session = session
            runner = web.ServerRunner(web.Server(self._answer), handler_cancellation=True, shutdown_timeout=1.0)
            await runner.setup()
            try:
                await web.TCPSite(runner, HOST, self._port).start()
                self._started.set()
                await self._end.wait()
            except OSError as error:
                self._failure = error
            finally:
                await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        kind = self._draw(request)
        if kind is not None:
            self.injected[kind] += 1
            if kind in REFUSALS:
                return _refuse(kind)
        if kind == "reset":
            return _hang_up(request)
        if kind == "slow":
            await asyncio.sleep(self._random.uniform(0.1, self.trouble.slowness))
        if request.method == "DELETE" and (found := _POD.fullmatch(request.path)):
            self._deleting(*found.groups())
        try:
            return await self._hand_on(request, lose=kind == "lost answer")
        except (aiohttp.ClientError, TimeoutError, OSError):
            return _hang_up(request)

    def _draw(self, request: web.BaseRequest) -> str | None:
        """What happens to a request."""
        if "watch" in request.query:
            return "reset" if self.trouble.blind else None
        dice = self._random.random()
        for kind, share in list(self.trouble.shares.items()):
            if dice < share:
                # Reads are not refused for a conflict.
                return None if kind == "409" and request.method == "GET" else kind
            dice -= share
        return None

    async def _hand_on(self, request: web.BaseRequest, *, lose: bool) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        body = await request.read() if request.can_read_body else None
        async with self._session.request(
            request.method,
            URL(self._server + request.raw_path, encoded=True),
            headers=headers,
            data=body,
            allow_redirects=False,
        ) as found:
            kept = {name: value for name, value in found.headers.items() if name.lower() not in _HOP_BY_HOP}
            if "watch" in request.query:
                return await self._hand_on_watch(request, found, kept)
            content = await found.read()
            if lose:
                return _hang_up(request)
            return web.Response(status=found.status, headers=kept, body=content)

    async def _hand_on_watch(
        self, request: web.BaseRequest, found: aiohttp.ClientResponse, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        answer = web.StreamResponse(status=found.status, headers=headers)
        await answer.prepare(request)
        if found.status == 200 and self._random.random() < self.trouble.expired:
            self.injected["410"] += 1
            await answer.write(json.dumps(_EXPIRED).encode() + b"\n")
            await answer.write_eof()
            return answer
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._watching.add(transport)
        try:
            async for chunk in found.content.iter_any():
                if transport not in self._mute:
                    await answer.write(chunk)
        finally:
            self._watching.discard(transport)
        await answer.write_eof()
        return answer


def proxied_kubeconfig(cluster: Cluster, proxy: Proxy, account: str) -> Path:
    """A kubeconfig file for one of Covey's service accounts, whose requests go through a proxy."""
    token = cluster.service_account_token("covey-system", account)
    path = cluster.directory / f"{account}.proxied.kubeconfig"
    made = access.write_kubeconfig(path, server=proxy.url, token=token, authority=cluster.files.authority)
    config = yaml.safe_load(made.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    made.write_text(yaml.safe_dump(config))
    return made


def _refuse(kind: str) -> web.Response:
    code, reason, headers = REFUSALS[kind]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": f"the soak's proxy says {code}",
    }
    return web.json_response(status, status=code, headers=headers)


def _hang_up(request: web.BaseRequest) -> web.Response:
    """End the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
