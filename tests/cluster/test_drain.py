"""Drains with everything running: the eviction API, kubectl drain and autoscalers' taints meet gangs that are moved whole."""

from __future__ import annotations

import pytest

from api_manifests import Object
from cluster.serving import AddNodes, Serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import ApiError, eventually

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def await_budget(serving: Serving, healthy: int, name: str = "llm-gang") -> Object:
    """Wait until the disruption controller has counted so many healthy pods."""

    def counted() -> Object:
        budget = serving.get("PodDisruptionBudget", name)
        status = budget.get("status", {})
        assert status.get("currentHealthy") == healthy, str(status)
        return budget

    return eventually(counted, 60, f"{healthy} healthy pods are counted")


def evict(serving: Serving, pod: Object) -> int:
    """The code that the eviction API answers with."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    try:
        serving.cluster.api("POST", f"{serving.path('Pod', name_of(pod))}/eviction", body)
    except ApiError as error:
        return error.code
    return 201


def test_the_eviction_api_takes_no_pod_of_a_gang(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=4)
    serving.create(
        workers("prefill", replicas=2, size=2), workers("decode", replicas=2), workers("router", minReplicas=0, gpus=1)
    )
    before = await_ready(serving, 7)
    budget = await_budget(serving, 6)
    assert budget["status"]["disruptionsAllowed"] == 0
    for pod in before:
        assert evict(serving, pod) == (201 if label(pod, "role") == "router" else 429), name_of(pod)
    gang = {uid_of(pod) for pod in before if label(pod, "role") != "router"}
    assert gang <= uids(serving.pods())
    # Why it is a number of pods: the disruption controller expects as many as the resource's /scale says, in units.
    other = {"maxUnavailable": 0, "selector": budget["spec"]["selector"]}
    serving.cluster.api("POST", serving.path("PodDisruptionBudget"), {"metadata": {"name": "other"}, "spec": other})
    assert await_budget(serving, 6, "other")["status"]["disruptionsAllowed"] == 5


def test_the_budget_is_kept_and_goes(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    serving.create(workers("prefill"), workers("decode"))
    await_ready(serving, 2)
    path = serving.path("PodDisruptionBudget", "llm-gang")
    serving.cluster.api("PATCH", path, {"spec": {"minAvailable": 1}})
    eventually(lambda: serving.get("PodDisruptionBudget", "llm-gang")["spec"]["minAvailable"] > 1, 30, "it is put right")
    first = serving.get("PodDisruptionBudget", "llm-gang")
    serving.cluster.api("DELETE", path)
    eventually(lambda: uid_of(serving.get("PodDisruptionBudget", "llm-gang")) != uid_of(first), 30, "it is made again")
    serving.change({"suspend": True})
    eventually(lambda: not serving.owned("PodDisruptionBudget"), 30, "what is suspended needs none")


def test_a_strangers_budget_of_this_name_is_told(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    theirs = {"metadata": {"name": "llm-gang"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    serving.cluster.api("POST", serving.path("PodDisruptionBudget"), theirs)
    serving.create(workers("prefill"), workers("decode"))
    message = serving.await_condition("Progressing", "False", "NameTaken")
    assert "PodDisruptionBudget llm-gang exists and is not Covey's" in message
    serving.delete("PodDisruptionBudget", "llm-gang")
    serving.await_bound(2)
    assert serving.owned("PodDisruptionBudget")
