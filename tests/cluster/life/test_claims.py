"""DisaggregatedInferences whose pods claim devices by a template, with everything running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.devices import class_body, request_body, wish_body
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import uid_of
from device_driver import API, Driver
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")
CLAIMING = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}
NOBODY = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
LONELY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NOBODY]}}


@pytest.fixture
def driver(serving: Serving) -> Iterator[Driver]:
    made = Driver(serving.cluster, serving.namespace)
    made.make("deviceclasses", class_body())
    yield made
    for path in made.made:
        serving.cluster.api("DELETE", path)


def write_template(serving: Serving) -> None:
    path = f"{API}/namespaces/{serving.namespace}/resourceclaimtemplates"
    spec = {"spec": wish_body(request_body(4))}
    serving.cluster.api("POST", path, {"metadata": {"name": "four"}, "spec": spec})


def test_a_gang_waits_for_its_template_binds_and_leaves_nothing(
    serving: Serving, driver: Driver, nodes: AddNodes
) -> None:
    """Two replicas of two pods of four devices each fill two nodes of eight; a third finds no room."""
    names = nodes(nodes=2, gpus=0)
    for name in names:
        driver.offer(name, 8)
    serving.create(workers("decode", gpus=0, size=2, replicas=2, minReplicas=2, spec=CLAIMING))
    eventually(lambda: "was not made yet" in str(serving.get("DisaggregatedInference", "llm")["status"]), 60)
    assert serving.bound() == []
    write_template(serving)
    pods = serving.await_ready(4, inference="llm")
    allocated = driver.allocated()
    taken = [device for pod in pods for device in allocated[uid_of(pod)]]
    assert len(taken) == len(set(taken)) == 16
    assert all({pool for pool, _ in allocated[uid_of(pod)]} == {node_of(pod)} for pod in pods)
    serving.create(workers("decode", gpus=0, spec=CLAIMING), name="more")
    serving.await_condition("Admitted", "False", "Infeasible", name="more")
    serving.delete("DisaggregatedInference", "llm")
    serving.await_ready(1, inference="more")
    eventually(lambda: len(driver.allocated()) == 1, 60, "nothing but what the other has is allocated")


def test_a_gang_that_is_released_leaves_nothing_allocated(serving: Serving, driver: Driver, nodes: AddNodes) -> None:
    """kube-scheduler allocates for one pod, and takes the other to no node."""
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    write_template(serving)
    with serving.cluster.record(driver.claims) as recording:
        serving.create(workers("decode", gpus=0, spec=CLAIMING), workers("prefill", gpus=0, spec={"affinity": LONELY}))
        eventually(
            lambda: any(claim.get("status", {}).get("allocation") for _, claim in recording.events),
            120,
            "one was allocated",
        )
        eventually(lambda: driver.allocated() == {}, 120, "nothing is allocated")
        assert serving.bound() == []
    serving.delete("DisaggregatedInference", "llm")
    serving.create(workers("decode", gpus=0, spec=CLAIMING), name="next")
    serving.await_ready(1, inference="next")
