"""Failures, as a kubelet reports them: what is recreated, when it starts, and where it does not go."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.kubelet import fail, restart
from cluster.serving import AddNodes, Serving, serving, workers
from cluster.workbench import is_ready, label, name_of, uid_of, uids
from covey.compile.pods import shunning
from localcluster import Cluster, Process, eventually
from localcluster.programs import scheduler_config
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

START = {"name": "scheduling.covey.dev/start"}
STARTED = "covey.dev/started"
#: Seconds for which a node is avoided here.
AVOIDED = 40


@pytest.fixture(scope="module", autouse=True)
def operator(cluster: Cluster) -> Iterator[Process]:
    """All of Covey; nodes are avoided for a short time."""
    try:
        scheduler = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(scheduler))
        yield cluster.start_covey("operator", f"--avoid-node-seconds={AVOIDED}")
    finally:
        cluster.stop_all()


def annotation(pod: Object, key: str) -> str:
    return str(pod["metadata"].get("annotations", {}).get(key, ""))


def failures(pod: Object) -> int:
    return int(annotation(pod, "covey.dev/failures") or 0)


def is_held(pod: Object) -> bool:
    return START in pod["spec"].get("schedulingGates", ())


def await_served(serving: Serving, count: int, *, noted: int, **labels: Any) -> list[Object]:
    """Wait until so many pods are Ready, and of so many replicas it is noted that they have been."""

    def served() -> list[Object]:
        pods = serving.pods(**labels)
        assert len(pods) == count, f"{len(pods)} pods of {count}"
        assert all(map(is_ready, pods)), "not all are Ready"
        assert sum(bool(annotation(pod, STARTED)) for pod in pods) == noted, "not noted yet"
        return pods

    return eventually(served, 120, f"{count} pods have served")


def await_successors(serving: Serving, before: list[Object], **labels: Any) -> list[Object]:
    """Wait until all of these pods have successors; returns them."""

    def succeeded() -> list[Object]:
        pods = serving.pods(**labels)
        assert len(pods) == len(before), f"{len(pods)} pods of {len(before)}"
        left = uids(pods) & uids(before)
        assert not left, f"{len(left)} of {len(before)} pods are still there"
        return pods

    return eventually(succeeded, 120, "all pods have successors")


def test_a_restart_recreates_the_whole_replica_once_and_no_other(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=4)
    serving.create(workers("prefill", replicas=2, size=2, minReplicas=1), workers("decode", replicas=2))
    await_served(serving, 6, noted=2)
    broken = serving.pods(role="prefill", replica=1)
    others = uids(serving.pods()) - uids(broken)
    with serving.cluster.record(serving.path("Pod")) as recording:
        # The peers of a process that has gone end, too.
        for pod in broken:
            with contextlib.suppress(ApiException):
                restart(serving, pod)
        await_successors(serving, broken, role="prefill", replica=1)
        await_served(serving, 6, noted=2)
        created = {uid_of(pod) for kind, pod in recording.events if kind == "ADDED"} - others - uids(broken)
    assert len(created) == 2, "exactly once"
    assert uids(serving.pods()) == others | created
    assert {annotation(pod, "covey.dev/restarts") for pod in serving.pods(role="prefill", replica=1)} == {"1"}

    def counted() -> bool:
        status = serving.get("DisaggregatedInference", "llm")["status"]["roles"]
        return {each["name"]: each["restarts"] for each in status} == {"prefill": 1, "decode": 0}

    eventually(counted, 30, "the status counts it")
    assert "failed on" in serving.await_event("ReplicaFailed")


def test_restarts_before_the_first_ready_and_of_single_pods_are_the_kubelets(serving: Serving, nodes: AddNodes) -> None:
    serving.create(workers("prefill", size=2), workers("decode"))
    gated = serving.await_pods(3)
    for pod in gated:
        # kwok makes nobody Ready who runs already.
        path = f"{serving.path('Pod', name_of(pod))}/status"
        serving.cluster.api("PATCH", path, {"status": {"phase": "Running"}})
    nodes(racks=1, nodes=4)
    serving.await_bound(3)
    for pod in serving.pods():
        path = f"{serving.path('Pod', name_of(pod))}/status"
        crashed = [{"name": "engine", "image": "e", "imageID": "", "ready": False, "restartCount": 3}]
        serving.cluster.api("PATCH", path, {"status": {"containerStatuses": crashed}})
    for pod in serving.pods():
        path = f"{serving.path('Pod', name_of(pod))}/status"
        serving.cluster.api("PATCH", path, {"status": {"phase": "Pending"}})
    await_served(serving, 3, noted=1)
    (single,) = serving.pods(role="decode")
    restart(serving, single, 7)
    assert uids(serving.pods()) == uids(gated)


def test_a_crash_loop_slows_down_and_an_operator_that_restarts_keeps_count(
    serving: Serving, nodes: AddNodes, operator: Process
) -> None:
    nodes(racks=1, nodes=4)
    serving.create(workers("prefill", size=2, restart={"backoff": {"baseSeconds": 15, "maxSeconds": 20}}))
    pods = await_served(serving, 2, noted=1)
    restart(serving, pods[0])
    pods = await_successors(serving, pods)
    assert not any(map(is_held, pods)), "the first time at once"
    pods = await_served(serving, 2, noted=1)
    assert {failures(pod) for pod in pods} == {1}
    with serving.cluster.record(serving.path("Pod")) as recording:
        operator.kill()
        restart(serving, pods[0])
        operator.start()
        pods = await_successors(serving, pods)
        assert {failures(pod) for pod in pods} == {2}
        await_served(serving, 2, noted=1)
        waited = [pod for _, pod in recording.events if is_held(pod) and pin_of(pod) and not node_of(pod)]
    assert {label(pod, "index") for pod in waited} == {"0", "1"}, "their places are kept while they wait"


def test_after_too_many_restarts_it_is_left_until_a_person_acts(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=4)
    serving.create(workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 0}))
    first, _ = sorted(serving.await_bound(2), key=lambda pod: label(pod, "replica"))
    serving.await_condition("Available", "True", "Available")
    fail(serving, first)
    message = serving.await_condition("Degraded", "True", "RestartsExhausted")
    assert "failed 1 times in a row, and restart.maxRestarts is 0" in message
    assert uid_of(serving.get("Pod", name_of(first))) == uid_of(first), "it is still there to be looked at"
    serving.change({"roles": [workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 3})]})

    def recreated() -> bool:
        pods = serving.pods()
        assert uid_of(first) not in uids(pods)
        assert sum(map(is_ready, pods)) == 2
        return True

    eventually(recreated, 60, "the failed pod is replaced")
    serving.await_condition("Degraded", "False", "AsExpected")


def test_a_node_that_refuses_pods_is_avoided_for_a_while(serving: Serving, nodes: AddNodes) -> None:
    (bad,) = nodes(blocks=1, racks=1, nodes=1)
    serving.create(workers("decode", restart={"backoff": {"baseSeconds": 0, "maxSeconds": 0}}))
    for _ in range(3):
        (pod,) = serving.await_bound(1)
        assert node_of(pod) == bad
        fail(serving, pod, "OutOfnvidia.com/gpu")
        await_successors(serving, [pod])
    message = serving.await_condition("NodesAvoided", "True", "NodeAvoided")
    assert message.startswith(f"new pods keep off node {bad} until ")
    refused = serving.await_condition("Admitted", "False", "Infeasible")
    assert "1 excluded" in refused, refused
    (good,) = nodes(blocks=1, racks=1, nodes=1)
    (pod,) = serving.await_bound(1)
    assert node_of(pod) == good, "it went elsewhere"

    def forgiven() -> bool:
        found = serving.get("DisaggregatedInference", "llm")["status"]["conditions"]
        assert "NodesAvoided" not in {each["type"] for each in found}
        return True

    eventually(forgiven, AVOIDED + 60, "it is forgiven")
    serving.change({"roles": [workers("decode", replicas=2)]})
    assert {node_of(each) for each in serving.await_bound(2)} == {bad, good}


def test_a_gang_that_waits_for_an_avoided_node_gets_it_when_it_is_forgiven(serving: Serving, nodes: AddNodes) -> None:
    (bad,) = nodes(blocks=1, racks=1, nodes=1)
    serving.create(workers("decode", restart={"backoff": {"baseSeconds": 0, "maxSeconds": 0}}))
    for _ in range(3):
        (pod,) = serving.await_bound(1)
        fail(serving, pod, "UnexpectedAdmissionError")
        await_successors(serving, [pod])
    serving.await_condition("NodesAvoided", "True", "NodeAvoided")
    (pod,) = serving.await_bound(1)
    assert node_of(pod) == bad


def test_the_whole_unit_is_recreated_where_its_policy_says_so(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=1, nodes=8)
    prefill = workers("prefill", size=2, restart={"policy": "RecreateUnit"})
    serving.create(prefill, workers("decode"), workers("router", gpus=1, minReplicas=0), replicas=2)
    pods = await_served(serving, 8, noted=2)
    gang = [pod for pod in pods if label(pod, "unit") == "0" and label(pod, "role") != "router"]
    restart(serving, next(pod for pod in gang if label(pod, "role") == "prefill"))

    def recreated() -> list[Object]:
        found = serving.pods()
        assert not uids(gang) & uids(found)
        assert len(found) == 8
        assert all(map(is_ready, found))
        return found

    after = eventually(recreated, 120, "the unit is recreated")
    assert uids(pods) - uids(gang) <= uids(after), "nothing else was touched"
    assert len(uids(after) - uids(pods)) == len(gang)


def test_what_does_not_get_ready_in_time_is_tried_again(serving: Serving, nodes: AddNodes) -> None:
    serving.create(workers("decode", startDeadlineSeconds=5))
    (gated,) = serving.await_pods(1)
    # kwok makes nobody Ready who runs already.
    path = f"{serving.path('Pod', name_of(gated))}/status"
    serving.cluster.api("PATCH", path, {"status": {"phase": "Running"}})
    nodes(racks=1, nodes=2)
    (pod,) = await_successors(serving, [gated])
    (pod,) = serving.await_bound(1)
    assert failures(pod) == 1
    assert "StartDeadlineExceeded" in serving.await_event("ReplicaFailed")
    serving.await_condition("Available", "True", "Available")


def test_the_wish_to_keep_off_nodes_is_one_that_the_api_server_takes(serving: Serving) -> None:
    spec = {
        "containers": [{"name": "engine", "image": "registry.test/engine:1"}],
        "affinity": shunning({"podAntiAffinity": {}}, ["node-b", "node-a"]),
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
    path = f"{serving.path('Pod')}?dryRun=All&fieldValidation=Strict"
    kept = serving.cluster.api("POST", path, body)["spec"]["affinity"]["nodeAffinity"]
    (wish,) = kept["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [each["values"] for each in wish["preference"]["matchFields"]] == [["node-a"], ["node-b"]]
