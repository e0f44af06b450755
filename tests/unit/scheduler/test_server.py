from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer

from covey.scheduler.binder import Binder
from covey.scheduler.guard import Guard
from covey.scheduler.server import Extender
from covey.scheduler.writer import PodWriter
from scheduler_builders import cache


@pytest.mark.parametrize("path", ["/guard/filter", "/guard/preempt", "/barrier/bind"])
async def test_nothing_is_answered_from_a_cache_that_is_not_synced(path: str) -> None:
    made = cache()
    binder = Binder(made, None, PodWriter(None))  # type: ignore[arg-type] # nothing is sent
    extender = Extender(Guard(made), binder, lambda: made.synced, lambda: made.synced)
    async with TestClient(TestServer(extender.application())) as client:
        answer = await client.post(path, data=b"{}")
        assert answer.status == 503
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200
