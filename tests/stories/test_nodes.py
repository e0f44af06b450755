"""Nodes that go, and room that others take: what is lost is replaced, what is not stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders.manifests import workers
from cluster.workbench import is_gated, label, name_of, uid_of, uids
from scheduler_trees import node_of, pin_of
from stage import Stage
from stage.play import BLOCK, RACK, by_replica

ROLES = (
    workers("prefill", replicas=2, size=2, topology={"required": "rack"}),
    workers("decode", topology={"required": "rack"}),
)


def taint(stage: Stage, node: str) -> None:
    """Let no pod on a node that does not tolerate its failure."""
    stage.taint(node, "hardware=failed:NoSchedule")


def pinned(stage: Stage) -> list[str]:
    """UIDs of the pods that are let go and not bound, at rest."""
    stage.settle()
    pods = [pod for pod in stage.pods(inference="llm") if pin_of(pod) and not is_gated(pod) and not node_of(pod)]
    return [uid_of(pod) for pod in pods]


@pytest.mark.parametrize("harm", [Stage.cordon, taint, Stage.delete_nodes], ids=["cordon", "taint", "delete"])
def test_node_when_it_goes_before_the_bind_costs_only_what_was_pinned_to_it(
    stage: Stage, harm: Callable[[Stage, str], None]
) -> None:
    stage.nodes(racks=2, nodes=4)
    with stage.away("kube-scheduler"):
        stage.create(*ROLES, topology={"required": "block"})
        before = pinned(stage)
        assert len(before) == 3
        pods = [pod for pod in stage.pods() if uid_of(pod) in before]
        lost = next(pod for pod in pods if label(pod, "role") == "prefill")
        node = str(pin_of(lost))
        harm(stage, node)
        stage.settle()
        assert uid_of(lost) not in uids(stage.pods())
    after = stage.ready(5)
    assert node not in {node_of(pod) for pod in after}
    # Nothing but what was on that node was touched.
    assert {uid_of(pod) for pod in pods if pin_of(pod) != node} <= uids(after)
    assert stage.event_notes("Released")


def test_room_when_another_scheduler_takes_it_before_the_bind_costs_that_pod_alone(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=4)
    with stage.away("kube-scheduler"):
        stage.create(*ROLES, topology={"required": "block"})
        first, *others = pinned(stage)
        [pod] = [pod for pod in stage.pods() if uid_of(pod) == first]
        taken = str(pin_of(pod))
        stage.occupy(taken)
        stage.settle()
        assert first not in uids(stage.pods(inference="llm"))
    after = stage.ready(5, inference="llm")
    assert taken not in {node_of(pod) for pod in after}
    assert set(others) <= uids(after)
    assert any("CapacityTaken" in note for note in stage.event_notes("Released"))
    assert stage.condition("Available")[:2] == ("True", "Available")


def test_node_when_it_fails_under_running_pods_has_their_replica_recreated_in_its_rack(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(*ROLES, topology={"required": "block"})
    before = stage.ready(5)
    victim = next(members for members in by_replica(before).values() if label(members[0], "role") == "prefill")
    block = stage.domains(before, BLOCK)
    stage.taint(node_of(victim[0]), "hardware=failed:NoExecute")
    after = stage.ready(5)
    assert uids(before) - uids(victim) == uids(before) & uids(after)
    assert node_of(victim[0]) not in {node_of(pod) for pod in after}
    assert stage.domains(after, BLOCK) == block
    for members in by_replica(after).values():
        assert len(stage.domains(members, BLOCK, RACK)) == 1
    assert any("the whole replica is recreated" in note for note in stage.event_notes("ReplicaReplaced"))


def test_unit_when_there_is_no_room_for_a_replacement_says_so_and_goes_on_when_its_node_is_back(stage: Stage) -> None:
    stage.nodes(nodes=3)
    roles = (workers("prefill", size=2, topology={"required": "rack"}), workers("decode"))
    stage.create(*roles, topology={"required": "block"})
    before = stage.ready(3)
    assert stage.condition("Available")[:2] == ("True", "Available")
    [pod] = stage.pods(role="decode")
    stage.cordon(node_of(pod))
    stage.delete("Pod", name_of(pod))
    stage.settle()
    assert stage.condition("Degraded")[:2] == ("True", "BelowMinimum")
    assert stage.condition("Admitted")[:2] == ("False", "Infeasible")
    shown = stage.kubectl("get", "dinf", "-o", "wide")
    assert "prefill 1/1 decode 0/1" in shown
    assert "cordoned" in stage.condition("Admitted")[2]
    assert uids(stage.bound()) == uids(before) - {uid_of(pod)}
    assert stage.event_notes("Unavailable")
    stage.uncordon(node_of(pod))
    after = stage.ready(3)
    assert len(uids(after) & uids(before)) == 2
    assert stage.condition("Degraded")[:2] == ("False", "AsExpected")


def test_pod_of_a_single_role_when_it_is_deleted_is_replaced_in_its_block(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(*ROLES, topology={"required": "block"})
    before = stage.ready(5)
    [pod] = stage.pods(role="decode")
    stage.delete("Pod", name_of(pod))
    after = stage.ready(5)
    assert uids(before) & uids(after) == uids(before) - {uid_of(pod)}
    assert stage.domains(after, BLOCK) == stage.domains(before[:1], BLOCK)
