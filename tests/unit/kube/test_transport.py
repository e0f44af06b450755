"""What the client makes of answers and broken connections; the server here only plays a script of bytes."""

import asyncio
import json
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from authority import Authority, Mounted
from covey.api.core import Pod
from covey.kube import errors
from covey.kube.client import Client
from covey.kube.connection import Connection, bearer
from covey.kube.kubeconfig_guards import Configuration
from covey.kube.renewal import Renewal
from covey.kube.resources import PODS
from covey.observability.families import REGISTRY

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def says(status: int, body: Any = None, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(
            body or {}, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return answer


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def says_nothing(_: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


def streams(*pieces: bytes, then: Answer | None = None) -> Answer:
    """Each piece by itself; then the end, or what another answer does to the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if then:
            await then(request)
        return response

    return answer


class Server:
    """Gives its answers in turn and keeps the requests."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[web.Request] = []
        self.asked = asyncio.Event()
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.requests.append(request)
        self.asked.set()
        return await self.answers.pop(0)(request)


@asynccontextmanager
async def talking(
    *answers: Answer, renewal: Renewal | None = None, silence: float = 30.0
) -> AsyncIterator[tuple[Client, Server]]:
    server = Server(*answers)
    async with serving(server) as port:
        server.url = f"http://127.0.0.1:{port}"
        connection = bearer(Connection(Configuration(host=server.url)), "t")
        connection.configuration.refresh_api_key_hook = renewal
        async with Client(connection, user_agent="covey-test/1", silence=silence) as client:
            yield client, server


@asynccontextmanager
async def serving(server: Server, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


POD = {"metadata": {"name": "p", "namespace": "ns"}}


async def test_a_proxy_is_asked_in_place_of_the_server() -> None:
    async with talking(says(200, POD)) as (_, proxy), proxied("http://api.invalid:6443", proxy) as client:
        assert await client.get(PODS, "p", "ns") == POD
    (request,) = proxy.requests
    assert request.headers["Host"] == "api.invalid:6443"


@asynccontextmanager
async def proxied(server: str, proxy: Server) -> AsyncIterator[Client]:
    connection = Connection(Configuration(host=server, proxy=proxy.url))
    async with Client(connection, user_agent="covey-test/1") as client:
        yield client


async def test_headers_of_the_connection_go_with_every_request() -> None:
    server = Server(says(200, POD))
    async with serving(server) as port:
        groups = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))
        async with Client(
            Connection(Configuration(host=f"http://127.0.0.1:{port}"), headers=groups), user_agent="t"
        ) as client:
            await client.get(PODS, "p", "ns")
    (request,) = server.requests
    assert request.headers.getall("Impersonate-Group") == ["dev", "ops"]


@pytest.mark.parametrize("server_name", ["covey-scheduler-extender", "kubernetes"])
async def test_the_certificate_is_checked_for_the_name_that_is_given(tmp_path: Path, server_name: str) -> None:
    authority = Authority()
    files = Mounted(tmp_path / "tls", authority, "covey-scheduler-extender")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    server = Server(says(200, POD))
    async with serving(server, context) as port:
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        configuration = Configuration(host=f"https://127.0.0.1:{port}", tls_server_name=server_name)
        connection = Connection(configuration, trusting)
        async with Client(connection, user_agent="t") as client:
            if server_name == "kubernetes":
                with pytest.raises(errors.Unreachable, match="ertificate"):
                    await client.get(PODS, "p", "ns")
            else:
                assert await client.get(PODS, "p", "ns") == POD


async def test_headers_and_types() -> None:
    async with talking(says(200, POD), says(201, POD)) as (client, server):
        assert await client.get(PODS, "p", "ns") == POD
        created = await client.create(PODS, POD, type=Pod)
        assert created.metadata.name == "p"
    read, write = server.requests
    assert read.headers["User-Agent"] == "covey-test/1"
    assert read.headers["Authorization"] == "Bearer t"
    assert read.headers["Accept-Encoding"] == "identity"
    assert "Content-Type" not in read.headers
    assert write.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(("status", "headers"), [(429, {"Retry_After": "0"}), (503, {"Retry_After": "0"}), (429, {})])
async def test_a_server_that_sheds_load_is_asked_again_for_every_verb(status: int, headers: dict[str, str]) -> None:
    async with talking(says(status, **headers), says(status, **headers), says(201, POD)) as (client, server):
        assert await client.create(PODS, POD) == POD
    assert len(server.requests) == 3


async def test_attempts_are_bounded() -> None:
    refusal = {"kind": "Status", "reason": "TooManyRequests", "message": "slow down"}
    async with talking(*[says(429, refusal, Retry_After="0")] * 6) as (client, server):
        with pytest.raises(errors.TooManyRequests, match="slow down"):
            await client.create(PODS, POD)
    assert len(server.requests) == 5


@pytest.mark.parametrize("status", [503, 504])
async def test_a_passing_failure_is_repeated_only_where_that_is_safe(status: int) -> None:
    async with talking(says(status), says(200, POD), says(status)) as (client, server):
        assert await client.get(PODS, "p", "ns") == POD
        with pytest.raises(errors.ApiError):
            await client.create(PODS, POD)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422, 500])
