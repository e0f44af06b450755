"""Who gets in, and what every answer says to a browser. No API server is needed to be turned away."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.errors import Forbidden, Unreachable
from covey.kube.official_client import Configuration
from covey.ui.auth import CodeUsed, LinkAuthenticator, NotSignedIn, TokenAuthenticator
from covey.ui.event_stream import Ended, Expired
from covey.ui.limits import PageLimits
from covey.ui.server import Server
from covey.ui.viewers import Busy, Credentials, Viewers

NOBODY = Connection(Configuration(host="http://127.0.0.1:1"))


class Here:
    """A server of a kubeconfig whose API server is not there."""

    def __init__(self) -> None:
        self.codes: list[str] = []
        self.gate = LinkAuthenticator(NOBODY, self.codes.append)
        self.hosts: set[str] = set()
        self.limits = PageLimits(manifest=1000)
        server = Server(self.gate, Viewers(self.gate.mode, clock=SYSTEM), hosts=self.hosts, limits=self.limits)
        self.app = server.application()


@pytest.fixture
async def here() -> AsyncIterator[tuple[Here, ClientSession]]:
    made = Here()
    async with TestServer(made.app) as server, ClientSession(server.make_url("/")) as session:
        made.hosts.add(f"127.0.0.1:{server.port}")
        made.gate.open()
        yield made, session


async def token_of(here: Here, session: ClientSession) -> dict[str, str]:
    async with session.post("/api/session", json={"code": here.codes[-1]}) as answer:
        assert answer.status == 200
        return {"Authorization": f"Bearer {(await answer.json())['token']}"}


async def test_a_link_is_good_once_and_the_next_one_is_announced(here: tuple[Here, ClientSession]) -> None:
    made, session = here
    first = made.codes[-1]
    token = await token_of(made, session)
    assert len(made.codes) == 2
    async with session.post("/api/session", json={"code": first}) as answer:
        assert answer.status == 409
        body = await answer.json()
    assert "has printed a new one" in body["error"]["what"]
    assert body["mode"] == "kubeconfig"
    second = await token_of(made, session)
    assert second != token
    async with session.get("/api/explain/Infeasible", headers=token) as answer:
        assert answer.status == 200, "two browsers may look"


async def test_codes_and_tokens_that_were_not_given(here: tuple[Here, ClientSession]) -> None:
    _, session = here
    for code in ("", "x", "é"):
        async with session.post("/api/session", json={"code": code}) as answer:
            assert answer.status == 401
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Bearer "}, {"Authorization": "Basic eA=="}):
        for path in ("/api/state", "/api/events", "/api/gangs/a/b/story", "/api/explain/Infeasible"):
            async with session.get(path, headers=headers) as answer:
                assert answer.status == 401, path
    for body in (b"", b"{", b"[]", b'{"code": 5}'):
        async with session.post("/api/session", data=body, headers={"Content-Type": "application/json"}) as answer:
            assert answer.status == 400


async def test_other_names_and_other_sites_are_turned_away(here: tuple[Here, ClientSession]) -> None:
    made, session = here
    token = await token_of(made, session)
    for path in ("/", "/api/explain/Infeasible"):
        async with session.get(path, headers={**token, "Host": "rebound.example.com"}) as answer:
            assert answer.status == 403, "a name that an attacker's DNS gives"
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        async with session.get("/api/explain/Infeasible", headers={**token, **headers}) as answer:
            assert answer.status == 403
    for origin in ("https://evil.example.com", "null", "http://127.0.0.1:1"):
        headers = {**token, "Origin": origin, "Content-Type": "text/plain"}
        async with session.post("/api/plan", data="a: b", headers=headers) as answer:
            assert answer.status == 403
    async with session.get("/", headers={"Sec-Fetch-Site": "cross-site"}) as answer:
        assert answer.status == 200, "the page may be linked to; nothing is in it"


async def test_what_every_answer_says(here: tuple[Here, ClientSession]) -> None:
    _, session = here
    for path, status in (("/", 200), ("/api/state", 401), ("/nothing.js", 404), ("/../../etc/passwd", 404)):
        async with session.get(path) as answer:
            assert answer.status == status
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Server"] == "covey"
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert answer.headers["Cache-Control"] == ("no-cache" if status == 200 else "no-store")
    async with session.get("/") as answer:
        tag = {"If-None-Match": answer.headers["ETag"]}
    async with session.get("/", headers=tag) as answer:
        assert answer.status == 304


async def test_what_is_too_large_or_no_name_or_of_another_type(here: tuple[Here, ClientSession]) -> None:
    made, session = here
    token = await token_of(made, session)
    asked: tuple[tuple[str, Any, str, int], ...] = (
        ("/api/plan", "x" * 2000, "text/plain", 413),
        ("/api/plan", "a: b", "application/x-www-form-urlencoded", 415),
        ("/api/plan?namespace=..%2F..", "a: b", "text/plain", 400),
        ("/api/plan", b"\xff\xff", "text/plain", 400),
    )
    for path, body, kind, status in asked:
        async with session.post(path, data=body, headers={**token, "Content-Type": kind}) as answer:
            assert answer.status == status, path
            assert (await answer.json())["error"]["what"]
    for path, status in (
        ("/api/gangs/a%2Fb/c/story", 400),
        ("/api/state?namespace=a%20b", 400),
        ("/api/state?" + "&".join(f"namespace=n{number}" for number in range(21)), 400),
        ("/api/explain/Nonsense", 404),
    ):
        async with session.get(path, headers=token) as answer:
            assert answer.status == status, path


def test_a_used_code_is_told_from_a_wrong_one() -> None:
    gate = LinkAuthenticator(NOBODY, lambda _: None)
    with pytest.raises(NotSignedIn):
        gate.redeem("")
    code = gate.open()
    gate.redeem(code)
    with pytest.raises(CodeUsed):
        gate.redeem(code)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotSignedIn("x"), 401),
        (CodeUsed("x"), 409),
        (Expired("x"), 401),
        (Ended("x"), 503),
        (Busy("x"), 429),
        (MemoryError(), 503),
        (Forbidden(403, "Forbidden", "x"), 403),
        (Unreachable("x"), 502),
        (TimeoutError(), 504),
    ],
)
async def test_only_who_is_not_let_in_is_asked_to_sign_in(error: Exception, status: int) -> None:
    class Broken(TokenAuthenticator):
        def credentials(self, token: str | None) -> Credentials:  # noqa: ARG002 - whatever it is
            raise error

    gate = Broken(NOBODY)
    app = Server(gate, Viewers(gate.mode, clock=SYSTEM)).application()
    async with (
        TestServer(app) as server,
        ClientSession() as session,
        session.get(server.make_url("/api/state")) as answer,
    ):
        assert answer.status == status
