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
from covey.kube.errors import ApiError, api_error
from covey.kube.official_client import Configuration
from covey.kube.renewal import Renewal
from covey.kube.resources import PODS

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


@pytest.mark.parametrize(("status", "headers"), [(429, {"Retry_After": "0"}), (503, {"Retry_After": "0"}), (429, {})])
async def test_a_server_that_sheds_load_is_asked_again_for_every_verb(status: int, headers: dict[str, str]) -> None:
    async with talking(says(status, **headers), says(status, **headers), says(201, POD)) as (client, server):
        assert await client.create(PODS, POD) == POD
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [503, 504])
async def test_a_passing_failure_is_repeated_only_where_that_is_safe(status: int) -> None:
    async with talking(says(status), says(200, POD), says(status)) as (client, server):
        assert await client.get(PODS, "p", "ns") == POD
        with pytest.raises(errors.ApiError):
            await client.create(PODS, POD)
    assert len(server.requests) == 3


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


def chunk(names: str, version: int, continue_: str = "") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    return says(200, {"metadata": {"resourceVersion": str(version), "continue": continue_}, "items": items})


async def test_a_list_whose_chunks_expire_is_read_again_in_one_piece() -> None:
    async with talking(chunk("ab", 7, "next"), says(410), chunk("xyz", 9)) as (client, server):
        pods, version = await client.list(PODS, type=Pod)
    assert ([pod.metadata.name for pod in pods], version) == (["x", "y", "z"], "9")
    assert dict(server.requests[2].query) == {}


def line(kind: str, name: str, **more: str) -> bytes:
    return json.dumps({"type": kind, "object": {"metadata": {"name": name, **more}}}).encode() + b"\n"


async def watched(client: Client) -> AsyncIterator[tuple[str, str]]:
    async for kind, pod in client.watch(PODS, "ns", resource_version="5", type=Pod):
        yield kind, pod.metadata.name


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


async def test_closing_the_client_ends_a_watch() -> None:
    async with talking(streams(line("ADDED", "a"), then=says_nothing)) as (client, _):
        events = watched(client)
        assert await anext(events) == ("ADDED", "a")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
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


def status(reason: str, message: str = "m", **details: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": 1, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", ApiError),
    ],
)
def test_classes(code: int, reason: str, expected: type[ApiError]) -> None:
    error = api_error(code, status(reason, "what is wrong", name="x"))
    assert type(error) is expected
    assert (error.code, error.reason, error.message) == (code, reason, "what is wrong")
    assert error.details == {"name": "x"}
    assert "what is wrong" in str(error)


def test_a_patch_with_the_uid_of_another_incarnation_is_a_conflict() -> None:
    cause = {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}
    assert type(api_error(422, status("Invalid", causes=[cause]))) is errors.Conflict
    assert type(api_error(422, status("Invalid", causes=[{**cause, "field": "spec"}, "?"]))) is errors.Invalid


def test_a_page_of_a_proxy_is_the_message() -> None:
    error = api_error(502, b"<html>Bad Gateway</html>")
    assert (error.code, error.reason, error.message) == (502, "", "<html>Bad Gateway</html>")


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [(None, {}, None), (3.0, {}, 3.0), (None, {"retryAfterSeconds": 2}, 2.0), (3.0, {"retryAfterSeconds": 2}, 3.0)],
)
def test_retry_after(header: float | None, details: dict[str, int], expected: float | None) -> None:
    assert api_error(429, status("TooManyRequests", "m", **details), header).retry_after == expected


def test_an_event_of_a_watch_has_its_code_in_the_status() -> None:
    assert isinstance(api_error(0, b'{"kind":"Status","code":410,"reason":"Expired"}'), errors.Gone)


async def test_a_closed_client() -> None:
    async with talking(says(200, POD)) as (client, server):
        await client.close()
        with pytest.raises(errors.Unreachable, match="closed"):
            await client.get(PODS, "p", "ns")
    assert server.requests == []


async def test_nobody_there(unused_tcp_port: int) -> None:
    async with Client(Connection(Configuration(host=f"http://127.0.0.1:{unused_tcp_port}")), user_agent="t") as client:
        with pytest.raises(errors.Unreachable, match="GET /version"):
            await client.version()
