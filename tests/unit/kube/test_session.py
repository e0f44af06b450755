"""Sessions over TLS: certificates that plugins print, and the connections that show them."""

import asyncio
import json
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from authority import Authority, Mounted
from covey.kube.connection import Connection, bearer, load
from covey.kube.errors import ConfigurationError
from covey.kube.official_client import Configuration
from covey.kube.session import new_session
from unit.kube.kubeconfigs import config, write


class Seen:
    """A server that notes who has shown which certificate and which header, and ends each connection."""

    def __init__(self) -> None:
        self.callers: list[tuple[str | None, str | None]] = []
        self.port = 0
        self.elsewhere = ""

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        shown: Any = request.transport.get_extra_info("peercert")
        name = shown["subject"][0][0][1] if shown else None
        self.callers.append((name, request.headers.get("Authorization")))
        response = web.Response(status=302, headers={"Location": self.elsewhere}) if self.elsewhere else web.Response()
        response.force_close()
        return response


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Seen]:
    seen = Seen()
    app = web.Application()
    app.router.add_get("/", seen.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        seen.port = runner.addresses[0][1]
        yield seen
    finally:
        await runner.cleanup()


def printing(folder: Path, authority: Authority, *, token: str | None, expiry: str | None) -> dict[str, Any]:
    """A plugin that prints the certificates of caller-1 and caller-2, one at each run."""
    for number in (1, 2):
        certificate, key = (part.decode() for part in authority.issue(f"caller-{number}"))
        status = {
            "clientCertificateData": certificate,
            "clientKeyData": key,
            "token": token,
            "expirationTimestamp": expiry,
        }
        answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        (folder / f"answer-{number}").write_text(json.dumps(answer))
    plugin = folder / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nimport pathlib\nhere = pathlib.Path({str(folder)!r})\n"
        "answer = sorted(here.glob('answer-*'))[0]\nprint(answer.read_text())\nanswer.unlink()\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"command": str(plugin), "apiVersion": "client.authentication.k8s.io/v1"}}


@pytest.mark.parametrize("token", [None, "t"])
@pytest.mark.parametrize(
    ("expiry", "callers"), [(None, ["caller-1", "caller-1"]), ("2000-01-01T00:00:00Z", ["caller-1", "caller-2"])]
)
async def test_the_certificate_of_a_plugin_is_shown_beside_its_token_and_renewed_at_its_expiry(
    tmp_path: Path, token: str | None, expiry: str | None, callers: list[str]
) -> None:
    authority = Authority()
    mounted = Mounted(tmp_path / "tls", authority, "kubernetes")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(mounted.authority))
    tls.load_cert_chain(mounted.certificate, mounted.key)
    tls.verify_mode = ssl.CERT_REQUIRED
    async with serving(tls) as seen:
        cluster: dict[str, Any] = {"certificate-authority": str(mounted.authority)}
        user = printing(tmp_path, authority, token=token, expiry=expiry)
        content = config(user=user, server=f"https://127.0.0.1:{seen.port}", **cluster)
        connection = await load(write(tmp_path / "config", content))
        async with new_session(connection, user_agent="t") as session:
            for _ in range(2):
                async with session.get(connection.server) as response:
                    assert response.ok
    header = f"Bearer {token}" if token else None
    assert seen.callers == [(caller, header) for caller in callers]


async def test_middlewares_see_a_request_before_it_is_authorized() -> None:
    order: list[str | None] = []

    async def outer(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        order.append(request.headers.get("Authorization"))
        return await handler(request)

    async with serving() as seen:
        connection = bearer(Connection(Configuration(host=f"http://127.0.0.1:{seen.port}")), "t")
        made = new_session(connection, user_agent="t", middlewares=(outer,))
        async with made as session, session.get(connection.server) as response:
            assert response.ok
    assert (order, seen.callers) == ([None], [(None, "Bearer t")])


async def test_no_request_goes_out_as_nobody_where_there_are_no_credentials() -> None:
    async def fail(configuration: Configuration) -> None:
        raise ConfigurationError(f"no token for {configuration.host}")

    async with serving() as seen:
        connection = Connection(Configuration(host=f"http://127.0.0.1:{seen.port}"))
        connection.configuration.refresh_api_key_hook = fail
        async with new_session(connection, user_agent="t") as session:
            results = await asyncio.gather(*(session.get(connection.server) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in results] == [ConfigurationError] * 3
    assert not seen.callers


async def test_credentials_go_to_the_api_server_alone() -> None:
    async with serving() as other, serving() as seen:
        seen.elsewhere = f"http://127.0.0.1:{other.port}/"
        connection = bearer(Connection(Configuration(host=f"http://127.0.0.1:{seen.port}")), "t")
        made = new_session(connection, user_agent="t")
        async with made as session, session.get(connection.server) as response:
            assert response.ok
    assert (seen.callers, other.callers) == ([(None, "Bearer t")], [(None, None)])
