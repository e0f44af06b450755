"""None"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import unused_port

from covey.observability.addresses import parse_address
from covey.observability.http import serve_health
from covey.observability.listener import BoundedListener, Bounds, bind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":8080", (None, 8080)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_addresses(text: str, expected: tuple[str | None, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["8080", "host", "host:", "host:port", "::1:80", ":65536", ":-1", "http://x:80"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        parse_address(text)


async def test_probes_and_metrics() -> None:
    ready = False

    def readyz() -> tuple[bool, str]:
        return ready, "synced" if ready else "waiting for pods"

    async with (
        serve_health("127.0.0.1:0", "127.0.0.1:0", lambda: (True, "ok"), readyz) as served,
        ClientSession() as session,
    ):
        async with session.get(f"{served.health_url}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with session.get(f"{served.health_url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "waiting for pods\n")
        ready = True
        async with session.get(f"{served.health_url}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "synced\n")
        async with session.get(f"{served.metrics_url}/metrics") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "covey_build_info" in await answer.text()
        async with session.get(f"{served.metrics_url}/healthz") as answer:
            assert answer.status == 404


async def test_an_address_in_use_frees_the_other() -> None:
    async with serve_health("0", "127.0.0.1:0", lambda: (True, ""), lambda: (True, "")) as served:
        assert served.health_url
        port = served.health_url.rpartition(":")[2]
        free = unused_port()
        with pytest.raises(OSError, match="address already in use"):
            async with serve_health(f"127.0.0.1:{free}", f"127.0.0.1:{port}", lambda: (True, ""), lambda: (True, "")):
                pass
        async with serve_health(f"127.0.0.1:{free}", "0", lambda: (True, ""), lambda: (True, "")) as again:
            assert again.metrics_url == f"http://127.0.0.1:{free}"


HALF = b"GET /healthz HTTP/1.1\r\nHost: covey\r\n"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def half_open(port: int, count: int) -> AsyncIterator[list[Stream]]:
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in streams:
        writer.write(HALF)
    try:
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


@asynccontextmanager
async def listening(application: web.Application, most: int) -> AsyncIterator[int]:
    made = BoundedListener(application, await bind("127.0.0.1", 0), bounds=Bounds(most))
    await made.open()
    running = asyncio.create_task(made.run())
    try:
        yield made.address[1]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """The other side has closed it without an answer."""
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionResetError:
        return True


async def test_who_has_a_request_under_way_is_not_sent_away() -> None:
    begun, finish = asyncio.Semaphore(0), asyncio.Event()

    async def wait(_: web.Request) -> web.Response:
        begun.release()
        await finish.wait()
        return web.Response(text="done")

    application = web.Application()
    application.router.add_get("/", wait)
    async with listening(application, most=2) as port, ClientSession() as session:

        async def ask() -> str:
            async with session.get(f"http://127.0.0.1:{port}/") as answer:
                return await answer.text()

        asked = [asyncio.create_task(ask()) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        async with half_open(port, 1) as [(reader, _)]:
            assert await ended(reader)
        finish.set()
        assert await asyncio.gather(*asked) == ["done", "done"]
        # Idle now, though kept alive: they make room.
        async with half_open(port, 2) as streams:
            await asyncio.sleep(0)
            assert await ask() == "done"
            assert len(streams) == 2


async def test_all_interfaces() -> None:
    port = unused_port()
    async with (
        serve_health("0", f":{port}", lambda: (True, ""), lambda: (True, "")) as served,
        ClientSession() as session,
    ):
        assert served.health_url == f"http://127.0.0.1:{port}"
        async with session.get(f"{served.health_url}/healthz") as answer:
            assert answer.status == 200
