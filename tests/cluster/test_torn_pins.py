"""Pins that no single plan has made: the barrier holds them against what the gang requires before anybody is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localcluster import Cluster, eventually, request
from localcluster.programs import scheduler_config
from scheduler_trees import GATE, REQUIRED, Bench, Replacing, Role, labels_of, node_of, pin_of, states

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
RACK = "cloud.provider.com/topology-rack"
MARK = "scheduling.covey.dev/pinned"


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Iterator[Bench]:
    yield Bench(cluster, namespace)
    cluster.forget("kube-scheduler", "covey-scheduler")


def pin(bench: Bench, pod: Json, node: str) -> None:
    """Pin a pod as the scheduler process does, under its account: a plan of another writer, or of another time."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    patch = [
        {"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {REQUIRED: term}}},
        {"op": "add", "path": "/metadata/annotations", "value": {MARK: pod["metadata"]["uid"]}},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ]
    with bench.cluster.service_account_client("covey-system", "covey-scheduler") as client:
        request(client, "PATCH", f"{bench.pods_path}/{pod['metadata']['name']}", patch)


def test_a_gang_pinned_across_two_racks_is_planned_again_in_one(
    bench: Bench, nodes: AddNodes, cluster: Cluster
) -> None:
    names = nodes(racks=2, nodes=2)
    rack = labels_of(cluster, RACK)
    far = next(name for name in names if rack(name) != rack(names[0]))
    tree = bench.unit("torn", Role("decode", replicas=2, minimum=2), required="rack")
    first, second = tree.pods()
    pin(bench, first, names[0])
    pin(bench, second, far)
    with cluster.record(bench.pods_path) as recording, Replacing(tree) as replacing:
        process = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(process))
        tree.wait_bound()
        recording.check()
        for pods in states(recording.events):
            assert len({rack(node_of(pod)) for pod in pods.values() if node_of(pod)}) <= 1
    assert replacing.released == ["Conflict", "Conflict"]
    assert len({rack(node_of(pod)) for pod in tree.bound()}) == 1
    eventually(lambda: all(pin_of(pod) == node_of(pod) for pod in tree.pods()))
