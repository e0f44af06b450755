"""Processes that die at the worst moment, nodes and pods that go, room that others take: each gang is whole in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localcluster import Cluster, Process, eventually
from localcluster.programs import scheduler_config
from scheduler_trees import (
    START_GATE,
    Bench,
    Replacing,
    Role,
    Tree,
    by_replica,
    gates_of,
    labels_of,
    node_of,
    pin_of,
    resources,
    role_of,
    states,
)

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
RACK = "cloud.provider.com/topology-rack"
STARTED = ("scheduling.covey.dev/gang", START_GATE)


class Processes:
    """The scheduler process and kube-scheduler."""

    def __init__(self, extender: Process, kube_scheduler: Process) -> None:
        self.extender = extender
        self.kube_scheduler = kube_scheduler


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Processes]:
    try:
        # Of the profile "nobody" there is no kube-scheduler.
        extender = cluster.start_covey("scheduler", "--scheduler-name=covey-scheduler", "--scheduler-name=nobody")
        yield Processes(extender, cluster.start_scheduler(scheduler_config(extender)))
    finally:
        cluster.forget("kube-scheduler", "covey-scheduler")


@pytest.fixture(autouse=True)
def processes(running: Processes) -> Iterator[Processes]:
    """Both run when a test begins, whatever the one before did to them."""
    yield running
    for process in (running.extender, running.kube_scheduler):
        if not process.alive:
            process.start()


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def no_doubles(tree: Tree) -> None:
    places = [
        tuple(pod["metadata"]["labels"][f"covey.dev/{part}"] for part in ("role", "replica", "index"))
        for pod in tree.bound()
    ]
    assert len(places) == len(set(places))


def uids(tree: Tree) -> set[str]:
    return {pod["metadata"]["uid"] for pod in tree.pods()}


@pytest.mark.slow  # times run out
def test_killed_in_the_middle_of_releasing_pins(bench: Bench, nodes: AddNodes, processes: Processes) -> None:
    names = nodes(nodes=2)
    # Nobody binds them, so their time runs out. That they are admitted is written 3.5 s after it, and so before.
    tree = bench.unit("undo", Role("decode", size=8, gpus=1, spec={"schedulerName": "nobody"}), timeout=25)
    eventually(lambda: all(pin_of(pod) for pod in tree.pods()))
    eventually(lambda: bench.condition("undo").get("status") == "True")
    with Replacing(tree) as replacing:
        eventually(lambda: replacing.released)
        replacing.amend(schedulerName="covey-scheduler")
        processes.extender.restart(kill=True)
        tree.wait_bound(timeout=150)
    assert set(replacing.released) <= {"Timeout", "Conflict"}
    assert {node_of(pod) for pod in tree.bound()} <= set(names)
    no_doubles(tree)


@pytest.mark.parametrize("harm", ["cordon", "delete", "not ready"])
def test_a_node_that_goes_before_the_bind_moves_its_pod_only(
    bench: Bench, nodes: AddNodes, cluster: Cluster, harm: str
) -> None:
    nodes(racks=2, nodes=3)
    tree = bench.unit("moved", Role("decode", size=2, gates=STARTED, required="rack"))
    first, second = eventually(lambda: [pod for pod in tree.pods() if pin_of(pod)][1:] and tree.pods())
    bad = pin_of(first) or ""
    with Replacing(tree) as replacing:
        if harm == "cordon":
            cluster.api("PATCH", f"/api/v1/nodes/{bad}", {"spec": {"unschedulable": True}})
        elif harm == "delete":
            cluster.api("DELETE", f"/api/v1/nodes/{bad}")
        else:
            cluster.fail_node(bad)
        [successor] = eventually(
            lambda: [pod for pod in tree.pods() if pin_of(pod) and pod["metadata"]["uid"] not in uid_of(first, second)]
        )
    assert replacing.released == ["NodeLost"]
    rack = labels_of(cluster, RACK)
    assert pin_of(successor) != bad
    assert rack(pin_of(successor) or "") == rack(pin_of(second) or "")
    assert second["metadata"]["uid"] in uids(tree)


def uid_of(*pods: Json) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def test_room_taken_by_another_scheduler_is_found_and_planned_again(bench: Bench, nodes: AddNodes) -> None:
    nodes(nodes=3)
    tree = bench.unit("taken", Role("prefill", gates=STARTED), Role("decode", gates=STARTED))
    pods = eventually(lambda: (found := tree.pods()) and all(pin_of(pod) for pod in found) and found)
    robbed = pods[0]
    with Replacing(tree) as replacing:
        bench.pod("thief", node=pin_of(robbed))
        [successor] = eventually(
            lambda: [pod for pod in tree.pods() if pin_of(pod) and pod["metadata"]["uid"] not in uid_of(*pods)]
        )
    assert replacing.released == ["CapacityTaken"]
    assert pin_of(successor) not in {pin_of(pod) for pod in pods}
    assert pods[1]["metadata"]["uid"] in uids(tree)


def test_pins_around_which_nothing_can_be_planned_are_given_up(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(racks=2, nodes=2)
    tree = bench.unit("stuck", Role("decode", size=2, gates=STARTED, required="rack"))
    pods = eventually(lambda: (found := tree.pods()) and all(pin_of(pod) for pod in found) and found)
    rack = labels_of(cluster, RACK)
    with Replacing(tree) as replacing:
        cluster.api("DELETE", f"/api/v1/nodes/{pin_of(pods[0])}")
        successors = eventually(
            lambda: (
                [pod for pod in tree.pods() if pin_of(pod) and pod["metadata"]["uid"] not in uid_of(*pods)][1:]
                and tree.pods()
            )
        )
    assert replacing.released == ["NodeLost", "Conflict"]
    assert {rack(pin_of(pod) or "") for pod in successors} != {rack(pin_of(pods[1]) or "")}


def test_a_constraint_that_covey_does_not_model_excludes_the_node_for_the_gang(
    bench: Bench, nodes: AddNodes, cluster: Cluster
) -> None:
    nodes(racks=2, nodes=1)
    rack = labels_of(cluster, RACK)
    path = f"/api/v1/namespaces/{bench.namespace}/pods"
    # Our pod wants to be in no rack where this one is; the planner knows nothing of that, and takes the fuller node.
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"app": "hermit"}}}
    repelled = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tree = bench.unit("picky", Role("decode", gpus=1, spec={"affinity": repelled}), pods=False)
    names = sorted(node["metadata"]["name"] for node in cluster.api("GET", "/api/v1/nodes")["items"])
    body = {
        "metadata": {"name": "hermit", "labels": {"app": "hermit"}},
        "spec": {"containers": [resources(1)], "nodeName": names[0]},
    }
    cluster.api("POST", path, body)
    with Replacing(tree) as replacing:
        tree.create()
        [pod] = tree.wait_bound(1, timeout=60)
    assert rack(node_of(pod)) != rack(names[0])
    assert replacing.released == ["Unschedulable"]

    def excluded() -> bool:
        return [each["node"] for each in bench.group("picky")["status"].get("excludedNodes", [])] == [names[0]]

    eventually(excluded, 60, "the node to be excluded in the root's status")


def test_a_deleted_member_is_replaced_within_its_domain(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(racks=2, nodes=3)
    tree = bench.unit("heal", Role("decode", size=2, required="rack"))
    pods = tree.wait_bound()
    rack = labels_of(cluster, RACK)
    with Replacing(tree):
        bench.delete(pods[0]["metadata"]["name"])
        eventually(lambda: len(tree.bound()) == 2 and pods[0]["metadata"]["uid"] not in uids(tree))
    assert len({rack(node_of(pod)) for pod in tree.bound()}) == 1
    assert pods[1]["metadata"]["uid"] in uids(tree)


def test_ordinary_pods_never_take_reserved_room_and_evict_nobody(
    bench: Bench, nodes: AddNodes, cluster: Cluster
) -> None:
    name = f"urgent-{bench.namespace}"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    cluster.api("POST", classes, {"metadata": {"name": name}, "value": 1_000_000})
    nodes(nodes=2)
    try:
        resident = bench.unit("resident", Role("decode"))
        [running] = resident.wait_bound()
        tree = bench.unit("owner", Role("decode", gates=STARTED))
        [reserved] = eventually(lambda: [pod for pod in tree.pods() if pin_of(pod)])
        bench.pod("stranger", gpus=8, priorityClassName=name)

        def refusal() -> str:
            conditions = bench.get("stranger")["status"].get("conditions", [])
            return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

        eventually(lambda: "reserved for admitted gangs" in refusal(), describe=refusal)
        assert not node_of(bench.get("stranger"))
        assert node_of(bench.get(running["metadata"]["name"]))
        # The reservation goes, and the stranger is woken alone.
        bench.delete(reserved["metadata"]["name"])
        eventually(lambda: node_of(bench.get("stranger")) == pin_of(reserved))
        assert {pod["metadata"]["uid"] for pod in resident.pods()} == uid_of(running)
    finally:
        cluster.api("DELETE", f"{classes}/{name}")


def test_a_second_replica_takes_over(bench: Bench, nodes: AddNodes, cluster: Cluster, processes: Processes) -> None:
    processes.extender.kill()
    nodes(nodes=2)
    try:
        first = cluster.start_covey("scheduler", "--leader-elect=true", name="covey-scheduler-1")
        cluster.start_covey("scheduler", "--leader-elect=true", name="covey-scheduler-2")
        tree = bench.unit("relay", Role("decode", gates=STARTED))
        eventually(lambda: all(pin_of(pod) for pod in tree.pods()))
        assert first.stop(timeout=60) == 0
        again = bench.unit("again", Role("decode", gates=STARTED))
        eventually(lambda: all(pin_of(pod) for pod in again.pods()))
    finally:
        cluster.forget("covey-scheduler-1", "covey-scheduler-2")


def test_a_lost_lease_ends_the_process(cluster: Cluster, namespace: str) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/covey-planner"
    try:
        process = cluster.start_covey("scheduler", "--leader-elect=true", name="covey-scheduler-3")
        eventually(lambda: cluster.api("GET", path)["spec"]["holderIdentity"])
        eventually(lambda: "leading" in process.log_text())
        cluster.api("PATCH", path, {"spec": {"holderIdentity": "somebody else"}})
        assert process.wait(40) == 1
        assert namespace
    finally:
        cluster.forget("covey-scheduler-3")
        cluster.api("DELETE", path)


def test_whole_replicas_at_every_moment(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(racks=3, nodes=4)
    with cluster.record(bench.pods_path) as recording:
        trees = [
            bench.unit(
                f"many-{number}",
                Role("prefill", replicas=2, size=2, gpus=4, required="rack"),
                Role("decode", replicas=2, size=3, gpus=4, required="rack"),
            )
            for number in range(2)
        ]
        eventually(lambda: all(len(tree.bound()) == 10 for tree in trees))
        recording.check()
        for pods in states(recording.events):
            for tree in trees:
                mine = [pod for pod in pods.values() if pod["metadata"]["labels"]["covey.dev/inference"] == tree.name]
                for replica in by_replica(mine).values():
                    if any(node_of(pod) for pod in replica):
                        assert all(pin_of(pod) and not gates_of(pod) for pod in replica)
                if any(node_of(pod) for pod in mine):
                    roles = {role_of(pod) for pod in mine if pin_of(pod)}
                    assert roles == {"prefill", "decode"}


def test_a_replica_without_the_lease_guards_and_binds(
    bench: Bench, nodes: AddNodes, cluster: Cluster, processes: Processes
) -> None:
    processes.extender.kill()
    processes.kube_scheduler.kill()
    nodes(nodes=2)
    names = ("covey-scheduler-4", "covey-scheduler-5")
    try:
        leader = cluster.start_covey("scheduler", "--leader-elect=true", name=names[0])
        eventually(lambda: "leading" in leader.log_text())
        other = cluster.start_covey("scheduler", "--leader-elect=true", name=names[1])
        cluster.start_scheduler(scheduler_config(other), name="kube-scheduler-2")
        bench.unit("twin", Role("decode", size=2)).wait_bound()
        assert "gang released" in other.log_text()
        assert "gang released" not in leader.log_text()
    finally:
        cluster.forget("kube-scheduler-2", *names)
