from __future__ import annotations

from typing import Any

import msgspec

from builders.members import cache, node, put, queue
from covey.api import core
from covey.kube.clock import Clock
from covey.kube.errors import NotFound, Unreachable
from covey.observability.families import REGISTRY
from covey.scheduler.usage import UsageWriter
from scheduler_loop import WALL, Loop, context_of, tree
from unit.scheduler.test_quotas import settle

GPU = "nvidia.com/gpu"


class Client:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.failures: list[Exception] = []

    async def apply(self, _resource: object, body: dict[str, Any], **_options: object) -> None:
        if self.failures:
            raise self.failures.pop()
        self.written.append(body)


class Bench:
    """Admission and the writer of usage over one cache."""

    def __init__(self, *objects: Any) -> None:
        self.loop = Loop(cache(*objects))
        self.client = Client()
        client: Any = self.client
        context = context_of(self.loop.cache, client, Clock(lambda: 0.0, lambda: WALL + 60.0))
        object.__setattr__(context, "leads", lambda: True)
        self.writer = UsageWriter(context, self.loop.quotas)

    async def write(self) -> list[dict[str, Any]]:
        self.client.written.clear()
        await settle(self.loop)
        await self.writer.write()
        return list(self.client.written)

    def shows(self, body: dict[str, Any]) -> None:
        """The watch shows what was written."""
        before = self.loop.cache.queues.store["", body["metadata"]["name"]]
        status = msgspec.convert(body["status"], core.QueueStatus)
        put(self.loop.cache, msgspec.structs.replace(before, status=status))


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def both(**more: Any) -> list[core.Queue]:
    return [queue("a", 8, cohort="c", **more), queue("b", 16, cohort="c", namespaces={})]


async def test_conditions_say_what_is_not_counted_and_what_is_too_much() -> None:
    flavors: list[dict[str, Any]] = [{"nodes": {"product": "h100"}, "resources": [{"name": GPU, "nominal": 8}]}]
    bench = Bench(node("n0", labels={"product": "h100"}), node("n1"), queue("a", flavors=flavors), *tree("x"))
    (body,) = await bench.write()
    within, counted = body["status"]["conditions"]
    assert within["status"] == "True"
    assert counted["message"] == "1 of 2 nodes belong to no flavor, and what lies there is not counted"
    put(bench.loop.cache, queue("a", flavors=[{**flavors[0], "resources": [{"name": GPU, "nominal": 4}]}]))
    (body,) = await bench.write()
    assert body["status"]["resources"][0]["used"] == 8
    assert body["status"]["conditions"][0]["status"] == "False"


async def test_the_age_of_the_oldest_minimum_within_nominal_is_shown() -> None:
    bench = Bench(*both(), *tree("x"))
    await bench.write()
    assert value("covey_queue_minimums_waiting_oldest_age_seconds", queue="a") == 60.0
    assert value("covey_queue_minimums_waiting_oldest_age_seconds", queue="b") == 0.0


async def test_a_write_that_failed_is_made_again() -> None:
    bench = Bench(node("n0"), queue("a"))
    bench.client.failures = [Unreachable("gone")]
    assert await bench.write() == []
    bench.client.failures = [NotFound(404, "NotFound", "no such queue")]
    assert await bench.write() == []
    assert len(await bench.write()) == 1


async def test_a_leader_when_the_former_one_wrote_the_same_usage_writes_nothing() -> None:
    former = Bench(*both(), *tree("x"))
    for body in await former.write():
        former.shows(body)
    successor = Bench(*both(), *tree("x"))
    for queue_ in former.loop.cache.queues.store.values():
        put(successor.loop.cache, queue_)
    assert await successor.write() == []
