"""Events as kubectl shows them."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
from covey.observability.families import REGISTRY
from localcluster import Cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="test") as made:
        yield made


def failed() -> float:
    return REGISTRY.get_sample_value("covey_events_dropped_total", {"cause": "failed"}) or 0.0


async def test_events_are_shown_on_their_object(cluster: Cluster, client: Client, namespace: str) -> None:
    recorder = EventRecorder(client, "covey-scheduler", "covey-0", clock=SYSTEM.wall)
    pod = ObjectRef("v1", "Pod", "p", namespace, "u-1")
    recorder.event(pod, "Warning", "Infeasible", "prefill needs 8 nvidia.com/gpu in one rack: 4 are free", "Admit")
    recorder.event(pod, "Normal", "Admitted", "é" * 2000, "Admit")
    await recorder.flush(10)
    for _ in range(2):
        recorder.event(pod, "Warning", "Infeasible", "prefill needs 8 nvidia.com/gpu in one rack: 4 are free", "Admit")
    await recorder.flush(10)
    shown = json.loads(cluster.kubectl("get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json"))["items"]
    by_reason = {event["reason"]: event for event in shown}
    assert len(shown) == 2
    infeasible = by_reason["Infeasible"]
    assert infeasible["series"]["count"] == 3
    assert (infeasible["type"], infeasible["action"]) == ("Warning", "Admit")
    assert (infeasible["reportingController"], infeasible["reportingInstance"]) == ("covey-scheduler", "covey-0")
    assert infeasible["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": namespace,
        "uid": "u-1",
    }
    assert len(by_reason["Admitted"]["note"].encode()) <= 1024
    text = cluster.kubectl("events", "-n", namespace, "--for=pod/p")
    assert "prefill needs 8 nvidia.com/gpu" in text


async def test_an_event_about_a_node(cluster: Cluster, client: Client) -> None:
    recorder = EventRecorder(client, "covey-scheduler", "covey-0", clock=SYSTEM.wall)
    recorder.event(ObjectRef("v1", "Node", "no-such-node", uid="x"), "Normal", "Excluded", "note", "Plan")
    running = asyncio.create_task(recorder.run())
    await recorder.flush(10)
    running.cancel()
    assert "Excluded" in cluster.kubectl("events", "-n", "default", "--for=node/no-such-node")


async def test_a_namespace_that_is_not_there_costs_the_event_only(client: Client) -> None:
    recorder = EventRecorder(client, "covey-scheduler", "covey-0", clock=SYSTEM.wall)
    before = failed()
    recorder.event(ObjectRef("v1", "Pod", "p", "no-such-namespace"), "Normal", "Reason", "note", "Action")
    await recorder.flush(10)
    assert failed() == before + 1
