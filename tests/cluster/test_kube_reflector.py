"""The reflector against a real API server that is restarted, killed and forgets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from covey.api.core import Meta, Read
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.errors import Gone
from covey.kube.reflector import Reflector, Selection
from covey.kube.resources import Resource
from localcluster import Cluster

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


class ConfigMap(Read, frozen=True):
    metadata: Meta
    data: dict[str, str] | None = None


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test") as made:
        yield made


class Story:
    """What a reflector has announced, to be waited for."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self._more = asyncio.Event()

    def tell(self, kind: str, new: ConfigMap, _: ConfigMap | None) -> None:
        self.events.append((kind, new.metadata.name))
        self._more.set()

    async def until(self, told: Callable[[list[tuple[str, str]]], bool]) -> None:
        async with asyncio.timeout(60):
            while not told(self.events):
                self._more.clear()
                await self._more.wait()


def reflecting(client: Client, namespace: str, story: Story) -> Reflector[ConfigMap]:
    # kube-controller-manager puts a ConfigMap of its own into every namespace.
    reflector = Reflector(
        client, CONFIG_MAPS, ConfigMap, selection=Selection(namespace, "app=x"), on_event=story.tell, clock=SYSTEM
    )
    reflector.add_index("data", lambda item: (item.data or {}).values())
    return reflector


@asynccontextmanager
async def running(reflector: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def config_map(name: str, value: str = "v") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "data": {"k": value}}


async def test_reflector_follows_what_happens(client: Client, namespace: str) -> None:
    story = Story()
    reflector = reflecting(client, namespace, story)
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    async with running(reflector):
        async with asyncio.timeout(30):
            await reflector.synced.wait()
        assert list(reflector.store) == [(namespace, "a")]
        await client.create(CONFIG_MAPS, config_map("b", "w"), namespace)
        await client.merge_patch(CONFIG_MAPS, "a", namespace, {"data": {"k": "w"}})
        await story.until(lambda events: len(events) == 3)
        assert sorted(item.metadata.name for item in reflector.by_index("data", "w")) == ["a", "b"]
        await client.merge_patch(CONFIG_MAPS, "b", namespace, {"metadata": {"labels": {"app": "y"}}})
        await client.delete(CONFIG_MAPS, "a", namespace)
        await story.until(lambda events: len(events) == 5)
    assert story.events == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("DELETED", "a")]
    assert reflector.store == {}


async def test_reflector_when_its_version_is_gone_deletes_what_was_deleted_behind_its_back(
    cluster: Cluster, client: Client, namespace: str
) -> None:
    story = Story()
    reflector = reflecting(client, namespace, story)
    for name in ("stays", "goes", "again"):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    async with running(reflector):
        await story.until(lambda events: len(events) == 3)
    story.events.clear()
    _, version = await client.list(CONFIG_MAPS, namespace)
    await client.delete(CONFIG_MAPS, "goes", namespace)
    await client.delete(CONFIG_MAPS, "again", namespace)
    again = await client.create(CONFIG_MAPS, config_map("again", "new"), namespace)
    # A new API server's watch cache begins now: it does not know the old version any more.
    await asyncio.to_thread(cluster.processes["kube-apiserver"].restart, kill=True)
    with pytest.raises(Gone):
        await anext(client.watch(CONFIG_MAPS, namespace, resource_version=version))
    async with running(reflector):
        await story.until(lambda events: len(events) == 3)
        assert story.events == [("DELETED", "goes"), ("DELETED", "again"), ("ADDED", "again")]
        assert reflector.store[namespace, "again"].metadata.uid == again["metadata"]["uid"]
        await client.delete(CONFIG_MAPS, "stays", namespace)
        await story.until(lambda events: events[3:] == [("DELETED", "stays")])


async def test_reflector_outlives_the_api_server(cluster: Cluster, client: Client, namespace: str) -> None:
    story = Story()
    reflector = reflecting(client, namespace, story)
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    async with running(reflector):
        await story.until(lambda events: events == [("ADDED", "a")])
        await asyncio.to_thread(cluster.processes["kube-apiserver"].restart, kill=True)
        await client.create(CONFIG_MAPS, config_map("b"), namespace)
        await client.delete(CONFIG_MAPS, "a", namespace)
        await story.until(lambda events: sorted(events[1:]) == [("ADDED", "b"), ("DELETED", "a")])
        assert list(reflector.store) == [(namespace, "b")]
