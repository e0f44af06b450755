"""A gang whose pods have volumes on certain nodes goes there, and nowhere first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localcluster import Cluster, Process, eventually
from scheduler_trees import Bench, Replacing, Role, node_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Iterator[Bench]:
    yield Bench(cluster, namespace)
    cluster.kubectl("delete", "persistentvolume", f"disk-{namespace}", "--ignore-not-found", "--wait=false")


def disk(bench: Bench, node: str) -> Json:
    """A disk of one node, bound to a claim; what a pod's spec needs to use it."""
    name, terms = f"disk-{bench.namespace}", {"storageClassName": "", "accessModes": ["ReadWriteOnce"]}
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec = terms | {
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        "claimRef": {"kind": "PersistentVolumeClaim", "name": "disk", "namespace": bench.namespace},
    }
    bench.cluster.api("POST", VOLUMES, {"metadata": {"name": name}, "spec": spec})
    claims = f"/api/v1/namespaces/{bench.namespace}/persistentvolumeclaims"
    wanted = terms | {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    bench.cluster.api("POST", claims, {"metadata": {"name": "disk"}, "spec": wanted})
    eventually(lambda: bench.cluster.api("GET", f"{claims}/disk")["status"]["phase"] == "Bound", 60)
    return {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]}


@pytest.mark.parametrize("which", [0, 3])
def test_a_gang_is_planned_where_its_disk_is(bench: Bench, nodes: AddNodes, scheduler: Process, which: int) -> None:
    assert scheduler.alive
    names = nodes(nodes=4)
    tree = bench.unit("tied", Role("decode", spec=disk(bench, names[which])))
    with Replacing(tree) as replacing:
        [bound] = tree.wait_bound()
    assert node_of(bound) == names[which]
    assert replacing.released == []
