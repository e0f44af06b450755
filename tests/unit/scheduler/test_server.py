"""What the extender answers, and where it stops taking in."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from builders.members import cache, group, member, node, pod, role_groups
from covey.kube.clock import SYSTEM
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import Bindings
from covey.scheduler.guard import BindArgs, Guard
from covey.scheduler.server import ExtenderServer
from covey.scheduler.writer import PodWriter
from unit.scheduler.test_binder import Api

MOST = 2
GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=1, minimum=1, size=1)]
CALLS = ["/guard/filter", "/guard/preempt", "/barrier/bind"]
Client = TestClient[Any, Any]


class Holding:
    """A binder that answers when it is told to."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.full = asyncio.Event()
        self.go = asyncio.Event()

    def is_member(self, args: BindArgs) -> bool:
        return not args.pod_uid.startswith("ordinary")

    async def bind(self, args: BindArgs) -> str:
        if not self.is_member(args):
            return ""
        self.waiting.add(args.pod_uid)
        if len(self.waiting) == MOST:
            self.full.set()
        await self.go.wait()
        return ""


@pytest.fixture
def holding() -> Holding:
    return Holding()


@pytest.fixture
async def client(holding: Holding) -> AsyncIterator[Client]:
    binder: Any = holding
    extender = ExtenderServer(Guard(cache()), binder, lambda: True, most=MOST)
    async with TestClient(TestServer(extender.application())) as made:
        yield made


def bind(client: Client, uid: str, name: str = "", node: str = "n1") -> asyncio.Task[ClientResponse]:
    body = json.dumps({"PodName": name or uid, "PodNamespace": "ns", "PodUID": uid, "Node": node})
    return asyncio.create_task(client.post("/barrier/bind", data=body))


@pytest.mark.parametrize("path", CALLS)
async def test_nothing_is_answered_from_a_cache_that_is_not_synced(path: str) -> None:
    made = cache()
    binder = Binder(made, Bindings(None, PodWriter(None, clock=SYSTEM)), clock=SYSTEM)  # type: ignore[arg-type] # nothing is sent
    extender = ExtenderServer(Guard(made), binder, lambda: made.synced)
    async with TestClient(TestServer(extender.application())) as client:
        answer = await client.post(path, data=b"{}")
        assert answer.status == 503
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200


async def test_a_replica_without_the_lease_guards_and_binds_ordinary_pods_and_no_members() -> None:
    ordinary, pinned = pod("ordinary"), member("decode", 0, pin="n1")
    made = cache(node("n1"), node("n2"), *GROUPS, ordinary, pinned)
    api: Any = Api()
    extender = ExtenderServer(
        Guard(made), Binder(made, Bindings(api, api), leads=lambda: False, clock=SYSTEM), lambda: True
    )
    async with TestClient(TestServer(extender.application())) as client:
        for path in CALLS[:2]:
            assert (await client.post(path, data=b'{"Pod": {"metadata": {}}, "NodeNames": null}')).status == 200
        assert await (await bind(client, ordinary.metadata.uid, "ordinary", "n2")).json() == {"Error": ""}
        answer = await bind(client, pinned.metadata.uid, pinned.metadata.name)
        assert (answer.status, await answer.text()) == (503, "another replica leads\n")
        assert answer.headers["Connection"] == "close"  # or the next call would come here again
        assert (await client.get("/readyz")).status == 200
    assert api.bound == [("ordinary", ordinary.metadata.uid, "n2")]


async def test_a_filter_call_of_twenty_thousand_nodes_is_not(client: Client) -> None:
    names = [f"{number:063d}" for number in range(20_000)]
    body = json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u"}}, "NodeNames": names})
    answer = await client.post("/guard/filter", data=io.BytesIO(body.encode()))
    assert answer.status == 200
    assert (await answer.json())["NodeNames"] == names
