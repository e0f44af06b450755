"""Whole minimums or nothing, minimums before surplus, required levels, and why not."""

from __future__ import annotations

import pytest

from builders.manifests import Object, workers
from cluster.workbench import label, name_of
from scheduler_trees import Bench, Role, gates_of, node_of, pin_of
from stage import Stage
from stage.play import BLOCK, RACK, by_replica

TOPOLOGIES = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"


def test_gang_when_there_is_room_is_planned_pinned_and_bound(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=2, nodes=4)
    stage.create(
        workers("prefill", replicas=2, size=2, topology={"required": "rack"}),
        workers("decode", size=3, topology={"required": "rack"}),
        topology={"required": "block"},
    )
    pods = stage.ready(7)
    assert len(stage.domains(pods, BLOCK)) == 1
    for replica in by_replica(pods).values():
        assert len(stage.domains(replica, RACK)) == 1
    for pod in pods:
        assert pin_of(pod) == node_of(pod)
        assert stage.domains([pod], BLOCK, RACK) == {
            (
                pod["metadata"]["annotations"]["topology.covey.dev/block"],
                pod["metadata"]["annotations"]["topology.covey.dev/rack"],
            )
        }
    for condition in ("Admitted", "Scheduled"):
        assert stage.condition(condition, "llm-0", of="CompositePodGroup")[:2] == ("True", condition)
    placement = stage.get("CompositePodGroup", "llm-0")["status"]["placement"]
    assert {item["level"] for item in placement} == {"zone", "block"}
    assert stage.domains(pods, BLOCK) == {(placement[-1]["path"][-1],)}


def test_gang_when_one_role_has_no_room_starts_nothing_and_names_the_shortage(stage: Stage) -> None:
    stage.nodes(nodes=3)
    stage.create(workers("prefill", size=2), workers("decode", size=3))
    assert "nvidia.com/gpu" in stage.refusal()
    assert not stage.bound()
    stage.nodes(nodes=5)
    stage.ready(5)


def test_gang_when_room_is_freed_starts(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    other = stage.occupy(node)
    stage.create(workers("decode"))
    stage.refusal()
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="llm")


def test_surplus_when_another_gang_waits_comes_after_both_minimums(stage: Stage) -> None:
    stage.nodes(nodes=5)
    roles = [workers(name, replicas=2, minReplicas=1) for name in ("prefill", "decode")]
    # The scheduler process must see both at once: alone, the first would rightly take its surplus.
    with stage.away("scheduler"):
        for name in ("first", "second"):
            stage.create(*roles, name=name)
        stage.settle()
    stage.settle()
    assert [label(pod, "replica") for pod in first_pinned(stage)] == ["0", "0", "0", "0", "1"]
    for name in ("first", "second"):
        assert {label(pod, "role") for pod in stage.bound(inference=name)} == {"prefill", "decode"}


def first_pinned(stage: Stage) -> list[Object]:
    """The pods in the order in which they got their places."""
    order: dict[str, Object] = {}
    for event in stage.history("Pod"):
        if event.change != "DELETED" and pin_of(event.object):
            order.setdefault(name_of(event.object), event.object)
    return list(order.values())


def test_surplus_waits_until_the_minimum_is_bound(stage: Stage) -> None:
    """That it does is one of the laws (``minimum first``); here is a surplus of both kinds for it to judge."""
    stage.nodes(nodes=6)
    stage.create(workers("prefill", replicas=3, minReplicas=1), workers("decode", replicas=2, minReplicas=2))
    stage.ready(5)
    pinned = [(label(pod, "role"), label(pod, "replica")) for pod in first_pinned(stage)]
    assert set(pinned[:3]) == {("prefill", "0"), ("decode", "0"), ("decode", "1")}


def test_surplus_when_room_is_for_a_part_of_a_replica_comes_by_whole_replicas(stage: Stage) -> None:
    stage.nodes(nodes=5)
    stage.create(workers("decode", replicas=3, minReplicas=1, size=2))
    stage.settle()
    assert [len(pods) for pods in by_replica(stage.bound()).values()] == [2, 2]
    stage.nodes(nodes=6)
    stage.ready(6)


def test_racks_of_equal_names_under_two_blocks_are_two_racks(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=1, nodes=2, local_racks=True)
    stage.create(workers("decode", size=3, topology={"required": "rack"}), name="split")
    assert "rack" in stage.refusal("split")
    stage.create(workers("decode", size=2, topology={"required": "rack"}), name="fits", topology={"required": "block"})
    assert len(stage.domains(stage.ready(2, inference="fits"), BLOCK)) == 1


