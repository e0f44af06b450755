"""A PodGroup alone with ``basic`` policy: each of its pods goes when there is room for it, on a real kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcluster import Cluster, eventually
from scheduler_trees import GATE, GROUP, SCHEDULER, Bench, node_of, pin_of, resources

AddNodes = Callable[..., list[str]]
pytestmark = pytest.mark.usefixtures("scheduler")
Json = dict[str, Any]


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def test_its_pods_go_one_by_one(bench: Bench, nodes: AddNodes) -> None:
    [first] = nodes(nodes=1)
    owner = bench.workload("lone")
    body = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "lone", "ownerReferences": [owner]},
        "spec": {"schedulingPolicy": {"basic": {}}, "desiredCount": 2},
    }
    bench.cluster.api("POST", GROUP.format(bench.namespace, "podgroups"), body)
    for name in ("a", "b"):
        pod = {
            "metadata": {
                "name": name,
                "labels": {"scheduling.covey.dev/pod-group": "lone"},
                "ownerReferences": [owner],
            },
            "spec": {
                "schedulerName": SCHEDULER,
                "schedulingGates": [{"name": GATE}],
                "containers": [resources(8)],
            },
        }
        bench.cluster.api("POST", bench.pods_path, pod)

    def bound() -> list[Json]:
        return [pod for pod in bench.all() if node_of(pod)]

    [one] = eventually(bound)
    assert pin_of(one) == node_of(one) == first

    def counts() -> bool:
        status = bench.group("lone", "podgroups").get("status", {})
        return (status.get("admitted"), status.get("scheduled")) == (1, 1)

    eventually(counts)
    nodes(nodes=1)
    eventually(lambda: len(bound()) == 2)
