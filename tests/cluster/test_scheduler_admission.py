"""Whole minimums or nothing, minimums before surplus, required levels, and why not: on a real kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localcluster import Cluster, Process, eventually
from scheduler_trees import Bench, Role, Tree, by_replica, gates_of, labels_of, node_of, pin_of, role_of, states

RACK = "cloud.provider.com/topology-rack"
BLOCK = "cloud.provider.com/topology-block"
AddNodes = Callable[..., list[str]]
pytestmark = pytest.mark.usefixtures("scheduler")


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
        assert pod["metadata"]["annotations"]["topology.covey.dev/rack"] == rack(node_of(pod))
        assert pod["metadata"]["annotations"]["topology.covey.dev/block"] == block(node_of(pod))
    admitted = eventually(lambda: (found := bench.condition("one")).get("status") == "True" and found)
    assert admitted["reason"] == "Admitted"
    eventually(lambda: bench.condition("one", "Scheduled").get("status") == "True")
    placement = bench.group("one")["status"]["placement"]
    assert {each["level"] for each in placement} == {"zone", "block"}
    assert placement[-1]["path"][-1] == block(node_of(pods[0]))


def test_capacity_for_one_role_only_starts_nothing_and_names_the_shortage(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=3)
    tree = bench.unit("short", Role("prefill", minimum=1, size=2), Role("decode", minimum=1, size=3))
    message = tree.wait_refused()
    assert "nvidia.com/gpu" in message
    assert not tree.bound()
    assert all(gates_of(pod) for pod in tree.pods())

    nodes(nodes=2)
    tree.wait_bound()


def test_freed_room_wakes_the_gang_that_fits(bench: Bench, nodes: AddNodes) -> None:
    [node] = nodes(nodes=1)
    bench.pod("occupant", node=node)
    tree = bench.unit("waiting", Role("decode", minimum=1))
    tree.wait_refused()
    bench.delete("occupant")
    tree.wait_bound()


def test_both_minimums_come_before_any_surplus(bench: Bench, nodes: AddNodes, scheduler: Process) -> None:
    nodes(nodes=5)
    roles = (Role("prefill", replicas=2, minimum=1), Role("decode", replicas=2, minimum=1))
    with bench.cluster.record(bench.pods_path) as recording:
        # It must see both at once: alone, the first would rightly take its surplus.
        scheduler.stop()
        try:
            trees = [bench.unit(name, *roles) for name in ("first", "second")]
        finally:
            scheduler.start()
        recording.wait(lambda events: len({pod["metadata"]["uid"] for _, pod in events if node_of(pod)}) == 5, 60)
        order = first_pinned(recording.events)
    surplus = [position for position, (_, replica) in enumerate(order) if replica == "1"]
    assert surplus == [4]
    for tree in trees:
        assert {role_of(pod) for pod in tree.bound()} == {"prefill", "decode"}


def first_pinned(events: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Name and replica of the pods in the order in which they got their places."""
    order: dict[str, str] = {}
    for kind, pod in events:
        if kind != "DELETED" and pin_of(pod):
            order.setdefault(pod["metadata"]["name"], pod["metadata"]["labels"]["covey.dev/replica"])
    return list(order.items())


def test_surplus_waits_until_the_minimum_is_bound(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=6)
    with bench.cluster.record(bench.pods_path) as recording:
        tree = bench.unit("grow", Role("prefill", replicas=3, minimum=1), Role("decode", replicas=2, minimum=2))
        tree.wait_bound()
        recording.check()
        for pods in states(recording.events):
            minimum = [pod for pod in pods.values() if replica_of(pod) == "0" or role_of(pod) == "decode"]
            if any(pin_of(pod) for pod in pods.values() if pod not in minimum):
                assert all(node_of(pod) for pod in minimum)


def replica_of(pod: Any) -> str:
    return str(pod["metadata"]["labels"]["covey.dev/replica"])


def test_surplus_comes_by_whole_replicas(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=5)
    tree = bench.unit("whole", Role("decode", replicas=3, minimum=1, size=2))
    tree.wait_bound(4)
    assert all(len(replica) == 2 for replica in by_replica(tree.bound()).values())
    nodes(nodes=1)
    tree.wait_bound(6)


