"""Whole minimums or nothing, minimums before surplus, required levels, and why not: on a real kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scheduler_trees import Bench, Role, Tree, by_replica, gates_of, labels_of, node_of, pin_of, role_of, states

from localcluster import Cluster, eventually
from localcluster.programs import scheduler_config

RACK = "cloud.provider.com/topology-rack"
BLOCK = "cloud.provider.com/topology-block"
AddNodes = Callable[..., list[str]]


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster) -> Iterator[None]:
    """The scheduler process and a kube-scheduler with the configuration that it prints; no operator."""
    process = cluster.start_covey("scheduler")
    cluster.start_scheduler(scheduler_config(process))
    yield
    cluster.forget("kube-scheduler", "covey-scheduler")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def never_partial(tree: Tree, events: list[tuple[str, Any]]) -> None:
    """At the moment a first pod of a replica was bound, all pods of its gang had their pins."""
    for pods in states(events):
        mine = [pod for pod in pods.values() if pod["metadata"]["labels"].get("covey.dev/unit") is not None]
        for replica in by_replica(mine).values():
            if any(node_of(pod) for pod in replica):
                assert all(node_of(pod) or pin_of(pod) for pod in replica), tree.name


def test_a_gang_is_planned_pinned_held_and_bound(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(blocks=2, racks=2, nodes=4)
    with cluster.record(bench.pods_path) as recording:
        tree = bench.unit(
            "one",
            Role("prefill", replicas=2, minimum=1, size=2, required="rack"),
            Role("decode", replicas=1, minimum=1, size=3, required="rack"),
            required="block",
        )
        pods = tree.wait_bound()
        recording.check()
        never_partial(tree, recording.events)
    block, rack = labels_of(cluster, BLOCK), labels_of(cluster, RACK)
    assert len({block(node_of(pod)) for pod in pods}) == 1
    for replica in by_replica(pods).values():
        assert len({rack(node_of(pod)) for pod in replica}) == 1
    for pod in pods:
        assert pin_of(pod) == node_of(pod)
        assert pod["metadata"]["labels"]["topology.covey.dev/rack"] == rack(node_of(pod))
        assert pod["metadata"]["labels"]["topology.covey.dev/block"] == block(node_of(pod))
    admitted = eventually(lambda: (found := bench.condition("one")).get("status") == "True" and found)
    assert admitted["reason"] == "Admitted"
    eventually(lambda: bench.condition("one", "Scheduled").get("status") == "True")
    placement = bench.group("one")["status"]["placement"]
    assert {each["level"] for each in placement} == {"zone", "block"}
    assert placement[-1]["path"][-1] == block(node_of(pods[0]))
