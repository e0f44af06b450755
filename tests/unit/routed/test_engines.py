"""The stand-in can tell: what is mixed gets 409, and what nobody can serve gets no answer."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from routed.router import HEADER, SESSION, Router

FITS = {("engine:1", "engine:1"), ("engine:2", "engine:2")}


def pod(role: str, image: str, pairing: str, **labels: str) -> dict[str, Any]:
    found = {"covey.dev/role": role, "covey.dev/pairing": pairing, "covey.dev/endpoint": "true", **labels}
    return {
        "metadata": {"uid": f"{role} {image}", "name": role, "labels": found},
        "spec": {"nodeName": "node", "containers": [{"image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


async def asked(*pods: dict[str, Any], times: int = 12) -> tuple[set[tuple[int, str]], Router, list[str]]:
    """The answers to some requests, and the pods of which was said that nothing is under way."""
    idle: list[str] = []
    router = Router(FITS, lambda found: idle.append(found["metadata"]["uid"]))
    for each in pods:
        await router.take("ADDED", each)
    application = web.Application()
    application.router.add_post("/", router.answer)
    found = set()
    async with ClientSession() as session:
        application[SESSION] = session
        server = TestServer(application)
        await server.start_server()
        for _ in range(times):
            async with session.post(server.make_url("/")) as answer:
                found.add((answer.status, answer.headers.get(HEADER, "")))
        await router.stop()
        await server.close()
    return found, router, idle


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routed.engines.WORK", {"prefill": (0.0, 2), "decode": (0.0, 4)})


async def test_wrong_labels_make_mixed_pairs() -> None:
    found, _, _ = await asked(pod("prefill", "engine:1", "a"), pod("decode", "engine:2", "a"))
    assert found == {(409, "engine:1 engine:2")}


async def test_requests_keep_to_a_pairing() -> None:
    """And a router that looks at no label would have mixed some."""
    both = [pod(role, f"engine:{tag}", tag) for role in ("prefill", "decode") for tag in ("1", "2")]
    found, router, _ = await asked(*both)
    assert found == {(200, "engine:1 engine:1"), (200, "engine:2 engine:2")}
    assert router.blind


async def test_without_a_whole_pairing_there_is_no_answer() -> None:
    found, _, _ = await asked(pod("prefill", "engine:1", "a"), pod("decode", "engine:2", "b"))
    assert found == {(503, "")}


async def test_what_drains_gets_nothing_and_is_told_idle_once() -> None:
    drains = {"covey.dev/endpoint": "", "covey.dev/draining": "true"}
    going = [pod(role, "engine:1", "a", **drains) for role in ("prefill", "decode")]
    found, _, idle = await asked(*going, *(pod(role, "engine:2", "b") for role in ("prefill", "decode")))
    assert found == {(200, "engine:2 engine:2")}
    assert sorted(idle) == ["decode engine:1", "prefill engine:1"]
