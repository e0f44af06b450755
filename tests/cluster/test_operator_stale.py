"""What the executor does with a plan from a snapshot that the world has left behind, on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from covey.api.core import Pod
from covey.compile import Owner
from covey.kube.client import Client
from covey.kube.errors import Conflict
from covey.kube.resources import PODS
from covey.operator.execute.executor import Executor
from covey.operator.snapshot.observed import Observed
from covey.operator.terms.actions import Actions, DeletePod, Exchange
from localcluster import Cluster


class Replica:
    """The pods of a replica that no kubelet touches, and what the executor said of them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.spared: list[str] = []
        self.deleted: list[str] = []

    async def make(self, name: str) -> Pod:
        spec = {"containers": [{"name": "main", "image": "registry.test/engine:1"}], "schedulerName": "nobody"}
        return await self.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, self.namespace, type=Pod)

    async def touch(self, name: str) -> None:
        """Somebody writes to it."""
        await self.client.merge_patch(PODS, name, self.namespace, {"metadata": {"labels": {"seen": "yes"}}}, type=Pod)

    async def serve(self, name: str) -> Pod:
        """Its kubelet says that it is Ready."""
        status = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        patch = {"status": status}
        return await self.client.merge_patch(PODS, name, self.namespace, patch, subresource="status", type=Pod)

    async def execute(self, actions: Actions) -> None:
        await Executor(
            self.client,
            Owner(self.namespace, "llm", "uid"),
            Observed(),
            lambda _: None,
            lambda *_: None,
            spared=self.spared.append,
            deleted=lambda item: self.deleted.append(item.pod.metadata.name),
        ).run(actions)

    async def delete(self, *pods: Pod) -> None:
        await self.execute(Actions(delete_pods=tuple(DeletePod(pod, "rolled out") for pod in pods)))

    async def left(self) -> set[str]:
        found, _ = await self.client.list(PODS, self.namespace, type=Pod)
        return {pod.metadata.name for pod in found if pod.metadata.deletion_timestamp is None}


@pytest.fixture
async def replica(cluster: Cluster, namespace: str) -> AsyncIterator[Replica]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test", field_manager="test") as client:
        yield Replica(client, namespace)


async def test_a_replica_that_has_begun_to_serve_is_not_given_up(replica: Replica) -> None:
    leader, worker = await replica.serve((await replica.make("leader")).metadata.name), await replica.make("worker")
    await replica.serve("worker")
    with pytest.raises(Conflict, match="pod worker serves by now"):
        await replica.delete(leader, worker)
    assert await replica.left() == {"leader", "worker"}
    assert replica.spared == [worker.metadata.uid]
    assert not replica.deleted


async def test_a_replica_that_was_written_to_and_still_does_not_serve_goes(replica: Replica) -> None:
    leader, worker = await replica.serve((await replica.make("leader")).metadata.name), await replica.make("worker")
    await replica.touch("worker")
    await replica.delete(leader, worker)
    assert replica.deleted == ["worker", "leader"]
    assert not await replica.left()


async def test_a_replica_that_served_goes_whatever_is_written_to_it(replica: Replica) -> None:
    leader = await replica.serve((await replica.make("leader")).metadata.name)
    await replica.touch("leader")
    await replica.delete(leader)
    assert not await replica.left()


async def test_a_pod_that_has_begun_to_serve_keeps_its_images(replica: Replica) -> None:
    pod = await replica.make("leader")
    await replica.serve("leader")
    change = Exchange(pod, {"main": "registry.test/engine:2"}, "b")
    await replica.execute(Actions(exchange=(change,)))
    stored: dict[str, Any] = await replica.client.get(PODS, "leader", replica.namespace)
    assert stored["spec"]["containers"][0]["image"] == "registry.test/engine:1"


async def test_a_pod_that_does_not_serve_gets_its_images(replica: Replica) -> None:
    pod = await replica.make("leader")
    await replica.touch("leader")
    change = Exchange(pod, {"main": "registry.test/engine:2"}, "b")
    await replica.execute(Actions(exchange=(change,)))
    stored: dict[str, Any] = await replica.client.get(PODS, "leader", replica.namespace)
    assert stored["spec"]["containers"][0]["image"] == "registry.test/engine:2"