def test_nodes_without_a_rack_count_for_their_block_only(stage: Stage) -> None:
    stage.nodes(nodes=3, labels={RACK: None})
    stage.create(workers("decode", size=2, topology={"required": "rack"}), name="racked")
    stage.refusal("racked")
    stage.create(workers("decode", size=3), name="blocked", topology={"required": "block"})
    pods = stage.ready(3, inference="blocked")
    for pod in pods:
        assert "topology.covey.dev/rack" not in pod["metadata"]["annotations"]
        assert {(pod["metadata"]["annotations"]["topology.covey.dev/block"],)} == stage.domains([pod], BLOCK)


def test_gang_of_higher_priority_when_both_wait_goes_first(stage: Stage) -> None:
    [node] = stage.nodes(nodes=1)
    urgent = stage.priority_class("urgent", 1000)
    other = stage.occupy(node)
    stage.create(workers("decode"), name="low")
    stage.refusal("low")
    stage.create(workers("decode"), name="high", priorityClassName=urgent)
    stage.refusal("high")
    stage.delete("Pod", other, grace=0)
    stage.ready(1, inference="high")
    assert not stage.bound(inference="low")


def test_level_when_the_topology_has_none_of_that_name_is_invalid(stage: Stage) -> None:
    stage.nodes(nodes=1)
    stage.create(workers("decode"), topology={"required": "spine"})
    assert "spine" in stage.refusal(reason="InvalidTopology")


def test_topology_when_several_are_there_and_none_is_marked_is_refused(stage: Stage) -> None:
    stage.nodes(nodes=2)
    for name in ("a", "b"):
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name}}
        stage.cluster.api("POST", TOPOLOGIES, body | {"spec": {"levels": [{"name": "rack", "keys": [RACK]}]}})
        stage.after(lambda name=name: stage.cluster.delete(f"{TOPOLOGIES}/{name}"))
    stage.create(workers("decode"), name="which")
    assert "a" in stage.refusal("which", "InvalidTopology")
    stage.create(workers("decode"), name="that", topology={"name": "b"})
    stage.ready(1, inference="that")
    mark = {"metadata": {"annotations": {"scheduling.covey.dev/default": "true"}}}
    stage.cluster.api("PATCH", f"{TOPOLOGIES}/a", mark)
    stage.ready(1, inference="which")


@pytest.fixture
def bench(stage: Stage) -> Bench:
    """Groups and pods made by hand, as another controller would."""
    return Bench(stage.cluster, stage.namespace)


def refusal_of(stage: Stage, root: str) -> tuple[str, str]:
    """Reason and message with which a root is not admitted, at rest."""
    stage.settle()
    status, reason, message = stage.condition("Admitted", root, of="CompositePodGroup")
    assert status == "False"
    return reason, message


def test_pods_that_others_gate_hold_their_gang_and_are_named(stage: Stage, bench: Bench) -> None:
    stage.nodes(nodes=3)
    gates = ("example.com/quota", "scheduling.covey.dev/gang")
    bench.unit("foreign", Role("prefill"), Role("decode", gates=gates))
    reason, message = refusal_of(stage, "foreign")
    assert reason == "Waiting"
    assert "example.com/quota" in message
    assert all(map(gates_of, stage.pods()))
    [pod] = stage.pods(role="decode")
    stage.patch("Pod", name_of(pod), [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    stage.ready(2)


def test_gang_when_a_pod_is_missing_waits_whole(stage: Stage, bench: Bench) -> None:
    stage.nodes(nodes=3)
    tree = bench.unit("late", Role("decode", size=3), pods=False)
    tree.create(tree.manifests[:2])
    reason, message = refusal_of(stage, "late")
    assert reason == "Waiting"
    assert "2 of 3 pods" in message
    assert not stage.bound()
    tree.create(tree.manifests[2:])
    stage.ready(3)


def test_domain_is_chosen_with_the_surplus_in_view(stage: Stage) -> None:
    stage.nodes(blocks=1, racks=1, nodes=2, prefix="small-")
    stage.nodes(blocks=1, racks=1, nodes=4, prefix="large-")
    stage.create(workers("decode", replicas=4, minReplicas=1), topology={"required": "block"})
    assert len(stage.domains(stage.ready(4), BLOCK)) == 1


def test_units_when_spread_over_fewer_domains_than_units_leave_one_waiting(stage: Stage) -> None:
    stage.nodes(blocks=2, nodes=4)
    spread = {"level": "block", "mode": "Required", "maxPerDomain": 1}
    stage.create(workers("decode"), replicas=3, spread=spread, topology={"required": "block"})
    stage.settle()
    pods = stage.bound()
    assert len(pods) == 2
    assert len(stage.domains(pods, BLOCK)) == 2
    [left] = {"0", "1", "2"} - {label(pod, "unit") for pod in pods}
    assert refusal_of(stage, f"llm-{left}")[0] == "Infeasible"
