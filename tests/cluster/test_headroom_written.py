"""An answer about head-room goes to the group that was asked, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from builders.members import drop, put
from covey.admission.headroom import Answer
from covey.admission.tree import Key
from covey.api.core import Group
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.scheduler.cache import Cache
from covey.scheduler.headroom import Headroom
from localcluster import Cluster
from scheduler_loop import Loop, context_of

TOLD = Headroom.dump_answers("one", "2026-01-01T00:00:00Z", [Answer("decode", 3)])


class Asked:
    """A root group, and the process that was asked; its watch shows what the test lets it show."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.key = Key("CompositePodGroup", namespace, "root")
        self.cache = Cache(client, SYSTEM)
        admission = Loop(self.cache).admission
        books = admission._books
        self.headroom = Headroom(context_of(self.cache, client), books._queueing, books.reservations, admission)

    async def make(self) -> Group:
        spec = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "CompositePodGroup", "spec": spec}
        return await self.client.create(
            COMPOSITE_POD_GROUPS, body | {"metadata": {"name": "root"}}, self.namespace, type=Group
        )

    def show(self, group: Group) -> None:
        put(self.cache, group)

    async def told(self) -> str:
        """What the group there is says that it was asked."""
        found = await self.client.get(COMPOSITE_POD_GROUPS, "root", self.namespace, type=Group)
        return found.status.headroom.asked if found.status.headroom is not None else ""


@pytest.fixture
async def asked(cluster: Cluster, namespace: str) -> AsyncIterator[Asked]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test", field_manager="test") as client:
        yield Asked(client, namespace)


async def test_a_group_gets_its_answer(asked: Asked) -> None:
    root = await asked.make()
    asked.show(root)
    assert await asked.headroom._write(asked.key, root.metadata.uid, TOLD)
    assert await asked.told() == "one"


async def test_a_namesake_gets_no_answer(asked: Asked) -> None:
    root = await asked.make()
    asked.show(root)
    await asked.client.delete(COMPOSITE_POD_GROUPS, "root", asked.namespace)
    namesake = await asked.make()
    assert not await asked.headroom._write(asked.key, root.metadata.uid, TOLD)
    drop(asked.cache, root)
    asked.show(namesake)
    assert await asked.headroom._write(asked.key, root.metadata.uid, TOLD)  # there is nobody to be told
    assert await asked.told() == ""
