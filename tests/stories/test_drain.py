"""Drains with everything running: evictions, kubectl drain and autoscalers' taints meet gangs that are moved whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object, workers
from cluster.workbench import is_ready, label, name_of, uid_of, uids
from scheduler_trees import node_of
from stage import Stage
from stage.kubelet import crash
from stage.play import BLOCK, fewest_serving, run_covey
from stage.record import states

EVACUATION = ("Evacuating", "EvacuationBlocked")


def pair() -> list[Object]:
    return [workers("prefill", replicas=2, size=2, minReplicas=2), workers("decode")]


def nodes_of(pods: list[Object]) -> set[str]:
    return {node_of(pod) for pod in pods}


def evict(stage: Stage, pod: Object) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    stage.cluster.api("POST", f"{stage.path('Pod', name_of(pod))}/eviction", eviction)


def drain(stage: Stage, *names: str) -> list[str]:
    """Do as ``kubectl drain``, which closes nodes and asks for their pods' evictions again and again: here, at each rest.

    Returns:
        What was answered at last, when nothing went any more; nothing where the nodes are empty.
    """
    for node in names:
        stage.cordon(node)
    stage.settle()
    asked: set[str] = set()
    while True:
        pods = [pod for pod in stage.bound() if node_of(pod) in names]
        denials = []
        for pod in pods:
            try:
                evict(stage, pod)
            except ApiException as error:
                denials.append(str(error.body))
        stage.settle()
        if uids(pods) == asked:
            return denials
        asked = uids(pods)


def moved(stage: Stage, count: int, *emptied: str) -> list[Object]:
    """The pods at rest: so many, all Ready, none of them on these nodes, and nothing is on its way any more."""
    pods = stage.ready(count)
    assert not nodes_of(pods) & set(emptied)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    assert [stage.condition(kind)[0] for kind in EVACUATION] == ["", ""]
    return pods


def moments(stage: Stage) -> Iterator[Counter[tuple[str, str, str]]]:
    """How many pods of each unit, role and replica served, after each event of the record."""
    for _, pods in states(stage.history("Pod")):
        yield Counter(
            (label(pod, "unit"), label(pod, "role"), label(pod, "replica"))
            for pod in pods.values()
            if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
        )


def fewest_units(stage: Stage) -> int:
    """The fewest units of ``pair`` that served with all of their minimum at any moment since one did."""
    counts = [
        sum(
            all(serving[unit, "prefill", replica] == 2 for replica in "01") and serving[unit, "decode", "0"] == 1
            for unit in {unit for unit, _, _ in serving}
        )
        for serving in moments(stage)
    ]
    return min(counts[counts.index(1) :])


def test_pod_when_it_is_evicted_while_it_loads_is_under_its_budget(stage: Stage) -> None:
    stage.create(workers("prefill"), workers("decode"))
    stage.settle()
    for pod in stage.pods():
        # kwok makes nobody Ready who runs already.
        loads = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
        stage.patch_status("Pod", name_of(pod), {**loads, "startTime": "2026-01-01T00:00:00Z"})
    stage.nodes(nodes=2)
    stage.settle()
    before = stage.bound()
    assert len(before) == 2
    assert not any(map(is_ready, before))
    for pod in before:
        with pytest.raises(ApiException) as denied:
            evict(stage, pod)
        assert denied.value.status == HTTPStatus.TOO_MANY_REQUESTS
    stage.settle()
    assert uids(stage.bound()) == uids(before)


def test_two_nodes_of_two_replicas_when_kubectl_drains_both_have_them_built_elsewhere_first(stage: Stage) -> None:
    """The drain waits on the budget meanwhile."""
    stage.nodes(racks=2, nodes=4)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    first, second = (stage.pods(role="prefill", replica=replica) for replica in (0, 1))
    victims = (node_of(first[0]), node_of(second[0]))
    stage.kubectl("drain", *victims, "--ignore-daemonsets")
    after = moved(stage, 5, *victims)
    assert fewest_serving(stage, "prefill", 2, size=2) == 2
    assert fewest_serving(stage, "decode", 1) == 1
    assert uids(after) & uids(before) == uids(before) - uids([*first, *second])
    for reason in ("Evacuating", "Evacuated"):
        assert stage.event_notes(reason)
    assert "rollout" not in stage.status()


def test_drain_when_there_is_no_room_at_the_minimum_waits(stage: Stage) -> None:
    *_, spare = stage.nodes(nodes=6)
    stage.cordon(spare)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    [denial] = drain(stage, node_of(decode))
    assert "disruption budget" in denial
    stage.advance(40)
    status, reason, message = stage.condition("EvacuationBlocked")
    assert (status, reason) == ("True", "NoNodes")
    assert node_of(decode) in message
    assert "spec.disruption.allowBelowMinimum" in message
    assert stage.event_notes("EvacuationBlocked")
    assert drain(stage, node_of(decode))
    assert uids(before) == uids(stage.bound())
    # There is room now: it goes on by itself.
    stage.uncordon(spare)
    after = moved(stage, 5, node_of(decode))
    assert uids(after) & uids(before) == uids(before) - {uid_of(decode)}
    assert not drain(stage, node_of(decode))


def drain_what_serves_nobody(stage: Stage) -> tuple[Object, list[Object]]:
    """Drain the node of a replica that serves nobody, where no successor has room; return its pod, and the others."""
    stage.nodes(nodes=5)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    crash(stage, decode)
    assert not drain(stage, node_of(decode))
    return decode, [pod for pod in before if uid_of(pod) != uid_of(decode)]


def test_replica_when_it_serves_nobody_does_not_block_a_drain(stage: Stage) -> None:
    decode, _ = drain_what_serves_nobody(stage)
    stage.uncordon(node_of(decode))
    moved(stage, 5)


# A second unit waits for room by then: of two that serve nobody, the one with bound pods stays.
def test_unit_when_a_replica_of_it_that_serves_nobody_is_drained_keeps_the_others(stage: Stage) -> None:
    _, others = drain_what_serves_nobody(stage)
    assert uids(stage.bound()) == uids(others)


def test_unit_when_it_is_allowed_below_its_minimum_blocks_no_drain(stage: Stage) -> None:
    stage.excused.add("budget")
    stage.nodes(nodes=5)
    stage.create(*pair(), topology={"required": "block"}, disruption={"allowBelowMinimum": True})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    drain(stage, node_of(decode))
    stage.advance(40)
    assert not drain(stage, node_of(decode))
    assert uids(stage.bound()) == uids(before) - {uid_of(decode)}
    stage.uncordon(node_of(decode))
    moved(stage, 5)


def test_unit_when_it_is_above_its_minimum_and_there_is_no_room_shrinks(stage: Stage) -> None:
    # Whoever waits for no successor shrinks.
    stage.excused.add("budget")
    stage.nodes(nodes=4)
    stage.create(workers("prefill"), workers("decode", replicas=3), disruption={"evacuateAfterSeconds": 0})
    before = stage.ready(4)
    victims = sorted(nodes_of(stage.pods(role="decode")))[:2]
    drain(stage, *victims)
    stage.advance(40)
    assert not drain(stage, *victims)
    bound = stage.bound()
    assert len(bound) == 2
    assert uids(bound) <= uids(before)
    assert not nodes_of(bound) & set(victims)
    for node in victims:
        stage.uncordon(node)
    moved(stage, 4)


def test_cordon_takes_nobody_who_serves_before_its_time_and_covey_drain_does(stage: Stage) -> None:
    # A node that is to be left at once is left, whoever serves there.
    stage.excused.add("budget")
    stage.nodes(nodes=4)
    stage.create(workers("prefill"), workers("decode", replicas=3), disruption={"evacuateAfterSeconds": 3600})
    before = stage.ready(4)
    victim = stage.pods(role="decode")[0]
    node = node_of(victim)
    stage.cordon(node)
    stage.advance(1800)
    status, _, message = stage.condition("Evacuating")
    assert status == "True"
    assert "without a successor after 3600 s" in message
    assert uids(stage.bound()) == uids(before)
    assert stage.condition("EvacuationBlocked")[0] != "True"
    assert run_covey(stage, "drain", node) == (0, f"node/{node} cordoned, and left at once\n")
    stage.settle()
    assert uids(stage.bound()) == uids(before) - {uid_of(victim)}
    assert run_covey(stage, "drain", "nobody") == (1, 'error: nodes "nobody" not found\n')
    assert run_covey(stage, "drain", node, "--undo") == (0, f"node/{node} uncordoned\n")
    moved(stage, 4)
    found = stage.cluster.api("GET", f"/api/v1/nodes/{node}")
    assert "covey.dev/drain" not in found["metadata"].get("annotations", {})
    assert not found["spec"].get("unschedulable")


def test_unit_when_it_fits_nowhere_in_its_block_moves_to_another_one(stage: Stage) -> None:
    """Both blocks hold one unit and nothing more: the other one is built first, and no moment passes without one."""
    stage.nodes(blocks=2, racks=1, nodes=5)
    stage.create(*pair(), topology={"required": "block"})
    before = stage.ready(5)
    home = stage.domains(before, BLOCK)
    [decode] = stage.pods(role="decode")
    drain(stage, node_of(decode))
    stage.advance(70)
    after = moved(stage, 5, node_of(decode))
    assert stage.domains(after, BLOCK) != home
    assert not uids(before) & uids(after)
    assert fewest_units(stage) == 1
    assert stage.condition("Available")[:2] == ("True", "Available")


def test_unit_when_it_is_moved_serves_with_its_surplus_all_the_time(stage: Stage) -> None:
    stage.nodes(blocks=2, racks=1, nodes=5)
    stage.create(workers("prefill", replicas=4, minReplicas=1), workers("decode"), topology={"required": "block"})
    before = stage.ready(5)
    [decode] = stage.pods(role="decode")
    drain(stage, node_of(decode))
    stage.advance(70)
    after = moved(stage, 5, node_of(decode))
    assert not uids(before) & uids(after)
    assert fewest_serving(stage, "prefill", 4) == 4


def test_candidate_of_an_autoscaler_is_left_after_a_while(stage: Stage) -> None:
    """A soft taint keeps nobody off, but successors would only have to move again."""
    names = stage.nodes(nodes=6)
    stage.create(workers("prefill"), workers("decode"), disruption={"evacuateAfterSeconds": 600})
    before = stage.ready(2)
    [decode] = stage.pods(role="decode")
    candidates = [node_of(decode), *sorted(set(names) - nodes_of(before))[:3]]
    for node in candidates:
        stage.taint(node, "DeletionCandidateOfClusterAutoscaler=x:PreferNoSchedule")
    stage.advance(500)
    assert uids(stage.ready(2)) == uids(before)
    stage.advance(110)
    after = moved(stage, 2, *candidates)
    assert uids(after) & uids(before) == uids(before) - {uid_of(decode)}


def test_node_when_a_hard_taint_is_listed_and_not_tolerated_is_emptied(stage: Stage) -> None:
    # The laws know of no list of taints.
    stage.excused.add("taken")
    stage.restart(operator={"evacuation_taints": ("team",)})
    stage.nodes(nodes=4)
    tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    stage.create(workers("prefill", spec=tolerated), workers("decode"))
    before = stage.ready(2)
    [decode] = stage.pods(role="decode")
    for node in nodes_of(before):
        stage.taint(node, "team=other:NoSchedule")
    stage.settle()
    after = moved(stage, 2, node_of(decode))
    assert uids(after) & uids(before) == uids(before) - {uid_of(decode)}