async def test_an_answer_stands(status: int) -> None:
    async with talking(says(status, {"reason": "R", "message": "m"})) as (client, server):
        with pytest.raises(errors.ApiError) as caught:
            await client.get(PODS, "p", "ns")
    assert (caught.value.code, caught.value.message, len(server.requests)) == (status, "m", 1)


async def test_a_lost_answer_is_asked_for_again_when_repeating_is_safe() -> None:
    async with talking(hangs_up, hangs_up, says(200, POD)) as (client, _):
        assert await client.get(PODS, "p", "ns") == POD
    async with talking(hangs_up, says(200, POD)) as (client, _):
        assert await client.apply(PODS, POD, manager="m") == POD
    async with talking(hangs_up, says(201)) as (client, _):
        await client.bind("ns", "p", "u", "n")


async def test_a_create_whose_answer_is_lost_is_left_to_the_caller() -> None:
    async with talking(hangs_up, says(201, POD)) as (client, server):
        with pytest.raises(errors.Unreachable, match="POST /api/v1/namespaces/ns/pods"):
            await client.create(PODS, POD)
    assert len(server.requests) == 1


async def test_a_server_that_says_nothing_is_unreachable() -> None:
    async with talking(says_nothing, silence=0.05) as (client, _):
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await anext(client.watch(PODS, resource_version="1"))


async def test_a_slow_server_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.kube.client._SECONDS", 0.05)
    async with talking(says_nothing, says(200, POD)) as (client, server):
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await client.get(PODS, "p", "ns")
    assert len(server.requests) == 1


async def test_nobody_there(unused_tcp_port: int) -> None:
    async with Client(Connection(Configuration(host=f"http://127.0.0.1:{unused_tcp_port}")), user_agent="t") as client:
        with pytest.raises(errors.Unreachable, match="GET /version"):
            await client.version()


async def test_a_closed_client() -> None:
    async with talking(says(200, POD)) as (client, server):
        await client.close()
        with pytest.raises(errors.Unreachable, match="closed"):
            await client.get(PODS, "p", "ns")
    assert server.requests == []


def rotating() -> Renewal:
    """A header that is another one each time it is read."""
    tokens = count()

    async def read(_: float) -> tuple[str, float]:
        return f"Bearer {next(tokens)}", math.inf

    return Renewal(read)


async def test_an_expired_token_is_renewed_once() -> None:
    async with talking(says(401), says(200, POD), says(401), says(401), renewal=rotating()) as (client, server):
        assert await client.get(PODS, "p", "ns") == POD
        with pytest.raises(errors.Unauthorized):
            await client.create(PODS, POD)
    assert [request.headers["Authorization"] for request in server.requests] == [
        "Bearer 0",
        "Bearer 1",
        "Bearer 1",
        "Bearer 2",
    ]


async def test_a_token_that_cannot_be_renewed_is_not_tried_again() -> None:
    async with talking(says(401)) as (client, server):
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "p", "ns")
    assert len(server.requests) == 1


def chunk(names: str, version: int, continue_: str = "") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    return says(200, {"metadata": {"resourceVersion": str(version), "continue": continue_}, "items": items})


async def test_a_list_comes_in_chunks() -> None:
    async with talking(chunk("ab", 7, "next"), chunk("c", 7)) as (client, server):
        pods, version = await client.list(PODS, type=Pod, labels="a=b")
    assert ([pod.metadata.name for pod in pods], version) == (["a", "b", "c"], "7")
    assert [dict(request.query) for request in server.requests] == [
        {"labelSelector": "a=b", "limit": "500"},
        {"labelSelector": "a=b", "limit": "500", "continue": "next"},
    ]


async def test_a_list_whose_chunks_expire_is_read_again_in_one_piece() -> None:
    async with talking(chunk("ab", 7, "next"), says(410), chunk("xyz", 9)) as (client, server):
        pods, version = await client.list(PODS, type=Pod)
    assert ([pod.metadata.name for pod in pods], version) == (["x", "y", "z"], "9")
    assert dict(server.requests[2].query) == {}


