"""The proxy of the soak against a server of one's own: what it hands on, and what it can do to it."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from authority import Authority
from localcluster import free_port
from soak.proxy import Proxy


@dataclass
class Server:
    """A little API server; what it was asked."""

    url: str
    authority: Path
    asked: list[tuple[str, str, str]] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    authority = Authority()
    certificate, key = authority.issue("localhost")
    for name, content in (("crt", certificate), ("key", key), ("ca", authority.pem)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    port = free_port()
    made = Server(f"https://127.0.0.1:{port}", tmp_path / "ca")
    loop, started = asyncio.new_event_loop(), threading.Event()
    end = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        made.asked.append((request.method, request.raw_path, request.headers.get("Authorization", "")))
        if "watch" not in request.query:
            return web.json_response({"said": (await request.read()).decode()})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED"}\n')
        await end.wait()
        return response

    async def serve() -> None:
        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        started.set()
        await end.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait()
    yield made
    loop.call_soon_threadsafe(end.set)
    thread.join()
    loop.close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.url, server.authority, random.Random(1)) as made:
        yield made


async def ask(proxy: Proxy, method: str, path: str, body: str = "") -> tuple[int, dict[str, str], bytes]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer me"}) as session,
        session.request(method, proxy.url + path, data=body or None) as answer,
    ):
        return answer.status, dict(answer.headers), await answer.read()


@pytest.mark.parametrize("kind", ["409", "429", "500", "503"])
async def test_refuses_without_asking(server: Server, proxy: Proxy, kind: str) -> None:
    proxy.trouble.shares[kind] = 1.0
    status, headers, content = await ask(proxy, "PATCH", "/api/v1/pods")
    assert status == int(kind)
    assert json.loads(content)["kind"] == "Status"
    assert ("Retry-After" in headers) == (kind == "429")
    assert not server.asked
    assert proxy.injected == {kind: 1}


@pytest.mark.parametrize(("kind", "asked"), [("reset", 0), ("lost answer", 1)])
async def test_ends_connections_before_or_after_the_deed(server: Server, proxy: Proxy, kind: str, asked: int) -> None:
    proxy.trouble.shares[kind] = 1.0
    with pytest.raises(aiohttp.ClientError):
        await ask(proxy, "POST", "/api/v1/pods")
    assert len(server.asked) == asked


async def test_says_that_a_version_has_expired(proxy: Proxy) -> None:
    proxy.trouble.expired = 1.0
    _, _, content = await ask(proxy, "GET", "/api/v1/pods?watch=1")
    assert json.loads(content)["object"]["code"] == 410


async def test_cuts_watches(proxy: Proxy) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{proxy.url}/api/v1/pods?watch=1") as answer:
        assert await answer.content.readline() == b'{"type":"ADDED"}\n'
        proxy.cut_watches()
        with pytest.raises(aiohttp.ClientError):
            await answer.content.readline()
    assert proxy.injected == {"cut watch": 1}


async def test_tells_of_deletions_before_they_are_done(server: Server) -> None:
    told: list[tuple[str, str, int]] = []
    with Proxy(
        server.url, server.authority, random.Random(1), lambda *pod: told.append((*pod, len(server.asked)))
    ) as proxy:
        await ask(proxy, "DELETE", "/api/v1/namespaces/shop/pods/llm-0")
        await ask(proxy, "DELETE", "/api/v1/namespaces/shop/services/llm-0")
    assert told == [("shop", "llm-0", 0)]
