"""Room taken from lower priorities with everything running: the least that suffices, whole, and for nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import RACK, AddNodes, Serving, serving, workers
from cluster.workbench import label, uid_of, uids
from localcluster import Cluster, eventually
from scheduler_trees import GATE, SCHEDULER, node_of, resources

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

#: Nobody waits before room is taken, and nothing is spared for being young.
AT_ONCE = {"delaySeconds": 0, "minRunSeconds": 0}


@pytest.fixture
def classes(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The names of a low and of a high PriorityClass."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("spare", 1), ("online", 1000)):
        cluster.api("POST", path, {"metadata": {"name": name}, "value": value})
    yield ("spare", "online")
    for name in ("spare", "online"):
        cluster.api("DELETE", f"{path}/{name}")


def create(serving: Serving, name: str, priority: str, *roles: Object, **spec: Any) -> None:
    serving.create(*roles, name=name, **{"priorityClassName": priority, "preemption": AT_ONCE, **spec})


def of(serving: Serving, name: str) -> list[Object]:
    """The live pods of a resource."""
    return serving.pods(inference=name)


def bound(serving: Serving, name: str) -> set[str]:
    """UIDs of its pods that have nodes."""
    return {uid_of(pod) for pod in of(serving, name) if node_of(pod)}


def test_one_surplus_replica_of_ten_gives_way(serving: Serving, nodes: AddNodes, classes: tuple[str, str]) -> None:
    """volcano#5984: one is needed, one goes; its successor waits behind its gate, and gets room when there is some."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=10)
    create(serving, "batch", spare, workers("decode", replicas=10, minReplicas=2))
    before = uids(serving.await_ready(10, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=1))
    serving.await_bound(1, inference="chat")
    eventually(lambda: len(of(serving, "batch")) == 10, 60, "the successor is there")
    assert len(bound(serving, "batch") & before) == 9
    assert serving.await_event("Preempted")
    message = serving.await_condition("Preempted", "True", "Preemption", "batch")
    assert "decode" in message
    root = serving.get("CompositePodGroup", "chat-0")
    eventually(lambda: "claim" not in serving.get("CompositePodGroup", "chat-0")["status"], 30, "the claim has ended")
    assert root["metadata"]["name"] == "chat-0"
    nodes(blocks=1, racks=1, nodes=1)
    serving.await_bound(10, inference="batch")