async def test_a_list_that_is_gone_from_the_start() -> None:
    async with talking(says(410)) as (client, _):
        with pytest.raises(errors.Gone):
            await client.list(PODS)


def line(kind: str, name: str, **more: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, **more}}}).encode() + b"\n"


async def watched(client: Client) -> AsyncIterator[tuple[str, str]]:
    async for kind, pod in client.watch(PODS, "ns", resource_version="5", type=Pod):
        yield kind, pod.metadata.name


async def cut(client: Client, message: str) -> list[tuple[str, str]]:
    """The events of a watch that ends with Unreachable."""
    events = []
    with pytest.raises(errors.Unreachable, match=message):  # noqa: PT012 - a loop ends with it
        async for event in watched(client):
            events.append(event)  # noqa: PERF401 - what came before the error is what is wanted
    return events


async def test_a_watch_of_split_joined_and_very_long_lines() -> None:
    long = line("MODIFIED", "c", uid="x" * 3_000_000)
    stream = line("ADDED", "a") + line("ADDED", "b") + long + line("DELETED", "a")
    pieces = [stream[:10], stream[10:140], stream[140:2_000_000], stream[2_000_000:]]
    async with talking(streams(*pieces)) as (client, server):
        events = [event async for event in watched(client)]
    assert events == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "c"), ("DELETED", "a")]
    query = server.requests[0].query
    assert (query["resourceVersion"], query["watch"], query["allowWatchBookmarks"]) == ("5", "true", "true")
    assert 240 <= int(query["timeoutSeconds"]) <= 540


async def test_a_watch_that_is_cut_gives_its_events_first() -> None:
    async with talking(streams(line("ADDED", "a"), line("ADDED", "b"), then=hangs_up)) as (client, _):
        events = await cut(client, "GET")
    assert events == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_that_falls_silent_is_cut() -> None:
    async with talking(streams(line("ADDED", "a"), then=says_nothing), silence=1.0) as (client, _):
        events = await cut(client, "no answer in time")
    assert events == [("ADDED", "a")]


async def test_a_watch_of_a_version_that_is_too_old() -> None:
    expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    for answer in (says(410, expired["object"]), streams(json.dumps(expired).encode() + b"\n")):
        async with talking(answer) as (client, _):
            with pytest.raises(errors.Gone, match="too old"):
                await anext(watched(client))


async def test_closing_the_client_ends_a_watch() -> None:
    async with talking(streams(line("ADDED", "a"), then=says_nothing)) as (client, _):
        events = watched(client)
        assert await anext(events) == ("ADDED", "a")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(waiting, 5)


async def test_closing_the_client_ends_a_request() -> None:
    async with talking(says_nothing, says_nothing) as (client, server):
        waiting = asyncio.ensure_future(client.create(PODS, POD))
        await server.asked.wait()
        await client.close()
        with pytest.raises(errors.Unreachable):
            await asyncio.wait_for(waiting, 5)


async def test_leaving_a_watch_closes_its_connection() -> None:
    gone = asyncio.Event()

    async def until_gone(request: web.Request) -> web.StreamResponse:
        try:
            while True:
                assert request.transport is not None
                if request.transport.is_closing():
                    break
                await asyncio.sleep(0.01)
        except AssertionError:
            pass
        gone.set()
        return web.Response()

    async with talking(streams(line("ADDED", "a"), then=until_gone)) as (client, _):
        events = client.watch(PODS, resource_version="1")
        await anext(events)
        await events.aclose()
        await asyncio.wait_for(gone.wait(), 5)


async def test_every_request_is_counted() -> None:
    def counted(verb: str, code: str) -> float:
        labels = {"verb": verb, "resource": "pods", "code": code}
        return REGISTRY.get_sample_value("covey_kube_requests_total", labels) or 0.0

    def measured(verb: str) -> float:
        return REGISTRY.get_sample_value("covey_kube_request_duration_seconds_count", {"verb": verb}) or 0.0

    before = [counted("get", "200"), counted("get", "error"), counted("create", "409")]
    timed = [measured("get"), measured("create")]
    async with talking(hangs_up, hangs_up, says(200, POD), says(409)) as (client, _):
        await client.get(PODS, "p", "ns")
        with pytest.raises(errors.Conflict):
            await client.create(PODS, POD)
    after = [counted("get", "200"), counted("get", "error"), counted("create", "409")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1]
    # The lost attempt counts too: it took its time.
    assert [measured("get") - timed[0], measured("create") - timed[1]] == [2, 1]
