"""Ordinary pods that give way to gangs, with everything running: what is in the way alone, and within their budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import RACK, AddNodes, Serving, serving, workers
from cluster.workbench import name_of, uid_of
from localcluster import Cluster, eventually
from localcluster.programs import ROOT, scheduler_config
from scheduler_trees import node_of

__all__ = ["serving"]

AT_ONCE = {"delaySeconds": 0, "minRunSeconds": 0}
RIGHTS = ROOT / "manifests" / "components" / "ordinary-pods" / "rights.yaml"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    """The processes with ordinary pods as victims, and the right that the operator has for it."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    try:
        scheduler = cluster.start_covey("scheduler", "--preempt-ordinary-pods=Evict", "--max-min-run=0s")
        kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(cluster.start_covey("operator"), scheduler, kube_scheduler)
    finally:
        cluster.stop_all()
        cluster.kubectl("delete", "-f", str(RIGHTS))


@pytest.fixture
def online(cluster: Cluster) -> Iterator[str]:
    """The name of a high PriorityClass."""
    cluster.api("POST", CLASSES, {"metadata": {"name": "online"}, "value": 1000})
    yield "online"
    cluster.api("DELETE", f"{CLASSES}/online")


def fill(serving: Serving, node: str, app: str, *, gpus: int = 0, cpu: str = "100m") -> str:
    """An ordinary pod that runs on a node; returns its UID."""
    amounts = {"cpu": cpu} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": amounts}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    body = {"metadata": {"name": f"{app}-{node}", "labels": {"app": app}}, "spec": spec}
    return uid_of(serving.cluster.api("POST", serving.path("Pod"), body))


def allow(serving: Serving, app: str, fewest: int, *, name: str = "") -> None:
    """A budget of an application's pods, and wait until its controller has counted them."""
    spec = {"minAvailable": fewest, "selector": {"matchLabels": {"app": app}}}
    budget = name or app
    serving.cluster.api("POST", serving.path("PodDisruptionBudget"), {"metadata": {"name": budget}, "spec": spec})

    def counted() -> bool:
        status = serving.get("PodDisruptionBudget", budget)["status"]
        return status.get("observedGeneration") == 1 and status["currentHealthy"] >= fewest

    eventually(counted, 60, f"budget {budget} has been counted")


def live(serving: Serving, app: str) -> set[str]:
    """UIDs of an application's pods that are not being deleted."""
    return {uid_of(pod) for pod in serving.pods() if pod["metadata"].get("labels", {}).get("app") == app}


def create(serving: Serving, priority: str, *roles: Object, **spec: Any) -> None:
    serving.create(*roles, name="chat", **{"priorityClassName": priority, "preemption": AT_ONCE, **spec})


def refused(serving: Serving) -> str:
    """The pods that could not be evicted for the gang, as its root says."""
    root = serving.get("CompositePodGroup", "chat-0")
    return root["metadata"].get("annotations", {}).get("scheduling.covey.dev/evictions-refused", "")


def test_pods_in_the_way_are_evicted_and_others_are_not_touched(
    covey: Covey, serving: Serving, nodes: AddNodes, online: str
) -> None:
    """kueue#10497: the pods with the devices go, those beside them that take only processor time stay."""
    assert covey.operator.alive
    names = nodes(blocks=1, racks=1, nodes=2)
    for node in names:
        fill(serving, node, "web", gpus=8)
    beside = {fill(serving, node, "agent") for node in names}
    create(serving, online, workers("decode", replicas=2, minReplicas=2))
    pods = serving.await_bound(2, inference="chat")
    assert {node_of(pod) for pod in pods} == set(names)
    assert not live(serving, "web")
    assert live(serving, "agent") == beside
    path = f"/apis/events.k8s.io/v1/namespaces/{serving.namespace}/events"
    found = eventually(
        lambda: [
            each
            for each in serving.cluster.api("GET", path)["items"]
            if each["reason"] == "Preempted" and each["regarding"]["kind"] == "Pod"
        ],
        30,
        "an Event on an evicted pod",
    )
    assert "priority 1000" in found[0]["note"]


