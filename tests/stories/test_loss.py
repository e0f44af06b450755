"""Nodes and pods that are lost: the replica is made anew, its room is held, what is stuck moves."""

from __future__ import annotations

import pytest

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from covey.kube.resources import LEASES
from scheduler_trees import node_of
from stage import Stage
from stage.play import BLOCK, RACK, by_replica

#: Pods that end only when somebody on their node ends them.
LASTING = {"terminationGracePeriodSeconds": 30}
QUICK = {
    **LASTING,
    "tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("unreachable", "not-ready")
    ],
}
ROOT = "CompositePodGroup"


def of_unit(stage: Stage, name: str = "llm") -> Object:
    """The status of the first unit."""
    return stage.status(name)["unitStatuses"][0]


def bound_anew(stage: Stage, before: list[Object]) -> int:
    """How many new pods have been bound."""
    return len({uid_of(event.object) for event in stage.history("Pod") if node_of(event.object)} - uids(before))


def one_of(pods: list[Object], role: str) -> Object:
    """A pod of a role."""
    return next(pod for pod in pods if label(pod, "role") == role)


@pytest.mark.parametrize("died", ["one", "two of a replica", "a rack's share of two roles"])
def test_nodes_when_they_are_out_of_service_lose_each_replica_once(stage: Stage, died: str) -> None:
    """lws#508: pods that never end are replaced elsewhere in the block, each replica once, and the rest is not touched."""
    # The nodes die one after the other: whatever takes the place of the first must leave room for the second.
    stage.nodes(blocks=2, racks=2, nodes=5)
    stage.create(
        workers("prefill", replicas=2, size=2, topology={"required": "rack"}, spec=LASTING),
        workers("decode", replicas=2, spec=LASTING),
        topology={"required": "block"},
    )
    before = stage.ready(6)
    first = next(pods for key, pods in by_replica(before).items() if key[2] == "prefill")
    decode = one_of(before, "decode")
    lost = {"one": first[:1], "two of a replica": first, "a rack's share of two roles": [first[0], decode]}[died]
    gone = first if died != "a rack's share of two roles" else [*first, decode]
    block = stage.domains(before[-1:], BLOCK)
    stage.fail_nodes({node_of(pod) for pod in lost})
    after = stage.ready(6)
    assert bound_anew(stage, before) == len(gone)
    assert uids(before) - uids(gone) == uids(before) & uids(after)
    assert not {node_of(pod) for pod in after} & {node_of(pod) for pod in lost}
    assert stage.domains(after, BLOCK) == block
    for key, members in by_replica(after).items():
        assert key[2] != "prefill" or len(stage.domains(members, BLOCK, RACK)) == 1
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")


def test_node_when_it_is_unreachable_loses_its_pods_once_they_are_evicted(stage: Stage) -> None:
    """Its pods' own tolerationSeconds count; then they are Terminating for ever, and nobody waits for that."""
    stage.nodes(nodes=4)
    stage.create(workers("prefill", size=2, spec=QUICK), workers("decode", spec=QUICK))
    before = stage.ready(3)
    victim = one_of(before, "prefill")
    stage.fail_nodes([node_of(victim)], out_of_service=False)
    after = stage.ready(3)
    assert uid_of(victim) not in uids(after)
    assert node_of(victim) not in {node_of(pod) for pod in after}
    assert {uid_of(pod) for pod in before if label(pod, "role") == "decode"} <= uids(after)


def test_node_when_it_is_deleted_gives_its_pods_up_before_pod_garbage_collection(stage: Stage) -> None:
    """Pod garbage collection would take 40 seconds and more; Covey does not wait for it."""
    stage.nodes(nodes=4)
    stage.create(workers("prefill", size=2, spec=LASTING), workers("decode", spec=LASTING))
    before = stage.ready(3)
    victim = one_of(before, "prefill")
    stage.delete_nodes(node_of(victim))
    after = stage.ready(3)
    assert uid_of(victim) not in uids(after)
    assert node_of(victim) not in {node_of(pod) for pod in after}
    assert {uid_of(pod) for pod in before if label(pod, "role") == "decode"} <= uids(after)
    assert any("lost" in note for note in stage.event_notes("NodeLost"))
    # Nobody but the operator deleted it.
    assert any(write.path.endswith(f"/{name_of(victim)}") for write in stage.writes("operator", "delete", "pods"))


