"""A UI that runs until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from covey.kube.clock import SYSTEM
from covey.kube.connection import Connection
from covey.kube.process import take_signals
from covey.observability.addresses import is_loopback
from covey.observability.http import serve
from covey.observability.logging import get_logger
from covey.ui.auth import Authenticator, LinkAuthenticator, TokenAuthenticator
from covey.ui.limits import DEFAULT, PageLimits
from covey.ui.server import Server
from covey.ui.viewers import Viewers

_log = get_logger(__name__)


async def serve_link(
    connection: Connection,
    address: str,
    announce: Callable[[str], None],
    *,
    cluster: str = "",
    namespaces: tuple[str, ...] = (),
    limits: PageLimits = DEFAULT,
) -> None:
    """Serve one kubeconfig's view to whoever has the link, until SIGTERM or SIGINT.

    Args:
        connection: of the kubeconfig.
        address: where to listen.
        announce: called with every link, the first when the server answers.
        cluster: the context's name.
        namespaces: what is looked at where the page does not say; empty for all that is allowed.
        limits: bounds.

    Raises:
        OSError: the address cannot be bound.
    """
    base = [""]
    gate = LinkAuthenticator(connection, lambda code: announce(f"{base[0]}/#code={code}"))
    viewers = Viewers(
        gate.mode, cluster=cluster, namespaces=namespaces, fallback=connection.namespace, limits=limits, clock=SYSTEM
    )
    hosts: set[str] | None = set() if is_loopback(address) else None
    server = Server(gate, viewers, hosts=hosts, limits=limits)
    async with serve(server.application(), address, abandon=True) as url:
        assert url is not None
        base[0] = url
        if hosts is not None:
            port = url.rpartition(":")[2]
            hosts |= {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
        gate.open()
        await _until_stopped(viewers)


async def serve_tokens(server: Connection, address: str, *, limits: PageLimits = DEFAULT) -> None:
    """Serve whoever brings a token for the API server, with that token alone, until SIGTERM or SIGINT.

    Args:
        server: the API server, without anybody's identity.
        address: where to listen.
        limits: bounds.

    Raises:
        OSError: the address cannot be bound.
    """
    gate: Authenticator = TokenAuthenticator(server)
    viewers = Viewers(gate.mode, limits=limits, clock=SYSTEM)
    async with serve(Server(gate, viewers, limits=limits).application(), address, abandon=True) as url:
        _log.info("serving the UI", url=url)
        await _until_stopped(viewers)


async def _until_stopped(viewers: Viewers) -> None:
    stop = asyncio.Event()
    take_signals(stop)
    sweeping = asyncio.create_task(viewers.run())
    try:
        await stop.wait()
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
