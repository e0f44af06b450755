"""What is asked of the API server before a backend is chosen, and what becomes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import pytest

from covey import backends
from covey.api.inference import BackendName
from covey.backends import Cluster, FieldProbe
from covey.backends.extender import Extender
from covey.kube.client import Client
from covey.kube.errors import Forbidden, NotFound
from covey.kube.resources import Resource
from covey.observability.families import REGISTRY
from covey.operator.observe import probing
from covey.operator.observe.probing import Probing

GANGS = Resource("example.com", "v1", "gangs", "Gang")
BODY = {"metadata": {"name": "covey-probe"}, "spec": {"parts": [{"size": 1}]}}


class Scheduler(Extender):
    """A backend that asks for one field."""

    name: ClassVar[BackendName] = BackendName.VOLCANO

    def probes(self) -> tuple[FieldProbe, ...]:
        return (FieldProbe("size", GANGS, BODY, ("spec", "parts", 0, "size")),)


class Server:
    """Answers dry runs; ``answer`` may be an error."""

    def __init__(self, answer: Mapping[str, Any] | Exception) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []

    async def create(self, resource: Resource, body: Mapping[str, Any], *, dry_run: bool) -> Mapping[str, Any]:
        assert (resource, dry_run) == (GANGS, True)
        self.asked.append(body)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "BACKENDS", (Extender(), Scheduler()))
    monkeypatch.setattr(probing, "BACKENDS", (Extender(), Scheduler()))


def made(server: Server, changed: Callable[[], None], *, enabled: BackendName = BackendName.VOLCANO) -> Probing:
    return Probing(cast("Client", server), "covey-system", (enabled,), frozenset, changed)


async def once(asking: Probing) -> Cluster:
    """Let it ask until it has an answer."""
    task = asyncio.create_task(asking.run())
    try:
        await asyncio.wait_for(asking.asked.wait(), 30)
    finally:
        task.cancel()
    return asking.cluster(frozenset())


@pytest.mark.parametrize(
    ("answer", "kept", "unprobed"),
    [
        (BODY, {"size"}, set()),
        ({"spec": {"parts": [{}]}}, set(), set()),
        ({"spec": {"parts": None}}, set(), set()),
        (NotFound(404, "NotFound", "the server could not find the requested resource"), set(), set()),
        (Forbidden(403, "Forbidden", "no"), set(), {"size"}),
        (NotFound(404, "NotFound", 'namespaces "x" not found', {"kind": "namespaces"}), set(), {"size"}),
    ],
    ids=["kept", "dropped", "pruned", "unserved", "denied", "no namespace"],
)
async def test_a_field_counts_when_it_comes_back(answer: Any, kept: set[str], unprobed: set[str]) -> None:
    changes: list[None] = []
    server = Server(answer)
    cluster = await once(made(server, lambda: changes.append(None)))
    assert cluster.kept == kept
    assert set(cluster.unprobed) == unprobed
    assert cluster.enabled == {BackendName.VOLCANO}
    assert server.asked[0]["metadata"] == {"name": "covey-probe", "namespace": "covey-system"}
    assert len(changes) == bool(kept or unprobed)
    assert REGISTRY.get_sample_value("covey_probes_unanswered", {"probe": "size"}) == len(unprobed)


async def test_a_changed_answer_is_noticed() -> None:
    changes: asyncio.Queue[None] = asyncio.Queue()
    server = Server(BODY)
    asking = made(server, lambda: changes.put_nowait(None))
    task = asyncio.create_task(asking.run())
    try:
        await asyncio.wait_for(asking.asked.wait(), 30)
        server.answer = {}
        asking.stale()
        for _ in range(2):
            await asyncio.wait_for(changes.get(), 30)
    finally:
        task.cancel()
    assert not asking.cluster(frozenset()).kept


async def test_a_dry_run_that_fails_later_takes_no_answer_back() -> None:
    server = Server(BODY)
    asking = made(server, lambda: None)
    assert (await once(asking)).kept == {"size"}
    asking.asked.clear()
    server.answer = Forbidden(403, "Forbidden", "no")
    cluster = await once(asking)
    assert len(server.asked) == 2
    assert (cluster.kept, cluster.unprobed) == ({"size"}, {})
