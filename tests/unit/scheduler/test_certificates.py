"""The endpoint's TLS over real sockets: who gets in, and what a renewal changes."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from authority import Authority, Mounted
from covey.observability.families import REGISTRY
from covey.scheduler.caller_certificates import add_check
from covey.scheduler.endpoint import Endpoint
from covey.scheduler.settings import EndpointMode, SchedulerSettings


def settings(files: Mounted) -> SchedulerSettings:
    return SchedulerSettings(
        bind_address="127.0.0.1:0",
        endpoint_mode=EndpointMode.SERVICE,
        tls_cert_file=str(files.certificate),
        tls_private_key_file=str(files.key),
        client_ca_file=str(files.authority),
        client_names=("kube-scheduler", "scheduler.example.com"),
    )


@contextlib.asynccontextmanager
async def serving(files: Mounted, *, most: int = 100) -> AsyncIterator[Endpoint]:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    application = web.Application()
    application.add_routes([web.get("/", hello)])
    add_check(application, settings(files))
    endpoint = await Endpoint.open(application, settings(files), most=most)
    running = asyncio.create_task(endpoint.run())
    try:
        yield endpoint
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await endpoint.close()


async def hello(endpoint: Endpoint, context: ssl.SSLContext) -> str:
    """What a new connection gets."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        return await said(session, endpoint)


async def said(session: aiohttp.ClientSession, endpoint: Endpoint) -> str:
    async with session.get(f"https://127.0.0.1:{endpoint.port}/") as answer:
        return await answer.text()


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def files(tmp_path: Path, authority: Authority) -> Mounted:
    return Mounted(tmp_path / "server", authority, "server")


@pytest.fixture
def caller(tmp_path: Path, authority: Authority) -> Mounted:
    return Mounted(tmp_path / "caller", authority, "kube-scheduler")


async def test_an_expired_caller_does_not_get_in(files: Mounted, caller: Mounted, authority: Authority) -> None:
    caller.renew(authority, days=-1)
    async with serving(files) as endpoint:
        with pytest.raises(aiohttp.ClientError):
            await hello(endpoint, caller.client_context())


@pytest.mark.parametrize("broken", ["empty", "half", "another key", "gone"])
async def test_files_that_cannot_be_used_leave_the_old_ones_in_force(
    broken: str, files: Mounted, caller: Mounted, authority: Authority
) -> None:
    certificate, key = authority.issue("server")
    _, stray = authority.issue("server")
    content = {
        "empty": {"tls.crt": b"", "tls.key": b"", "ca.crt": b""},
        "half": {"tls.crt": certificate[: len(certificate) // 2], "tls.key": key, "ca.crt": authority.pem},
        "another key": {"tls.crt": certificate, "tls.key": stray, "ca.crt": authority.pem},
        "gone": {},
    }[broken]
    errors = counted("covey_extender_certificate_reloads_total", result="error")
    async with serving(files) as endpoint:
        certificates = endpoint.certificates
        assert certificates is not None
        files.swap(content)
        assert not certificates.refresh()
        assert not certificates.refresh(), "it is told once"
        assert counted("covey_extender_certificate_reloads_total", result="error") == errors + 1
        context = caller.client_context()
        assert await hello(endpoint, context) == "hello"
        files.renew(authority)
        assert certificates.refresh()
        assert await hello(endpoint, context) == "hello"


async def test_connections_are_bounded_those_in_a_handshake_too(files: Mounted, caller: Mounted) -> None:
    async with serving(files, most=2) as endpoint:
        silent = [await asyncio.open_connection("127.0.0.1", endpoint.port) for _ in range(2)]
        with pytest.raises(aiohttp.ClientError):
            await hello(endpoint, caller.client_context())
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    assert await hello(endpoint, caller.client_context()) == "hello"
                    break
                await asyncio.sleep(0.05)


async def test_no_service_without_mutual_tls(files: Mounted) -> None:
    own = {"tls_cert_file": str(files.certificate), "tls_private_key_file": str(files.key)}
    for tls in ({}, own):
        with pytest.raises(ValueError, match="mutual TLS"):
            await Endpoint.open(web.Application(), SchedulerSettings(endpoint_mode=EndpointMode.SERVICE, **tls))