def test_a_unit_gives_way_whole_and_comes_back_whole(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    """kai#1579: never a part of a minimum; the unit is queued again and gets the room back."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=4)
    roles = (workers("prefill", replicas=1, size=2), workers("decode", replicas=2, minReplicas=2))
    create(serving, "batch", spare, *roles)
    before = uids(serving.await_ready(4, inference="batch"))
    with serving.cluster.record(serving.path("Pod")) as recording:
        create(serving, "chat", online, workers("decode", replicas=1))
        serving.await_bound(1, inference="chat")
        eventually(lambda: not uids(of(serving, "batch")) & before, 60, "all of the unit has gone")
        eventually(lambda: len(of(serving, "batch")) == 4, 60, "the unit waits again")
        assert not bound(serving, "batch")
        assert recording.events
    serving.delete("DisaggregatedInference", "chat")
    serving.await_bound(4, inference="batch")


def test_a_gang_takes_the_rack_where_the_least_is_in_its_way(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    """kueue#12478: two racks are full; the one with the surplus is taken, and the minimum in the other one stays."""
    spare, online = classes
    nodes(blocks=1, racks=2, nodes=3)
    create(serving, "first", spare, workers("decode", replicas=3, minReplicas=3), topology={"required": "rack"})
    kept = uids(serving.await_ready(3, inference="first"))
    create(serving, "second", spare, workers("decode", replicas=3, minReplicas=1), topology={"required": "rack"})
    serving.await_ready(3, inference="second")
    create(serving, "chat", online, workers("decode", replicas=2, minReplicas=2), topology={"required": "rack"})
    pods = serving.await_bound(2, inference="chat")
    assert len(serving.domains(pods, RACK)) == 1
    assert bound(serving, "first") == kept
    assert len(bound(serving, "second")) == 1


def test_a_beneficiary_that_is_deleted_pardons_who_drains(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    """Requests are in flight: the replica drains, and serves on when nobody needs its room any more."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=2)
    create(serving, "batch", spare, workers("decode", replicas=2, minReplicas=1, drainSeconds=300))
    before = uids(serving.await_ready(2, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=1))

    def drains() -> list[Object]:
        pods = [pod for pod in of(serving, "batch") if pod["metadata"]["labels"].get("covey.dev/draining") == "true"]
        assert len(pods) == 1
        return pods

    (victim,) = eventually(drains, 60, "one replica drains")
    assert "covey.dev/claimed-by" in victim["metadata"]["annotations"]
    assert bound(serving, "batch") == before
    serving.delete("DisaggregatedInference", "chat")
    eventually(
        lambda: not any("covey.dev/draining" in pod["metadata"]["labels"] for pod in of(serving, "batch")),
        60,
        "it is pardoned",
    )
    eventually(lambda: uids(of(serving, "batch")) == before, 60, "the successor goes again")
    assert label(victim, "role") == "decode"


def make_gang(serving: Serving, name: str, count: int, priority: str) -> None:
    """A PodGroup and its pods, as a controller of somebody else makes them."""
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{serving.namespace}/podgroups"
    spec = {
        "schedulingPolicy": {"gang": {"minCount": count}},
        "desiredCount": count,
        "priorityClassName": priority,
    }
    kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
    serving.cluster.api("POST", path, {**kind, "metadata": {"name": name}, "spec": spec})
    for number in range(count):
        body = {
            "metadata": {"name": f"{name}-{number}", "labels": {"scheduling.covey.dev/pod-group": name}},
            "spec": {
                "schedulerName": SCHEDULER,
                "schedulingGates": [{"name": GATE}],
                "priorityClassName": priority,
                "terminationGracePeriodSeconds": 0,
                "containers": [resources(8)],
            },
        }
        serving.cluster.api("POST", serving.path("Pod"), body)


def test_replicas_give_way_to_a_tree_of_another_controller(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str], covey_to_kill: Covey
) -> None:
    """Nothing of it has a label of the operator, which obeys its claim all the same, also after a restart."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=4)
    create(serving, "batch", spare, workers("decode", replicas=4, minReplicas=1, drainSeconds=5))
    before = uids(serving.await_ready(4, inference="batch"))
    make_gang(serving, "theirs", 2, online)
    eventually(
        lambda: serving.pods(draining="true"),
        150,
        "a replica drains, after the minute of trees that cannot say another delay",
    )
    covey_to_kill.operator.kill()
    covey_to_kill.operator.start()

    def placed() -> bool:
        found = [serving.cluster.api("GET", f"{serving.path('Pod')}/theirs-{number}") for number in range(2)]
        return all(map(node_of, found))

    eventually(placed, 90, "the tree has its places")
    assert len(bound(serving, "batch") & before) == 2
    message = serving.await_condition("Preempted", "True", "Preemption", "batch")
    assert f"gave way to {serving.namespace}/theirs" in message


def test_processes_that_are_killed_take_no_more_than_the_claim(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str], covey_to_kill: Covey
) -> None:
    """Killed at any moment between the claim and the last deletion: the same replica goes, and no other (L5)."""
    spare, online = classes
    nodes(blocks=1, racks=1, nodes=6)
    create(serving, "batch", spare, workers("decode", replicas=6, minReplicas=1, drainSeconds=5))
    before = uids(serving.await_ready(6, inference="batch"))
    create(serving, "chat", online, workers("decode", replicas=2, minReplicas=2))
    eventually(lambda: serving.get("CompositePodGroup", "chat-0")["status"].get("claim"), 60, "the claim is written")
    for process in (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.operator):
        process.kill()
        process.start()
    serving.await_bound(2, inference="chat")
    eventually(lambda: len(of(serving, "batch")) == 6, 60, "the successors are there")
    assert len(bound(serving, "batch") & before) == 4


def test_ordinary_pods_stay_unless_the_cluster_says_otherwise(
    serving: Serving, nodes: AddNodes, classes: tuple[str, str]
) -> None:
    """Pods of no gang give way only where a flag lets them."""
    (node,) = nodes(blocks=1, racks=1, nodes=1)
    serving.take_room(node)
    create(serving, "chat", classes[1], workers("decode", replicas=1))
    root = lambda: serving.get("CompositePodGroup", "chat-0")["status"]  # noqa: E731
    eventually(lambda: any(each["reason"] == "Infeasible" for each in root()["conditions"]), 60, "the gang is refused")
    assert "claim" not in root()
    serving.free_room(f"other-{node}")
    serving.await_bound(1, inference="chat")
