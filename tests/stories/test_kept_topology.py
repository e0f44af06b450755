"""What runs keeps the topology with which it was placed, whatever nodes join and whatever becomes the default."""

from __future__ import annotations

from typing import Any, Final

import pytest

from builders.manifests import Object, workers
from cluster.workbench import uid_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.play import BLOCK, RACK

CLIQUE: Final = {"nvidia.com/gpu.clique": "c0ffee00-0000-4000-8000-000000000001.1"}
HALL: Final = "example.com/hall"
TOPOLOGIES: Final = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"


def topology(stage: Stage, name: str, *, default: bool = True, **levels: str) -> None:
    """Have a ClusterTopology until the story ends, or change one."""
    body = {
        "metadata": {"name": name, "annotations": {"scheduling.covey.dev/default": "true" if default else None}},
        "spec": {"levels": [{"name": level, "keys": [key]} for level, key in levels.items()]},
    }
    kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology"}
    if ("", name) in stage.ground.record.objects["ClusterTopology"]:
        stage.cluster.api("PATCH", f"{TOPOLOGIES}/{name}", body)
    else:
        stage.cluster.api("POST", TOPOLOGIES, kind | body)
        stage.after(lambda: stage.cluster.kubectl("delete", "--ignore-not-found", "clustertopology", name))
    stage.settle()


def pair(**fields: Any) -> list[Object]:
    """Two roles of one pod each, each on a node of its own."""
    return [workers("prefill", **fields), workers("decode", **fields)]


def kept(stage: Stage, name: str = "llm") -> str:
    """The topology that the root of a resource tells, at rest."""
    stage.settle()
    return str(stage.get("CompositePodGroup", f"{name}-0").get("status", {}).get("topology", ""))


def join_without_racks(stage: Stage, number: int) -> None:
    """So many nodes join that most are in the clique already and have no labels of block and rack yet."""
    stage.nodes(nodes=number, prefix="bare-", labels={BLOCK: None, RACK: None, **CLIQUE})


def lose_a_pod(stage: Stage, name: str = "llm") -> Object:
    """A node of a resource goes; its pod."""
    pod = stage.pods(inference=name, role="decode")[0]
    stage.delete_nodes(node_of(pod))
    stage.settle()
    assert uid_of(pod) not in uids(stage.pods())
    return pod


def test_resource_when_nodes_with_half_of_the_labels_join_is_repaired_by_the_levels_it_was_placed_with(
    stage: Stage,
) -> None:
    stage.nodes(racks=2, nodes=6, labels=CLIQUE)
    stage.create(*pair(), name="racked", topology={"required": "rack"})
    stage.create(*pair(), name="blocked", topology={"required": "block"})
    stage.ready(4)
    rack = stage.domains(stage.pods(inference="racked"), RACK)
    assert kept(stage, "racked") == kept(stage, "blocked") == "kueue"
    join_without_racks(stage, 14)
    for name in ("racked", "blocked"):
        lose_a_pod(stage, name)
    stage.ready(4)
    assert stage.domains(stage.pods(inference="racked"), RACK) == rack
    assert ("",) not in stage.domains(stage.pods(), RACK)
    assert kept(stage, "racked") == "kueue"
    stage.create(workers("late"), name="late", topology={"required": "block"})
    stage.ready(1, inference="late")
    assert kept(stage, "late") == "kueue"


@pytest.mark.parametrize("first", ["kueue", "own"])
def test_resource_when_another_topology_becomes_the_default_keeps_its_own(stage: Stage, first: str) -> None:
    levels = {"block": BLOCK, "rack": RACK}
    if first == "own":
        topology(stage, "own", **levels)
    stage.nodes(nodes=4, labels={HALL: "east"})
    stage.create(*pair(), topology={"required": "rack"})
    rack = stage.domains(stage.ready(2), RACK)
    assert kept(stage) == first
    if first == "own":
        topology(stage, "own", default=False, **levels)
    topology(stage, "halls", hall=HALL)
    stage.create(workers("late"), name="late", topology={"required": "hall"})
    stage.ready(3)
    assert kept(stage, "late") == "halls"
    lose_a_pod(stage)
    stage.ready(3)
    assert stage.domains(stage.pods(inference="llm"), RACK) == rack
    assert kept(stage) == first
    stage.change(topology={"required": "hall"})
    stage.settle()
    status, reason, message = stage.condition("Stalled")
    assert (status, reason) == ("True", "InvalidTopology")
    assert f"level hall is not in topology {first}" in message
    stage.change(topology={"required": "block"})
    stage.settle()
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")


@pytest.mark.parametrize("release", ["this", "former"])
def test_resource_when_the_process_starts_anew_keeps_its_topology(stage: Stage, release: str) -> None:
    """A former release has written no topology on any status."""
    stage.nodes(nodes=4, labels=CLIQUE)
    stage.create(*pair(), topology={"required": "block"})
    rack = stage.domains(stage.ready(2), RACK)
    with stage.away("scheduler"):
        if release == "former":
            path = stage.path("CompositePodGroup", "llm-0")
            stage.cluster.api("PATCH", f"{path}/status", {"status": {"topology": None}})
        join_without_racks(stage, 6)
    assert kept(stage) == "kueue"
    lose_a_pod(stage)
    assert stage.domains(stage.ready(2), RACK) == rack


def test_resource_when_its_topology_is_deleted_stays_and_says_so_until_it_is_there_again(stage: Stage) -> None:
    topology(stage, "halls", hall=HALL)
    stage.nodes(nodes=4, labels={HALL: "east"})
    stage.create(*pair(), topology={"required": "hall"})
    before = stage.ready(2)
    stage.cluster.api("DELETE", f"{TOPOLOGIES}/halls")
    lose_a_pod(stage)
    _, reason, message = stage.condition("Admitted", "llm-0", of="CompositePodGroup")
    assert reason == "InvalidTopology"
    assert "topology halls, with which its pods were" in message
    _, reason, message = stage.condition("Stalled")
    assert reason == "InvalidTopology"
    assert "topology halls, with which units of it were placed, is gone" in message
    assert len(uids(stage.bound()) & uids(before)) == 1
    topology(stage, "halls", hall=HALL)
    stage.ready(2)
    assert kept(stage) == "halls"


def test_resource_when_its_topology_is_deleted_goes_on_with_one_that_means_the_same(stage: Stage) -> None:
    topology(stage, "own", zone="topology.kubernetes.io/zone", block=BLOCK, rack=RACK, host="kubernetes.io/hostname")
    stage.nodes(nodes=4, labels=CLIQUE)
    stage.create(*pair(), topology={"required": "block"})
    stage.ready(2)
    assert kept(stage) == "own"
    stage.cluster.api("DELETE", f"{TOPOLOGIES}/own")
    assert kept(stage) == "kueue"
    join_without_racks(stage, 6)
    lose_a_pod(stage)
    assert ("",) not in stage.domains(stage.ready(2), RACK)
