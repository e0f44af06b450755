"""Patches of a pod that hold for one state of it only: the API server takes them, or refuses them where the pod has moved on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from cluster.workbench import Workbench
from covey.api import constants, core
from covey.compile import Owner
from covey.kube.client import Client
from covey.kube.errors import Conflict, Invalid
from covey.kube.resources import DISAGGREGATED_INFERENCES, PODS
from covey.model import image_update
from covey.operator.execute.executor import Executor
from covey.operator.execute.put_status import InferenceStatusWriter
from covey.operator.model.actions import Actions, Ungate, UpdateInPlace
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Blocked
from covey.scheduler.pin import annotate_patch, pin_patch
from localcluster import Cluster

Patch = Any
NEXT = "registry.test/engine:2"


class Pods:
    """Pods of one namespace that no kubelet touches."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def make(self, *gates: str) -> core.Pod:
        spec = {
            "containers": [{"name": "main", "image": "registry.test/engine:1"}],
            "schedulerName": "nobody",
            "schedulingGates": [{"name": gate} for gate in gates],
        }
        body = {"metadata": {"name": "p"}, "spec": spec}
        return await self.client.create(PODS, body, self.namespace, type=core.Pod)

    async def touch(self, **metadata: Any) -> None:
        """Somebody writes to it."""
        await self.client.merge_patch(PODS, "p", self.namespace, {"metadata": metadata or {"labels": {"seen": "yes"}}})

    async def serve(self) -> None:
        """Its kubelet says that it is Ready."""
        status = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        await self.client.merge_patch(PODS, "p", self.namespace, {"status": status}, subresource="status")

    async def patch(self, patch: Patch) -> dict[str, Any]:
        """Send a merge patch, or operations."""
        send = self.client.merge_patch if isinstance(patch, dict) else self.client.json_patch
        return await send(PODS, "p", self.namespace, patch)

    async def execute(self, actions: Actions) -> None:
        await Executor(self.client, Owner(self.namespace, "llm", "uid"), Observed(), lambda *_: None).run(actions)

    async def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(PODS, "p", self.namespace)
        return found

    async def image(self) -> str:
        return str((await self.stored())["spec"]["containers"][0]["image"])


@pytest.fixture
async def pods(cluster: Cluster, namespace: str) -> AsyncIterator[Pods]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test", field_manager="test") as client:
        yield Pods(client, namespace)


async def test_pin_lifts_its_own_gate_alone_and_later_writes_bring_no_managed_fields_back(pods: Pods) -> None:
    before = await pods.make("example.com/a", constants.GATE_GANG, "example.com/b")
    after = await pods.patch(pin_patch(before, "node-a", {"rack": "r1"}, 0.0))
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == ["example.com/a", "example.com/b"]
    assert after["metadata"]["annotations"]["topology.covey.dev/rack"] == "r1"
    assert core.pinned_node(msgspec.convert(after, core.Pod)) == "node-a"
    await pods.touch()
    assert "managedFields" not in (await pods.stored())["metadata"]


async def test_pod_when_it_was_changed_refuses_its_pin_and_takes_marks(pods: Pods) -> None:
    before = await pods.make(constants.GATE_GANG)
    await pods.touch(annotations={"somebody": "else"})
    with pytest.raises(Conflict):
        await pods.patch(pin_patch(before, "node-a", {"rack": "r1"}, 0.0))
    after = await pods.patch(annotate_patch(before, {"x/y": "z"}))
    assert after["metadata"]["annotations"] == {"somebody": "else", "x/y": "z"}


async def test_pod_when_it_is_another_incarnation_refuses_pin_and_marks(pods: Pods) -> None:
    before = await pods.make(constants.GATE_GANG)
    await pods.client.delete(PODS, "p", pods.namespace, grace_seconds=0)
    await pods.make(constants.GATE_GANG)
    with pytest.raises(Conflict):
        await pods.patch(pin_patch(before, "node-a", {}, 0.0))
    with pytest.raises(Conflict):
        await pods.patch(annotate_patch(before, {"x": "y"}))


async def test_images_change_in_a_pod_that_does_not_serve_whatever_was_written_to_it(pods: Pods) -> None:
    pod = await pods.make()
    await pods.touch()
    await pods.execute(Actions(in_place=(UpdateInPlace(pod, {"main": NEXT}, "b"),)))
    assert await pods.image() == NEXT


async def test_images_of_a_pod_that_serves_by_now_stay(pods: Pods) -> None:
    pod = await pods.make()
    await pods.touch(annotations={"a": "b"})
    looked_at = await pods.client.get(PODS, "p", pods.namespace, type=image_update.Stored)
    await pods.serve()
    await pods.execute(Actions(in_place=(UpdateInPlace(pod, {"main": NEXT}, "b"),)))
    with pytest.raises(Invalid):  # it began to while it was looked at
        await pods.patch(image_update.operations(looked_at, {"main": NEXT}, "b", 0.0, as_is=True))
    assert await pods.image() == "registry.test/engine:1"


async def test_start_gate_when_its_index_has_moved_is_lifted(pods: Pods) -> None:
    pod = await pods.make(constants.GATE_GANG, constants.GATE_START)
    pinned = {"schedulingGates": [{"name": constants.GATE_START}], "nodeSelector": {"zone": "a"}}
    await pods.client.merge_patch(PODS, "p", pods.namespace, {"spec": pinned})
    await pods.execute(Actions(ungate=(Ungate(pod, constants.GATE_START, {"rack": "r1"}),)))
    spec = (await pods.stored())["spec"]
    assert "schedulingGates" not in spec
    assert spec["nodeSelector"] == {"zone": "a", "rack": "r1"}


async def test_gate_when_its_lifting_is_denied_for_the_change_itself_is_told(pods: Pods) -> None:
    pod = await pods.make(constants.GATE_START)
    await pods.touch()
    with pytest.raises(Blocked, match="denies the release of pod p"):
        await pods.execute(Actions(ungate=(Ungate(pod, constants.GATE_START, {"rack": "no label value"}),)))


async def test_status_counts_until_the_watch_shows_it_whatever_else_it_shows_before(
    pods: Pods, cluster: Cluster
) -> None:
    writer, bench = InferenceStatusWriter(pods.client, lambda *_: None), Workbench(cluster, pods.namespace)
    bench.create()

    def shown() -> Inference:
        return msgspec.convert(bench.get("DisaggregatedInference", "llm"), Inference)

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
    cluster.api("PATCH", path, {"status": {"units": 9}})
    assert writer.current(shown())["units"] == 9, "what a stranger writes is seen"
    # A namesake does not get the status.
    await pods.client.delete(DISAGGREGATED_INFERENCES, "llm", pods.namespace)
    assert not await writer.write(between, told)
    bench.create()
    assert not await writer.write(between, told)
    assert "units" not in bench.get("DisaggregatedInference", "llm")["status"]
