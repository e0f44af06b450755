"""Nodes and pods that go, and room that others take: what is lost is replaced, what is not stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Serving, check_history, replicas, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import Cluster, eventually
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

ROLES = (
    workers("prefill", replicas=2, size=2, topology={"required": "rack"}),
    workers("decode", topology={"required": "rack"}),
)


def cordon(cluster: Cluster, node: str) -> None:
    cluster.kubectl("cordon", node)


def taint(cluster: Cluster, node: str) -> None:
    cluster.kubectl("taint", "node", node, "hardware=failed:NoSchedule")


def delete(cluster: Cluster, node: str) -> None:
    cluster.delete_nodes([node])


@pytest.mark.parametrize("harm", [cordon, taint, delete])
def test_a_node_that_goes_before_the_bind(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey, harm: Callable[[Cluster, str], None]
) -> None:
    nodes(racks=2, nodes=4)
    covey_to_kill.kube_scheduler.kill()
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*ROLES, topology={"required": "block"})
        pinned = serving.await_pinned(3)
        lost = next(pod for pod in pinned if label(pod, "role") == "prefill")
        harm(serving.cluster, str(pin_of(lost)))
        eventually(lambda: uid_of(lost) not in uids(serving.pods()), 60, "the pod of the lost node is replaced")
        covey_to_kill.kube_scheduler.start()
        pods = serving.await_bound(5)
        recording.wait(lambda events: uids(pods) <= {uid_of(pod) for _, pod in events if node_of(pod)})
        check_history(recording.events, *ROLES)
    assert pin_of(lost) not in {node_of(pod) for pod in pods}
    # Nothing but what was on that node was touched.
    assert {uid_of(pod) for pod in pinned if pin_of(pod) != pin_of(lost)} <= uids(pods)
    assert serving.await_event("Released")


def test_room_that_another_scheduler_takes(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=2, nodes=4)
    covey_to_kill.kube_scheduler.kill()
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*ROLES, topology={"required": "block"})
        pinned = serving.await_pinned(3)
        taken = str(pin_of(pinned[0]))
        serving.take_room(taken)
        eventually(lambda: uid_of(pinned[0]) not in uids(serving.pods(inference="llm")), 60)
        covey_to_kill.kube_scheduler.start()
        pods = serving.await_bound(5, inference="llm")
        recording.wait(lambda events: uids(pods) <= {uid_of(pod) for _, pod in events if node_of(pod)})
        check_history(recording.events, *ROLES)
    assert taken not in {node_of(pod) for pod in pods}
    assert uids(pinned[1:]) <= uids(pods)
    assert "CapacityTaken" in serving.await_event("Released")
    serving.await_condition("Available", "True", "Available")


def test_a_node_that_fails_under_running_pods(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    """Its replica is recreated in its own rack, where a node is free; the rest keeps running."""
    assert covey.operator.alive
    nodes(racks=2, nodes=4)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_bound(5)
    serving.await_condition("Available", "True", "Available")
    victim = next(members for members in replicas(before).values() if label(members[0], "role") == "prefill")
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.cluster.kubectl("taint", "node", node_of(victim[0]), "hardware=failed:NoExecute")
        eventually(lambda: not uids(victim) & uids(serving.pods()), 60, "the replica is recreated")
        after = serving.await_bound(5)
        recording.wait(lambda events: uids(after) <= {uid_of(pod) for _, pod in events if node_of(pod)})
        check_history(recording.events, *ROLES)
    assert uids(before) - uids(victim) <= uids(after)
    assert node_of(victim[0]) not in {node_of(pod) for pod in after}
    assert serving.domains(after, BLOCK) == serving.domains(before[-1:], BLOCK)
    for members in replicas(after).values():
        assert len(serving.domains(members, BLOCK, RACK)) == 1
    assert "the whole replica is recreated" in serving.await_event("ReplicaReplaced")


@pytest.mark.slow
def test_a_node_that_is_deleted_under_running_pods(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    """Pod garbage collection of the controller-manager takes its time; then the replica is recreated in its rack."""
    assert covey.operator.alive
    nodes(racks=2, nodes=4)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_bound(5)
    victim = next(members for members in replicas(before).values() if label(members[0], "role") == "prefill")
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.cluster.delete_nodes([node_of(victim[0])])
        eventually(lambda: not uids(victim) & uids(serving.pods()), 180, "the replica is recreated")
        after = serving.await_bound(5)
        recording.wait(lambda events: uids(after) <= {uid_of(pod) for _, pod in events if node_of(pod)})
        check_history(recording.events, *ROLES)
    assert uids(before) - uids(victim) <= uids(after)
    serving.await_condition("Available", "True", "Available")


def test_no_room_for_the_replacement(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    """A unit that has lost a replica of its minimum says so, and goes on by itself when its node is back."""
    assert covey.operator.alive
    nodes(racks=1, nodes=3)
    roles = (workers("prefill", size=2, topology={"required": "rack"}), workers("decode"))
    serving.create(*roles, topology={"required": "block"})
    before = serving.await_bound(3)
    serving.await_condition("Available", "True", "Available")
    (pod,) = [pod for pod in before if label(pod, "role") == "decode"]
    serving.cluster.kubectl("cordon", node_of(pod))
    serving.delete("Pod", name_of(pod))
    serving.await_condition("Degraded", "True", "BelowMinimum")
    serving.await_condition("Admitted", "False", "Infeasible")
    shown = serving.kubectl("get", "dinf", "-o", "wide")
    assert "prefill 1/1 decode 0/1" in shown
    assert "cordoned" in shown
    assert uids(serving.bound()) == uids(before) - {uid_of(pod)}
    assert serving.await_event("Unavailable")
    serving.cluster.kubectl("uncordon", node_of(pod))
    after = serving.await_bound(3)
    assert len(uids(after) & uids(before)) == 2
    serving.await_condition("Degraded", "False", "AsExpected")


def test_a_deleted_pod_of_a_single_role(serving: Serving, nodes: AddNodes, covey: Covey) -> None:
    assert covey.operator.alive
    nodes(racks=2, nodes=4)
    serving.create(*ROLES, topology={"required": "block"})
    before = serving.await_bound(5)
    (pod,) = serving.pods(role="decode")
    serving.delete("Pod", name_of(pod))
    eventually(lambda: uid_of(pod) not in uids(serving.pods()))
    after = serving.await_bound(5)
    assert uids(before) - {uid_of(pod)} <= uids(after)
    assert serving.domains(after, BLOCK) == serving.domains(before[:1], BLOCK)