def test_no_more_pods_go_than_are_needed(covey: Covey, serving: Serving, nodes: AddNodes, online: str) -> None:
    """One node is needed: the pods of the other one stay."""
    assert covey.operator.alive
    for node in nodes(blocks=1, racks=1, nodes=3):
        fill(serving, node, "web", gpus=8)
    create(serving, online, workers("decode", replicas=1))
    serving.await_bound(1, inference="chat")
    assert len(live(serving, "web")) == 2


def test_a_budget_that_allows_none_sends_the_gang_to_another_rack(
    covey: Covey, serving: Serving, nodes: AddNodes, online: str
) -> None:
    """The cheaper rack has a budget: nobody there is touched, and the dearer one is taken."""
    assert covey.operator.alive
    names = nodes(blocks=1, racks=2, nodes=2)
    rack = {name: serving.cluster.api("GET", f"/api/v1/nodes/{name}")["metadata"]["labels"][RACK] for name in names}
    cheap = [name for name in names if rack[name] == rack[names[0]]]
    dear = [name for name in names if name not in cheap]
    kept = {fill(serving, node, "web", gpus=8) for node in cheap}
    for node in dear:
        fill(serving, node, "batch", gpus=4)
        fill(serving, node, "more", gpus=4)
    eventually(lambda: all(each["status"].get("phase") == "Running" for each in serving.pods()), 60, "they run")
    allow(serving, "web", 2)
    create(serving, online, workers("decode", replicas=2, minReplicas=2), topology={"required": "rack"})
    pods = serving.await_bound(2, inference="chat")
    assert {node_of(pod) for pod in pods} == set(dear)
    assert live(serving, "web") == kept
    assert any(uid in refused(serving) for uid in kept)


def test_nobody_is_touched_where_budgets_allow_none_or_two_cover_a_pod(
    covey: Covey, serving: Serving, nodes: AddNodes, online: str
) -> None:
    """429 for one, 500 for the other, though the plan would need both; the third could have gone, and stays too."""
    assert covey.operator.alive
    names = nodes(blocks=1, racks=1, nodes=3)
    kept = {fill(serving, node, app, gpus=8) for node, app in zip(names, ("web", "twice", "free"), strict=True)}
    eventually(lambda: all(each["status"].get("phase") == "Running" for each in serving.pods()), 60, "they run")
    allow(serving, "web", 1)
    allow(serving, "twice", 0)
    allow(serving, "twice", 0, name="again")
    create(serving, online, workers("decode", replicas=3, minReplicas=3))
    eventually(lambda: refused(serving), 60, "the eviction was refused")
    eventually(lambda: "claim" not in serving.get("CompositePodGroup", "chat-0")["status"], 60, "the claim is given up")
    assert {uid_of(pod) for pod in serving.pods() if "app" in pod["metadata"].get("labels", {})} == kept
    assert not [name_of(pod) for pod in serving.pods(inference="chat") if node_of(pod)]


def test_processes_that_are_killed_evict_what_the_claim_names(
    covey_to_kill: Covey, serving: Serving, nodes: AddNodes, online: str
) -> None:
    """The claim and the answers to evictions stand on API objects."""
    for node in nodes(blocks=1, racks=1, nodes=4):
        fill(serving, node, "web", gpus=8)
    with serving.cluster.record(serving.path("CompositePodGroup")) as recording:
        create(serving, online, workers("decode", replicas=2, minReplicas=2))
        # Its victims go at once, and so does the claim: a poll may miss it.
        recording.wait(lambda events: any(root.get("status", {}).get("claim") for _, root in events))
    for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.operator):
        process.kill()
        process.start()
    serving.await_bound(2, inference="chat")
    assert len(live(serving, "web")) == 2
