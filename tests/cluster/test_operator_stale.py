"""What the executor does with a plan from a snapshot that the world has left behind, on a real API server."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from msgspec import convert

from cluster.workbench import Workbench
from covey.api import constants as names
from covey.api.core import Pod
from covey.compile import Owner
from covey.kube.client import Client
from covey.kube.errors import Conflict, Invalid
from covey.kube.resources import PODS
from covey.operator.execute.executor import Executor
from covey.operator.execute.pods import PodCallbacks
from covey.operator.execute.put_status import StatusWriter
from covey.operator.model import podstate
from covey.operator.model.actions import Actions, DeletePod, Ungate, UpdateInPlace
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed
from covey.operator.model.podstate import Stored
from covey.operator.model.problem import Blocked
from localcluster import Cluster


class Replica:
    """The pods of a replica that no kubelet touches, and what the executor said of them."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.condemned: set[str] = set()
        self.deleted: list[str] = []

    async def make(self, name: str, gates: Sequence[str] = ()) -> Pod:
        spec = {
            "containers": [{"name": "main", "image": "registry.test/engine:1"}],
            "schedulerName": "nobody",
            "schedulingGates": [{"name": gate} for gate in gates],
        }
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
            lambda *_: None,
            pods=PodCallbacks(
                condemned=lambda pod: self.condemned.add(pod.metadata.uid),
                spared=self.condemned.remove,
                deleted=lambda item: self.deleted.append(item.pod.metadata.name),
            ),
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
    assert not replica.condemned, "those that were not asked to go count as ones that stay, too"
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
    change = UpdateInPlace(pod, {"main": "registry.test/engine:2"}, "b")
    await replica.execute(Actions(in_place=(change,)))
    stored: dict[str, Any] = await replica.client.get(PODS, "leader", replica.namespace)
    assert stored["spec"]["containers"][0]["image"] == "registry.test/engine:1"


async def test_a_pod_that_begins_to_serve_while_it_is_looked_at_keeps_its_images(replica: Replica) -> None:
    pod = await replica.make("leader")
    await replica.client.merge_patch(PODS, "leader", replica.namespace, {"metadata": {"annotations": {"a": "b"}}})
    stored = await replica.client.get(PODS, "leader", replica.namespace, type=Stored)
    await replica.serve("leader")
    operations = podstate.operations(stored, {"main": "registry.test/engine:2"}, "b", 0.0, as_is=True)
    with pytest.raises(Invalid):
        await replica.client.json_patch(PODS, "leader", replica.namespace, operations)
    assert pod.metadata.uid == stored.metadata.uid


async def test_a_pod_that_does_not_serve_gets_its_images(replica: Replica) -> None:
    pod = await replica.make("leader")
    await replica.touch("leader")
    change = UpdateInPlace(pod, {"main": "registry.test/engine:2"}, "b")
    await replica.execute(Actions(in_place=(change,)))
    stored: dict[str, Any] = await replica.client.get(PODS, "leader", replica.namespace)
    assert stored["spec"]["containers"][0]["image"] == "registry.test/engine:2"


async def test_a_start_gate_whose_index_has_moved_is_lifted_and_nothing_is_denied(replica: Replica) -> None:
    pod = await replica.make("leader", [names.GATE_GANG, names.GATE_START])
    pinned = {"spec": {"schedulingGates": [{"name": names.GATE_START}], "nodeSelector": {"zone": "a"}}}
    await replica.client.merge_patch(PODS, "leader", replica.namespace, pinned)
    await replica.execute(Actions(ungate=(Ungate(pod, names.GATE_START, {"rack": "r1"}),)))
    stored: dict[str, Any] = await replica.client.get(PODS, "leader", replica.namespace)
    assert "schedulingGates" not in stored["spec"]
    assert stored["spec"]["nodeSelector"] == {"zone": "a", "rack": "r1"}


async def test_a_gate_that_is_denied_for_the_change_itself_is_told(replica: Replica) -> None:
    pod = await replica.make("leader", [names.GATE_START])
    await replica.touch("leader")
    with pytest.raises(Blocked, match="denies the release of pod leader"):
        await replica.execute(Actions(ungate=(Ungate(pod, names.GATE_START, {"rack": "no label value"}),)))


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Workbench:
    """A namespace at which no operator looks."""
    return Workbench(cluster, namespace)


@pytest.fixture
async def writer(cluster: Cluster) -> AsyncIterator[StatusWriter]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test", field_manager="test") as client:
        yield StatusWriter(client, lambda *_: None)


async def test_a_status_counts_until_the_watch_shows_it_whatever_else_it_shows_before(
    writer: StatusWriter, bench: Workbench
) -> None:
    bench.create()

    def shown() -> Inference:
        return convert(bench.get("DisaggregatedInference", "llm"), Inference)

    first, told = shown(), {"observedGeneration": 1, "units": 2}
    bench.change({"replicas": 2})
    assert not await writer.write(first, told), "it is of a spec that is no more"
    between = shown()
    assert await writer.write(between, told)
    assert [writer.current(each) for each in (first, between, shown())] == [told, told, told]
    more = {**told, "units": 3}
    assert await writer.write(between, more), "on what was written, which the watch does not show yet"
    assert [writer.current(each) for each in (first, between, shown())] == [more, more, more]
    path = f"{bench.path('DisaggregatedInference', 'llm')}/status"
    bench.cluster.api("PATCH", path, {"status": {"units": 9}})
    assert writer.current(shown())["units"] == 9, "what a stranger writes is seen"
    writer.forget(first.metadata.uid)
    assert writer.current(first) == first.status


async def test_a_namesake_does_not_get_the_status(writer: StatusWriter, bench: Workbench) -> None:
    bench.create()
    first = convert(bench.get("DisaggregatedInference", "llm"), Inference)
    bench.delete("DisaggregatedInference", "llm")
    assert not await writer.write(first, {"units": 1})
    bench.create()
    assert not await writer.write(first, {"units": 1})
    assert "units" not in bench.get("DisaggregatedInference", "llm")["status"]
    assert writer.current(first) == first.status
