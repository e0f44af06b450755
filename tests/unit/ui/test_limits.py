"""Bounds on what viewers may have under way, and that nothing is done for those who have gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.official_client import Configuration
from covey.ui.auth import TokenAuthenticator
from covey.ui.contract import SignInMode
from covey.ui.event_sender import Sender
from covey.ui.event_stream import Ended, EventStream, UserInfo, ViewerFeed
from covey.ui.limits import PageLimits
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
    gate, limits = TokenAuthenticator(connection), PageLimits(questions=1, all_questions=2)
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


async def test_a_stream_begins_with_the_whole_and_goes_on_with_changes() -> None:
    stream = EventStream(lambda: b"whole", 3)
    stream.push(b"lost in the whole")
    assert await stream.next() == ("snapshot", b"whole")
    for change in (b"1", b"2"):
        stream.push(change)
    assert [await stream.next() for _ in range(2)] == [("change", b"1"), ("change", b"2")]


async def test_a_page_that_is_too_slow_gets_the_whole_again() -> None:
    stream = EventStream(lambda: b"whole", 3)
    await stream.next()
    for number in range(50):
        stream.push(b"%d" % number)
    assert await stream.next() == ("snapshot", b"whole")
    stream.push(b"new")
    assert await stream.next() == ("change", b"new")


async def test_the_end_comes_before_all_that_waits() -> None:
    stream = EventStream(lambda: b"whole", 3)
    stream.push(b"1")
    stream.end(Ended("no more"))
    with pytest.raises(Ended, match="no more"):
        await stream.next()


class Standing:
    """A feed with a stream, at which somebody looks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.streams, self.used_at = 1, 0.0

    async def run(self) -> None:
        await asyncio.sleep(3600)


@pytest.fixture
async def viewers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Viewers]:
    """Views whose viewers are named by their tokens; the API server is not asked."""
    names: list[str] = []

    async def ask(_client: object) -> UserInfo:
        return UserInfo(names[-1], names[-1].split(":")[2] if ":" in names[-1] else None)

    monkeypatch.setattr("covey.ui.viewers.review_user", ask)
    monkeypatch.setattr("covey.ui.viewers.ViewerFeed", Standing)
    found = Viewers(
        SignInMode.TOKEN, limits=PageLimits(feeds=6, views=3, tenant_feeds=2, account_feeds=4), clock=SYSTEM
    )
    found.names = names  # type: ignore[attr-defined] # for ``look``
    sweeping = asyncio.create_task(found.run())
    yield found
    sweeping.cancel()
    with suppress(asyncio.CancelledError):
        await sweeping


async def look(viewers: Viewers, name: str, namespaces: Sequence[str] = ()) -> ViewerFeed:
    viewers.names.append(name)  # type: ignore[attr-defined]
    return await viewers.feed(
        Credentials(identity_of(name), Connection(Configuration(host="http://127.0.0.1:1"))), namespaces
    )


def account(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


async def test_many_accounts_of_one_namespace_are_one_viewer(viewers: Viewers) -> None:
    await look(viewers, account("evil", "a"))
    await look(viewers, account("evil", "b"))
    with pytest.raises(Busy, match="the service accounts of evil look at 2 views"):
        await look(viewers, account("evil", "c"))
    await look(viewers, account("good", "a"))


async def test_whose_namespace_a_viewer_is_of_is_asked_once(viewers: Viewers) -> None:
    def credentials(name: str) -> Credentials:
        return Credentials(identity_of(name), Connection(Configuration(host="http://127.0.0.1:1")))

    await look(viewers, account("ours", "a"))
    viewers.names.append("on-call")  # type: ignore[attr-defined] # who is asked for from here on
    assert await viewers.tenant(credentials(account("ours", "a"))) == "ours"
    assert await viewers.tenant(credentials("on-call")) is None
    viewers.names.append(account("evil", "b"))  # type: ignore[attr-defined]
    assert await viewers.tenant(credentials(account("evil", "b"))) == "evil"


async def test_users_find_room_whatever_accounts_there_are(viewers: Viewers) -> None:
    for namespace in ("a", "b", "c", "d"):
        await look(viewers, account(namespace, "x"))
    with pytest.raises(Busy, match="4 views of service accounts are open"):
        await look(viewers, account("e", "x"))
    await look(viewers, "on-call")
    await look(viewers, "on-call", ["prod"])
    with pytest.raises(Busy, match="6 views are open"):
        await look(viewers, "somebody-else")


async def test_a_view_that_nobody_looks_at_makes_room_for_another_of_its_namespace(viewers: Viewers) -> None:
    first = await look(viewers, account("ours", "a"))
    await look(viewers, account("ours", "b"))
    first.streams = 0
    await look(viewers, account("ours", "c"))
    assert len(viewers) == 2