def test_pod_when_another_scheduler_preempts_it_takes_its_replica_with_it(stage: Stage) -> None:
    """kube-scheduler evicts one pod for a stranger's, whatever the budget says; the replica goes and comes whole."""
    stage.kube_scheduler("default-scheduler")
    stage.nodes(nodes=4)
    urgent = stage.priority_class("urgent", 1000)
    stage.create(workers("prefill", size=2), workers("decode"))
    before = stage.ready(3)
    lost = one_of(before, "prefill")
    stage.stranger("stranger", node_of(lost), priorityClassName=urgent)
    # What kube-scheduler evicts, and when it tries again then, is nobody's debt.
    stage.await_event(lambda: "stranger" in map(name_of, stage.bound()), "the stranger has its room")
    after = stage.ready(3, inference="llm")
    assert node_of(stage.get("Pod", "stranger")) == node_of(lost)
    assert not {uid_of(pod) for pod in before if label(pod, "role") == "prefill"} & uids(after)
    assert node_of(lost) not in {node_of(pod) for pod in after}
    assert {uid_of(pod) for pod in before if label(pod, "role") == "decode"} <= uids(after)


def test_room_of_a_lost_pod_is_held_while_the_operator_is_late(stage: Stage) -> None:
    """A gang that waits for longer does not get it."""
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("decode"))
    before = stage.ready(2)
    stage.create(workers("prefill"), name="other")
    stage.refusal("other")
    victim = one_of(before, "decode")
    with stage.late("operator", "pods"):
        stage.delete("Pod", name_of(victim))
        # A place without a pod that waits for it is held for ten seconds.
        stage.settle(ahead=1)
        assert not stage.bound(inference="other")
    after = stage.ready(2, inference="llm")
    assert {node_of(pod) for pod in after} == {node_of(pod) for pod in before}
    assert not stage.bound(inference="other")
    assert one_of(after, "decode")["metadata"]["annotations"]["scheduling.covey.dev/room"] == node_of(victim)


def test_room_of_a_lost_pod_when_no_operator_leads_is_held_until_one_makes_its_successor(stage: Stage) -> None:
    """The ten seconds in which nobody makes one begin once somebody leads; until then ``holdSeconds`` count."""
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("decode"))
    before = stage.ready(2)
    stage.create(workers("prefill"), name="other")
    stage.refusal("other")
    gone = {"metadata": {"name": "covey-operator"}, "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15}}
    stage.cluster.api("POST", LEASES.path("covey-system"), gone)
    stage.after(lambda: stage.cluster.delete(LEASES.path("covey-system", "covey-operator")))
    with stage.away("operator"):
        stage.delete("Pod", name_of(one_of(before, "decode")))
        stage.advance(30)
        assert not stage.bound(inference="other")
    after = stage.ready(2, inference="llm")
    assert {node_of(pod) for pod in after} == {node_of(pod) for pod in before}
    assert not stage.bound(inference="other")


def test_room_of_a_lost_pod_when_nothing_is_held_goes_to_the_next_in_line(stage: Stage) -> None:
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("decode"), disruption={"holdSeconds": 0})
    before = stage.ready(2)
    stage.create(workers("prefill"), name="other")
    stage.refusal("other")
    with stage.away("operator"):
        stage.delete("Pod", name_of(one_of(before, "decode")))
        stage.settle()
        assert len(stage.bound(inference="other")) == 1
    stage.settle()
    assert stage.condition("MinimumMet")[:2] == ("False", "BelowMinimum")


def test_minimum_when_it_is_lost_and_comes_back_is_told_as_it_is(stage: Stage) -> None:
    """Upstream's PodGroupInitiallyScheduled stays True for ever; ours goes and comes back, on the root as well."""
    stage.nodes(nodes=2)
    stage.create(workers("prefill"), workers("decode"))
    victim = one_of(stage.ready(2), "decode")
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")
    assert stage.condition("Scheduled", "llm-0", of=ROOT)[0] == "True"
    stage.cordon(node_of(victim))
    stage.delete("Pod", name_of(victim))
    stage.settle()
    status, reason, message = stage.condition("MinimumMet")
    assert (status, reason) == ("False", "BelowMinimum")
    assert "decode 0/1" in message
    assert stage.condition("Admitted", "llm-0", of=ROOT)[0] == "False"
    assert stage.condition("Scheduled", "llm-0", of=ROOT)[0] == "False"
    assert of_unit(stage)["belowMinimumSince"]
    stage.uncordon(node_of(victim))
    stage.ready(2)
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")
    assert stage.condition("Scheduled", "llm-0", of=ROOT)[0] == "True"
    assert "belowMinimumSince" not in of_unit(stage)


