"""What a request costs through the official client's ApiClient, beside Covey's own transport: decision 8.

Pods are created on a real API server over 64 connections. The ways take turns, so that what else the machine does hits all
of them. The client encodes every body with ``json``, and cannot be given bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import uvloop
from kubernetes.aio.client import ApiClient, rest

from bench.machine import describe_machine
from covey.kube.client import Client, Ignored
from covey.kube.connection import Connection, load
from covey.kube.request import Request
from covey.kube.resources import PODS
from covey.kube.transport import Transport
from covey.observability.metrics import KUBE_REQUEST_DURATION, KUBE_REQUESTS
from localcluster import Cluster, eventually

CONNECTIONS: Final = 64
_CONTAINER = {"name": "engine", "image": "example.com/engine:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
_VARIABLES: list[dict[str, str]] = []

_SAMPLE: dict[str, Any] = {}


def pod(name: str) -> dict[str, Any]:
    """As large as those that the operator writes, and larger, as ``--variables`` says."""
    metadata = {"name": name, "namespace": "default", "labels": {f"example.com/label-{n}": "value" for n in range(10)}}
    return {"metadata": metadata, "spec": {"containers": [{**_CONTAINER, "env": _VARIABLES}]}}


class ThroughClient(Transport):
    """Covey's transport, each of whose exchanges is the client's ``call_api``."""

    api: ApiClient

    async def _exchange(self, request: Request, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        headers |= {"User-Agent": "bench", "Accept": request.accept, "Accept-Encoding": "identity"}
        if authorization := await self._connection.authorization():
            headers["Authorization"] = authorization
        code, sent = "error", time.perf_counter()
        try:
            response = await self.api.call_api(
                request.method, self._server + request.url, headers, request.body, _request_timeout=limits
            )
            code = str(response.status)
            answered: aiohttp.ClientResponse = response.response
            return answered
        finally:
            KUBE_REQUESTS.labels(request.verb, request.resource, code).inc()
            KUBE_REQUEST_DURATION.labels(request.verb).observe(time.perf_counter() - sent)


@contextmanager
def encoding(encode: Callable[[Any], Any]) -> Iterator[None]:
    """Have the client encode bodies in this way: it is given bytes, which it cannot encode."""
    standard, rest.json = rest.json, SimpleNamespace(dumps=encode)
    try:
        yield
    finally:
        rest.json = standard


def encode_as_well(body: bytes) -> bytes:
    """As long as the client takes to encode such a body."""
    json.dumps(_SAMPLE)
    return body


def give_back(body: bytes) -> bytes:
    """What a client would do that takes encoded bodies."""
    return body


def make_api(connection: Connection, **more: Any) -> ApiClient:
    """The official client, over the same TLS and as many connections."""
    connection.configuration.client_session_kwargs = more
    api = ApiClient(connection.configuration)
    api.rest_client.ssl_context = connection.tls
    api.rest_client.maxsize = CONNECTIONS
    api.rest_client.pool_manager = api.rest_client._create_pool_manager()
    return api


async def time_creation(client: Client, prefix: str, number: int) -> tuple[float, float]:
    """Requests a second, and microseconds of this process's time for each."""
    names = (f"{prefix}-{each}" for each in range(number))

    async def work() -> None:
        for name in names:
            await client.create(PODS, pod(name), type=Ignored)

    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    return number / (time.perf_counter() - wall), (time.process_time() - processor) / number * 1e6


def make_clients(connection: Connection) -> dict[str, tuple[Client, Callable[[Any], Any]]]:
    """The ways, and how each has bodies encoded by the official client."""
    found = {"own transport": (Client(connection, user_agent="bench", connections=CONNECTIONS), give_back)}
    apis = [
        ("ApiClient", make_api(connection), encode_as_well),
        ("ApiClient, no ~/.netrc", make_api(connection, trust_env=False), encode_as_well),
        ("the same, if it took encoded bodies", make_api(connection, trust_env=False), give_back),
    ]
    for way, api, encode in apis:
        client = Client(connection, user_agent="bench", connections=CONNECTIONS)
        client._transport = ThroughClient(connection, user_agent="bench", connections=1, generator=client._random)
        client._transport.api = api
        found[way] = client, encode
    return found


async def measure(cluster: Cluster, rounds: int, number: int) -> None:
    """All ways, in turns; the first turn warms up."""
    clients = make_clients(await load(str(cluster.kubeconfig)))
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in clients}
    order = list(clients)
    for turn in range(rounds + 1):
        for way in order:
            client, encode = clients[way]
            with encoding(encode):
                figures = await time_creation(client, f"bench-{turn}-{order.index(way)}", number)
            if turn:
                found[way].append(figures)
            await asyncio.to_thread(cluster.api, "DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
        order.append(order.pop(0))
    for way, each in found.items():
        rate, microseconds = (statistics.median(column) for column in zip(*each, strict=True))
        least = min(column for _, column in each)
        print(f"{way:36} {rate:5.0f} pods/s  {microseconds:4.0f} us of processor time each, {least:4.0f} at least")
    for client, _ in clients.values():
        if isinstance(client._transport, ThroughClient):
            await client._transport.api.close()
        await client.close()


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--variables", type=int, default=20, help="20 make 2 kB, 120 make 6 kB")
    options = parser.parse_args()
    _VARIABLES.extend({"name": f"VARIABLE_{number}", "value": str(number) * 8} for number in range(options.variables))
    _SAMPLE.update(pod("sample"))
    print(describe_machine(), f"pods of {len(json.dumps(_SAMPLE))} bytes", sep="\n", flush=True)
    with Cluster(kwok=False, max_inflight=2000) as cluster:
        eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
        uvloop.run(measure(cluster, options.rounds, options.pods))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
