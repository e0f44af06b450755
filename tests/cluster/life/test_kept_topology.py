"""What runs keeps the topology with which it was placed, whatever nodes join and whatever becomes the default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Serving, serving, workers
from cluster.workbench import uid_of
from localcluster import Cluster, eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

CLIQUE = {"nvidia.com/gpu.clique": "c0ffee00-0000-4000-8000-000000000001.1"}
HALL = "example.com/hall"
TOPOLOGIES = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
Topologies = Callable[..., None]


@pytest.fixture
def topologies(cluster: Cluster) -> Iterator[Topologies]:
    """``topologies(name, default=True, level=key, …)``: makes a ClusterTopology, or changes one; all go at the end."""
    made = set()

    def there() -> set[str]:
        return {item["metadata"]["name"] for item in cluster.api("GET", TOPOLOGIES)["items"]}

    def put(name: str, *, default: bool = True, **levels: str) -> None:
        body = {
            "metadata": {"name": name, "annotations": {"scheduling.covey.dev/default": "true" if default else None}},
            "spec": {"levels": [{"name": level, "keys": [key]} for level, key in levels.items()]},
        }
        if name in there():
            cluster.api("PATCH", f"{TOPOLOGIES}/{name}", body)
        else:
            made.add(name)
            kind = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology"}
            cluster.api("POST", TOPOLOGIES, kind | body)

    yield put
    for name in made & there():
        cluster.api("DELETE", f"{TOPOLOGIES}/{name}")


def pair(**fields: Any) -> list[Object]:
    """Two roles of one pod each, each on a node of its own."""
    return [workers("prefill", **fields), workers("decode", **fields)]


def kept(serving: Serving, name: str = "llm") -> str:
    """The topology that the root of a resource tells."""
    return serving.get("CompositePodGroup", f"{name}-0").get("status", {}).get("topology", "")


def join_without_racks(nodes: AddNodes, number: int) -> None:
    """So many nodes join that most are in the clique already and have no labels of block and rack yet."""
    nodes(nodes=number, labels={BLOCK: None, RACK: None, **CLIQUE})


def lose_a_pod(serving: Serving, name: str = "llm") -> None:
    """A node of a resource goes."""
    victim = serving.pods(inference=name, role="decode")[0]
    serving.cluster.delete_nodes([node_of(victim)])
    eventually(lambda: uid_of(victim) not in map(uid_of, serving.pods()), 60, "the pod is given up")


def test_what_runs_when_nodes_with_half_of_the_labels_join_then_is_repaired_by_the_levels_it_was_placed_with(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(racks=2, nodes=6, labels=CLIQUE)
    serving.create(*pair(), name="racked", topology={"required": "rack"})
    serving.create(*pair(), name="blocked", topology={"required": "block"})
    rack = serving.domains(serving.await_ready(2, inference="racked"), RACK)
    serving.await_ready(2, inference="blocked")
    assert kept(serving, "racked") == kept(serving, "blocked") == "kueue"

    join_without_racks(nodes, 14)
    for name in ("racked", "blocked"):
        lose_a_pod(serving, name)
        serving.await_ready(2, inference=name)
    assert serving.domains(serving.pods(inference="racked"), RACK) == rack
    assert ("",) not in serving.domains(serving.pods(), RACK)
    assert kept(serving, "racked") == "kueue"

    serving.create(workers("late"), name="late", topology={"required": "block"})
    serving.await_ready(1, inference="late")
    assert kept(serving, "late") == "kueue"


@pytest.mark.parametrize("first", ["kueue", "own"])
def test_what_runs_when_another_topology_becomes_the_default_then_keeps_its_own(
    serving: Serving, nodes: AddNodes, topologies: Topologies, first: str
) -> None:
    levels = {"block": BLOCK, "rack": RACK}
    if first == "own":
        topologies("own", **levels)
    nodes(racks=1, nodes=4, labels={HALL: "east"})
    serving.create(*pair(), topology={"required": "rack"})
    rack = serving.domains(serving.await_ready(2), RACK)
    assert kept(serving) == first

    if first == "own":
        topologies("own", default=False, **levels)
    topologies("halls", hall=HALL)
    serving.create(workers("late"), name="late", topology={"required": "hall"})
    serving.await_ready(1, inference="late")
    assert kept(serving, "late") == "halls"
    nodes(nodes=2, labels={HALL: "east"})
    lose_a_pod(serving)
    assert serving.domains(serving.await_ready(2, inference="llm"), RACK) == rack
    assert kept(serving) == first

    serving.change({"topology": {"required": "hall"}})
    said = serving.await_condition("Stalled", "True", "InvalidTopology")
    assert f"level hall is not in topology {first}" in said
    serving.change({"topology": {"required": "block"}})
    serving.await_condition("MinimumMet", "True", "MinimumMet")


@pytest.mark.parametrize("release", ["this", "former"])
def test_what_runs_when_the_process_starts_anew_then_keeps_its_topology(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey, release: str
) -> None:
    """A former release has written no topology on any status."""
    nodes(racks=1, nodes=4, labels=CLIQUE)
    serving.create(*pair(), topology={"required": "block"})
    rack = serving.domains(serving.await_ready(2), RACK)
    covey_to_kill.scheduler.kill()
    if release == "former":
        path = serving.path("CompositePodGroup", "llm-0")
        serving.cluster.api("PATCH", f"{path}/status", {"status": {"topology": None}})
        assert kept(serving) == ""
    join_without_racks(nodes, 6)
    covey_to_kill.scheduler.start()
    eventually(lambda: kept(serving) == "kueue", 60, "the root tells the topology")
    lose_a_pod(serving)
    assert serving.domains(serving.await_ready(2), RACK) == rack


def test_what_runs_when_its_topology_is_deleted_then_stays_and_says_so_until_it_is_there_again(
    serving: Serving, nodes: AddNodes, topologies: Topologies
) -> None:
    topologies("halls", hall=HALL)
    nodes(racks=1, nodes=4, labels={HALL: "east"})
    serving.create(*pair(), topology={"required": "hall"})
    before = serving.await_ready(2)
    serving.cluster.api("DELETE", f"{TOPOLOGIES}/halls")
    lose_a_pod(serving)

    def told() -> bool:
        root = serving.get("CompositePodGroup", "llm-0")["status"]
        [said] = [item for item in root["conditions"] if item["type"] == "Admitted"]
        return said["reason"] == "InvalidTopology" and "topology halls, with which its pods were" in said["message"]

    eventually(told, 60, "the root says that its topology is gone")
    said = serving.await_condition("Stalled", "True", "InvalidTopology")
    assert "topology halls, with which units of it were placed, is gone" in said
    assert len([pod for pod in serving.bound() if uid_of(pod) in set(map(uid_of, before))]) == 1

    topologies("halls", hall=HALL)
    serving.await_ready(2)
    assert kept(serving) == "halls"


def test_what_runs_when_its_topology_is_deleted_then_goes_on_with_one_that_means_the_same(
    serving: Serving, nodes: AddNodes, topologies: Topologies
) -> None:
    topologies("own", zone="topology.kubernetes.io/zone", block=BLOCK, rack=RACK, host="kubernetes.io/hostname")
    nodes(racks=1, nodes=4, labels=CLIQUE)
    serving.create(*pair(), topology={"required": "block"})
    serving.await_ready(2)
    assert kept(serving) == "own"
    serving.cluster.api("DELETE", f"{TOPOLOGIES}/own")
    eventually(lambda: kept(serving) == "kueue", 60, "it goes on with the preset")
    join_without_racks(nodes, 6)
    lose_a_pod(serving)
    assert ("",) not in serving.domains(serving.await_ready(2), RACK)