def test_unit_when_it_is_below_its_minimum_for_the_termination_delay_is_taken_down_whole(stage: Stage) -> None:
    """GT-1: it waits whole then; a restart of the operator between counts nothing twice. When the node is back it starts."""
    stage.nodes(nodes=3)
    stage.create(workers("prefill", size=2), workers("decode"), gang={"terminationDelaySeconds": 600})
    before = stage.ready(3)
    victim = one_of(before, "decode")
    stage.cordon(node_of(victim))
    stage.delete("Pod", name_of(victim))
    stage.settle()
    status, reason, message = stage.condition("Escalating")
    assert (status, reason) == ("True", "TerminationDelay")
    assert "terminationDelaySeconds" in message
    at = of_unit(stage)["escalation"]
    assert at["step"] == "Termination"
    stage.advance(300)
    stage.kill_now("operator")
    stage.settle()
    assert len(stage.bound()) == 2
    assert of_unit(stage)["escalation"] == at
    stage.advance(320)
    assert not stage.bound()
    assert len(stage.pods()) == 3
    assert not uids(stage.pods()) & uids(before)
    assert stage.event_notes("GivenUp")
    stage.uncordon(node_of(victim))
    stage.ready(3)
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")


def test_unit_when_it_is_stuck_moves_to_where_all_of_it_fits(stage: Stage) -> None:
    """No room beside what is left of it, room for all of it in another block: announced, then given up and placed there."""
    stage.nodes(blocks=2, racks=1, nodes=2)
    stage.create(workers("prefill"), workers("decode"), topology={"required": "block"})
    before = stage.ready(2)
    block = stage.domains(before, BLOCK)
    victim = one_of(before, "decode")
    stage.cordon(node_of(victim))
    stage.delete("Pod", name_of(victim))
    stage.settle()
    status, reason, message = stage.condition("Escalating")
    assert (status, reason) == ("True", "UnitMoves")
    assert "elsewhere" in message
    assert stage.condition("Movable", "llm-0", of=ROOT)[0] == "True"
    # The room of what was lost is held for a minute; after that it moves.
    stage.advance(70)
    after = stage.ready(2)
    assert not uids(before) & uids(after)
    assert stage.domains(after, BLOCK) != block
    assert stage.event_notes("Escalating")
    assert stage.event_notes("GivenUp")
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")


def test_unit_when_each_role_still_serves_stays_below_its_minimum(stage: Stage) -> None:
    """Each role has a replica that answers: it is kept, though all would fit elsewhere."""
    stage.nodes(blocks=2, racks=1, nodes=3)
    stage.create(workers("prefill", replicas=2, minReplicas=2), workers("decode"), topology={"required": "block"})
    before = stage.ready(3)
    victim = one_of(before, "prefill")
    stage.cordon(node_of(victim))
    stage.delete("Pod", name_of(victim))
    stage.settle()
    assert stage.condition("MinimumMet")[:2] == ("False", "BelowMinimum")
    stage.advance(600)
    assert stage.condition("Movable", "llm-0", of=ROOT)[0] == "True"
    assert uids(stage.bound()) == uids(before) - {uid_of(victim)}


def test_unit_when_its_minimum_is_raised_beyond_capacity_gets_back_what_it_loses(stage: Stage) -> None:
    """A gang is planned whole: the minimum that nobody can have kept from it what it had, with the nodes for that free."""
    stage.nodes(nodes=3)
    stage.create(workers("prefill"), workers("decode", replicas=2, minReplicas=1))
    before = stage.ready(3)
    stage.change(roles=[workers("prefill"), workers("decode", replicas=3, minReplicas=3)])
    stage.settle()
    for role in ("prefill", "decode"):
        stage.delete("Pod", name_of(one_of(before, role)))
    stage.settle()
    assert sorted(str(label(pod, "role")) for pod in stage.bound()) == ["decode", "decode", "prefill"]
    assert len(uids(before) & uids(stage.bound())) == 1
    status, reason, message = stage.condition("MinimumMet")
    assert (status, reason) == ("False", "BelowMinimum")
    assert "decode 2/3" in message
    assert stage.condition("Admitted", "llm-0", of=ROOT)[0] == "False", "it does not ask for its minimum any more"
    stage.nodes(nodes=4)
    stage.ready(4)
    assert stage.condition("MinimumMet")[:2] == ("True", "MinimumMet")
