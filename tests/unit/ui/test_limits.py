"""Bounds on what viewers may have under way, and that nothing is done for those who have gone."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.kubeconfig_guards import Configuration
from covey.ui.feed import Sender
from covey.ui.gate import OwnToken
from covey.ui.headers import Limits
from covey.ui.process import serve_link
from covey.ui.server import Server
from covey.ui.viewers import Busy, Credentials, Viewers, identity_of


class Silent:
    """A socket in the place of an API server: it takes everything and says nothing."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.left = asyncio.Event()

    async def keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.heard.set()
        with suppress(ConnectionError):
            await reader.read()
        self.left.set()
        writer.close()


@pytest.fixture
async def silent() -> AsyncIterator[tuple[Silent, Connection]]:
    found = Silent()
    server = await asyncio.start_server(found.keep, "127.0.0.1", 0)
    async with server:
        yield found, Connection(Configuration(host=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))


async def test_who_asks_too_much_at_once_is_told_so_and_others_are_not(silent: tuple[Silent, Connection]) -> None:
    there, connection = silent
    gate, limits = OwnToken(connection), Limits(questions=1, all_questions=2)
    app = Server(gate, Viewers(gate.mode, limits=limits, clock=SYSTEM), limits=limits).application()
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as session:

        async def ask(token: str, path: str = "/api/gangs/a/b/story") -> int:
            async with session.get(path, headers={"Authorization": f"Bearer {token}"}) as answer:
                return answer.status

        async def begin(token: str) -> asyncio.Task[int]:
            there.heard.clear()
            task = asyncio.create_task(ask(token))
            await there.heard.wait()
            return task

        first = await begin("one")
        assert [await ask("one"), await ask("one", "/api/state")] == [429, 429]
        second = await begin("two")
        assert await ask("three") == 429, "all together ask too much"
        for each in (first, second):
            each.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


async def test_service_accounts_of_a_namespace_share_what_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, going_on = asyncio.Semaphore(0), asyncio.Event()

    accounts = {f"{home}-{number}": home for home in ("evil", "good", "other") for number in (1, 2, 3)}
    homes = {identity_of(token): home for token, home in accounts.items()}

    async def tenant(_viewers: Viewers, credentials: Credentials) -> str | None:
        return homes.get(credentials.identity)

    async def read_story(*_: object) -> None:
        reading.release()
        await going_on.wait()
        raise Busy("over")

    monkeypatch.setattr(Viewers, "tenant", tenant)
    monkeypatch.setattr("covey.ui.server.read_story", read_story)
    limits = Limits(tenant_questions=2, account_questions=3)
    gate = OwnToken(Connection(Configuration(host="http://127.0.0.1:1")))
    app = Server(gate, Viewers(gate.mode, limits=limits, clock=SYSTEM), limits=limits).application()
    async with TestServer(app) as server, ClientSession(server.make_url("/")) as session:

        async def ask(token: str) -> str:
            async with session.get("/api/gangs/a/b/story", headers={"Authorization": f"Bearer {token}"}) as answer:
                return await answer.text()

        tasks = [asyncio.create_task(ask(token)) for token in ("evil-1", "evil-2", "good-1")]
        for _ in tasks:
            await reading.acquire()
        assert "service accounts ask too much" in await ask("evil-3")
        assert "service accounts ask too much" in await ask("other-1"), "all accounts together"
        tasks.append(asyncio.create_task(ask("admin")))
        await reading.acquire()
        going_on.set()
        assert all("over" in text for text in await asyncio.gather(*tasks))


async def test_nobody_is_asked_any_more_for_who_has_gone(
    silent: tuple[Silent, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.kube.client._SECONDS", 3600)
    there, connection = silent
    links: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.create_task(serve_link(connection, "127.0.0.1:0", links.put_nowait))
    base, _, code = (await links.get()).partition("/#code=")
    async with ClientSession(base) as session:
        async with session.post("/api/session", json={"code": code}) as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['token']}"}
        asking = asyncio.create_task(session.get("/api/gangs/a/b/story", headers=headers))
        await there.heard.wait()
        asking.cancel()
    await asyncio.wait_for(there.left.wait(), 120)
    serving.cancel()
    await asyncio.gather(serving, asking, return_exceptions=True)


async def test_plans_are_made_one_by_one_though_their_viewers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released, running, most = threading.Event(), threading.Event(), 0, 0
    read = asyncio.Semaphore(0)

    def plan(*_: object) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        begun.set()
        released.wait()
        running -= 1
        return "planned"

    async def read_facts(*_: object) -> tuple[None, tuple[()]]:
        read.release()
        return None, ()

    async def tenant(*_: object) -> None:
        return None

    monkeypatch.setattr(Viewers, "tenant", tenant)
    monkeypatch.setattr("covey.ui.server.plan", plan)
    monkeypatch.setattr("covey.ui.server.read_facts", read_facts)
    gate = OwnToken(Connection(Configuration(host="http://127.0.0.1:1")))
    async with (
        TestServer(Server(gate, Viewers(gate.mode, clock=SYSTEM)).application()) as server,
        ClientSession() as session,
    ):
        headers = {"Authorization": "Bearer x", "Content-Type": "text/plain"}

        async def ask() -> int:
            async with session.post(server.make_url("/api/plan"), data="a", headers=headers) as answer:
                return answer.status

        gone = asyncio.create_task(ask())
        await read.acquire()
        await asyncio.to_thread(begun.wait)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        second = asyncio.create_task(ask())
        await read.acquire()
        await asyncio.sleep(0.2)  # where it could begin, it would have begun
        released.set()
        assert await second == 200
    assert most == 1


async def test_a_page_that_takes_nothing_is_cut() -> None:
    ended = asyncio.get_running_loop().create_future()

    async def events(request: web.Request) -> web.StreamResponse:
        sender = await Sender.open(request, 0.3)
        try:
            while True:
                await sender.send("change", bytes(1 << 20))
        except ConnectionError as error:
            ended.set_result(error)
        return sender.response

    app = web.Application()
    app.router.add_get("/", events)
    async with TestServer(app) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert "takes nothing" in str(await ended)
        with suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass  # what was on its way
        writer.close()
