"""What a tenant writes on a pod gives it no room and no turn, also where no admission policy stands before it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from localcluster import Cluster, Process, eventually
from scheduler_trees import GATE, REQUIRED, Bench, Role, node_of, pin_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
LABEL = "scheduling.covey.dev/pod-group"
MARK = "scheduling.covey.dev/pinned"


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def named(node: str) -> Json:
    """Node affinity as a DaemonSet's pods have it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


def forge(bench: Bench, node: str, metadata: Json | None = None, **spec: Any) -> Json:
    """A pod that names a node and asks for all of it; it waits for a scheduler that never comes."""
    body = {
        "metadata": {"name": "forged"} | (metadata or {}),
        "spec": {
            "schedulerName": "nobody",
            "affinity": named(node),
            "containers": [
                {
                    "name": "main",
                    "image": "registry.invalid/none",
                    "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}},
                }
            ],
        }
        | spec,
    }
    return bench.cluster.api("POST", bench.pods_path, body)


@pytest.mark.parametrize(
    ("labelled", "owned", "gated", "marked"),
    [
        pytest.param(False, False, False, False, id="a stranger, as of a DaemonSet"),
        pytest.param(False, False, True, False, id="a stranger, gated"),
        pytest.param(True, False, False, False, id="with the gang's label, of no owner"),
        pytest.param(True, False, False, True, id="the same, with a mark copied from elsewhere"),
        pytest.param(True, False, True, False, id="with the gang's label, gated"),
        pytest.param(True, True, False, False, id="with the gang's label and another owner"),
    ],
)
def test_a_pod_that_names_a_node_holds_nothing_there(
    bench: Bench,
    nodes: AddNodes,
    scheduler: Process,
    labelled: bool,  # noqa: FBT001 - a case
    owned: bool,  # noqa: FBT001 - a case
    gated: bool,  # noqa: FBT001 - a case
    marked: bool,  # noqa: FBT001 - a case
) -> None:
    assert scheduler.alive
    [node] = nodes(nodes=1)
    metadata: Json = {"labels": {LABEL: "real-decode"}} if labelled else {}
    if owned:
        metadata["ownerReferences"] = [bench.workload("somebody")]
    if marked:
        metadata["annotations"] = {MARK: "5c2f2a7e-0000-4000-8000-000000000000"}
    forge(bench, node, metadata, **({"schedulingGates": [{"name": GATE}]} if gated else {}))
    [bound] = bench.unit("real", Role("decode")).wait_bound()
    assert node_of(bound) == node
    assert bound["metadata"]["annotations"][MARK] == bound["metadata"]["uid"]


def test_a_member_that_pins_itself_is_not_bound_and_skips_nothing(
    bench: Bench, nodes: AddNodes, scheduler: Process
) -> None:
    [node] = nodes(nodes=1)
    tree = bench.unit("sly", Role("decode", spec={"affinity": named(node)}, gates=()), pods=False)
    tree.create()
    [own] = tree.pods()
    name = own["metadata"]["name"]

    def told() -> str:
        conditions = bench.get(name).get("status", {}).get("conditions", [])
        return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), "")

    eventually(lambda: "has no scheduling gate" in told(), 30, told)
    assert f"{name} lost its scheduling gate without a decision" in tree.wait_refused("Waiting")
    # Nor by a call that says that it comes from kube-scheduler.
    body = {"PodName": name, "PodNamespace": bench.namespace, "PodUID": own["metadata"]["uid"], "Node": node}
    asked = urllib.request.Request(f"{scheduler.url}/barrier/bind", json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert "has no scheduling gate" in json.load(answer)["Error"]
    # The node is free for who waits his turn.
    [bound] = bench.unit("honest", Role("decode")).wait_bound()
    assert node_of(bound) == node
    assert not node_of(bench.get(name))


def test_a_group_that_is_deleted_by_hand_gives_its_pins_room_back(
    bench: Bench, nodes: AddNodes, scheduler: Process, cluster: Cluster
) -> None:
    assert scheduler.alive
    [node] = nodes(nodes=1)
    # No kube-scheduler takes it: it stays pinned.
    tree = bench.unit("first", Role("decode", gates=("scheduling.covey.dev/gang", "scheduling.covey.dev/start")))
    eventually(lambda: pin_of(tree.pods()[0]) == node)
    second = bench.unit("second", Role("decode"))
    assert "8 more nvidia.com/gpu" in second.wait_refused()
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{bench.namespace}/podgroups/first-decode"
    cluster.api("DELETE", path)
    [bound] = second.wait_bound()
    assert node_of(bound) == node
