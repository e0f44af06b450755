"""A tree of groups as somebody else writes it, without a label of the operator's, on a real kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcluster import Cluster, eventually
from scheduler_trees import GATE, SCHEDULER, Bench, labels_of, node_of, resources

RACK = "cloud.provider.com/topology-rack"
GROUP = "scheduling.covey.dev/pod-group"
Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("scheduler")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def group(
    bench: Bench, owner: Json, name: str, count: int, parent: str | None = None, level: str | None = None
) -> None:
    """A group; one with a child's parent that is a leaf has ``minCount``."""
    leaf = parent is not None and parent != "tree"
    spec: Json = {"schedulingPolicy": {"gang": {"minCount" if leaf else "minGroupCount": count}}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if level:
        spec["schedulingConstraints"] = {"topology": [{"level": level, "mode": "Required"}]}
    plural, kind = ("podgroups", "PodGroup") if leaf else ("compositepodgroups", "CompositePodGroup")
    bench._group(plural, kind, name, spec, owner, {})


def pod(bench: Bench, owner: Json, leaf: str, number: int) -> None:
    """A gated pod of a leaf."""
    body = {
        "metadata": {
            "name": f"{leaf}-{number}",
            "labels": {GROUP: leaf, "app": "stranger"},
            "ownerReferences": [owner],
        },
        "spec": {
            "schedulerName": SCHEDULER,
            "schedulingGates": [{"name": GATE}],
            "containers": [resources(8)],
            "terminationGracePeriodSeconds": 0,
        },
    }
    bench.cluster.api("POST", bench.pods_path, body)


def bound(bench: Bench) -> dict[str, str]:
    """Node by pod, of those that have one."""
    return {each["metadata"]["name"]: node_of(each) for each in bench.all() if node_of(each)}


def test_an_inner_level_and_some_of_several_groups_hold_now_and_later(
    bench: Bench, nodes: Callable[..., list[str]], cluster: Cluster
) -> None:
    nodes(racks=2, nodes=5)
    owner = bench.workload("tree")
    group(bench, owner, "tree", 1)
    group(bench, owner, "decode", 2, "tree", "rack")
    for leaf in ("d0", "d1", "d2"):
        group(bench, owner, leaf, 2, "decode")
        for number in range(3):
            pod(bench, owner, leaf, number)
    eventually(lambda: len(bound(bench)) == 5, 60, lambda: f"{bound(bench)} {bench.condition('tree')}")
    rack = labels_of(cluster, RACK)
    places = bound(bench)
    assert len({rack(node) for node in places.values()}) == 1
    whole = [leaf for leaf in ("d0", "d1", "d2") if sum(name.startswith(leaf) for name in places) >= 2]
    assert len(whole) == 2, "two of the groups are the minimum, and of the third nothing comes without its own"
    eventually(lambda: bench.condition("tree").get("status") == "True")

    lost = next(name for name in sorted(places) if name.startswith(whole[0]))
    bench.delete(lost)
    eventually(lambda: lost not in {each["metadata"]["name"] for each in bench.all()})
    pod(bench, owner, whole[0], 7)
    eventually(lambda: len(bound(bench)) == 5, 60, lambda: f"{bound(bench)} {bench.condition('tree')}")
    assert {rack(node) for node in bound(bench).values()} == {rack(node) for node in places.values()}