def test_equal_rack_names_under_two_blocks_are_two_racks(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(blocks=2, racks=1, nodes=2, local_racks=True)
    tree = bench.unit("split", Role("decode", minimum=1, size=3, required="rack"))
    assert "rack" in tree.wait_refused()
    fitting = bench.unit("fits", Role("decode", minimum=1, size=2, required="rack"), required="block")
    pods = fitting.wait_bound()
    assert len({labels_of(cluster, BLOCK)(node_of(pod)) for pod in pods}) == 1


def test_nodes_without_a_rack_count_for_their_block_only(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(nodes=3, labels={RACK: None})
    in_rack = bench.unit("racked", Role("decode", minimum=1, size=2, required="rack"))
    in_rack.wait_refused()
    pods = bench.unit("blocked", Role("decode", minimum=1, size=3), required="block").wait_bound()
    assert "topology.covey.dev/rack" not in pods[0]["metadata"]["annotations"]
    assert pods[0]["metadata"]["annotations"]["topology.covey.dev/block"] == labels_of(cluster, BLOCK)(node_of(pods[0]))


def test_the_higher_priority_goes_first(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    [node] = nodes(nodes=1)
    name = f"high-{bench.namespace}"
    priority = {"metadata": {"name": name}, "value": 1000}
    cluster.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    try:
        bench.pod("occupant", node=node)
        low = bench.unit("low", Role("decode"))
        low.wait_refused()
        high = bench.unit("high", Role("decode"), priority_class=name)
        high.wait_refused()
        bench.delete("occupant")
        high.wait_bound()
        assert not low.bound()
    finally:
        cluster.api("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def test_an_unknown_level_is_said_to_be_invalid(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=1)
    tree = bench.unit("odd", Role("decode"), required="spine")
    assert "spine" in tree.wait_refused("InvalidTopology")


def test_several_topologies_and_none_marked_is_refused(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(nodes=2)
    path = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
    names = [f"{bench.namespace}-{letter}" for letter in "ab"]
    for name in names:
        levels = [{"name": "rack", "keys": [RACK]}]
        body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name}}
        cluster.api("POST", path, body | {"spec": {"levels": levels}})
    try:
        tree = bench.unit("which", Role("decode"))
        assert names[0] in tree.wait_refused("InvalidTopology")
        bench.unit("that", Role("decode"), topology=names[1]).wait_bound()
        mark = {"metadata": {"annotations": {"scheduling.covey.dev/default": "true"}}}
        cluster.api("PATCH", f"{path}/{names[0]}", mark)
        tree.wait_bound()
    finally:
        for name in names:
            cluster.api("DELETE", f"{path}/{name}")


def test_pods_that_are_not_ours_to_plan_hold_their_gang_and_are_named(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=3)
    tree = bench.unit(
        "foreign", Role("prefill"), Role("decode", gates=("example.com/quota", "scheduling.covey.dev/gang"))
    )
    tree.wait_refused("Waiting", "example.com/quota")
    [pod] = [pod for pod in tree.pods() if role_of(pod) == "decode"]
    lifted = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    bench.cluster.api("PATCH", f"{bench.pods_path}/{pod['metadata']['name']}", lifted)
    tree.wait_bound()


def test_a_missing_pod_holds_its_gang(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=3)
    tree = bench.unit("late", Role("decode", size=3), pods=False)
    tree.create(tree.manifests[:2])
    tree.wait_refused("Waiting", "2 of 3 pods")
    assert not tree.bound()
    tree.create(tree.manifests[2:])
    tree.wait_bound()


def test_the_domain_is_chosen_with_the_surplus_in_view(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(blocks=1, racks=1, nodes=2, prefix=f"{bench.namespace}-small-")
    nodes(blocks=1, racks=1, nodes=4, prefix=f"{bench.namespace}-large-")
    tree = bench.unit("view", Role("decode", replicas=4, minimum=1), required="block", pods=False)
    tree.create(tree.manifests[:1])
    tree.create(tree.manifests[1:])
    pods = tree.wait_bound()
    assert len({labels_of(cluster, BLOCK)(node_of(pod)) for pod in pods}) == 1


def test_units_of_one_resource_are_spread(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(blocks=2, nodes=4)
    owner = bench.workload("apart")
    spread = {"level": "block", "mode": "Required", "maxPerDomain": 1}
    trees = [
        bench.unit(f"apart-{unit}", Role("decode"), unit=unit, owner=owner, spread=spread, required="block")
        for unit in range(3)
    ]
    eventually(lambda: sum(len(tree.bound()) for tree in trees) == 2)
    blocks = [labels_of(cluster, BLOCK)(node_of(pod)) for tree in trees for pod in tree.bound()]
    assert len(set(blocks)) == 2
    [left] = [tree for tree in trees if not tree.bound()]
    left.wait_refused()
