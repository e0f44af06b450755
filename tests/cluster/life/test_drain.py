"""Drains with everything running: the eviction API, kubectl drain and autoscalers' taints meet gangs that are moved whole."""

from __future__ import annotations

from collections import Counter

import pytest

from builders import files
from builders.manifests import Object
from cluster.conftest import Covey
from cluster.kubelet import crash
from cluster.serving import BLOCK, AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def pair(**fields: object) -> list[Object]:
    return [workers("prefill", replicas=2, size=2, minReplicas=2, **fields), workers("decode")]


def nodes_of(pods: list[Object]) -> set[str]:
    return {node_of(pod) for pod in pods}


def drain(serving: Serving, *names: str, seconds: int = 240) -> None:
    serving.cluster.kubectl("drain", *names, "--ignore-daemonsets", f"--timeout={seconds}s")


def await_settled(serving: Serving, count: int, *emptied: str) -> list[Object]:
    """Wait until exactly so many pods serve, none of them on these nodes, and nothing is on its way any more."""

    def settled() -> list[Object]:
        pods = serving.pods()
        assert len(pods) == count, f"{len(pods)} pods; {serving.states()}"
        assert all(map(serves, pods))
        assert not nodes_of(pods) & set(emptied)
        return pods

    pods = eventually(settled, 180, "everything has moved")
    serving.await_condition("Progressing", "True", "Complete")
    return pods


def conditions(serving: Serving) -> dict[str, Object]:
    found = serving.get("DisaggregatedInference", "llm").get("status", {}).get("conditions", ())
    return {each["type"]: each for each in found if each["status"] == "True"}


def test_kubectl_drains_two_nodes_of_two_replicas_at_once(serving: Serving, nodes: AddNodes) -> None:
    """Each replica is built elsewhere before it goes, and the drain waits on the budget meanwhile."""
    nodes(blocks=1, racks=2, nodes=4)
    serving.create(*pair(), topology={"required": "block"})
    before = serving.await_ready(5)
    first, second = (serving.pods(role="prefill", replica=replica) for replica in (0, 1))
    victims = (node_of(first[0]), node_of(second[0]))
    with serving.cluster.record(serving.path("Pod")) as recording:
        drain(serving, *victims)
        history = recording.events
    assert fewest_serving(before, history, "prefill", 2) == 2
    assert fewest_serving(before, history, "decode", 1) == 1
    after = await_settled(serving, 5, *victims)
    assert not uids([*first, *second]) & uids(after)
    assert uids(serving.pods(role="decode")) <= uids(before)
    eventually(lambda: {"Evacuating", "Evacuated"} <= serving.events(), 60, "there are Events of it")
    found = serving.get("DisaggregatedInference", "llm")["status"]
    assert "rollout" not in found
    # It is Complete while replicas leave, too.
    eventually(lambda: not {"Evacuating", "EvacuationBlocked"} & conditions(serving).keys(), 60, "it is over")


def test_at_the_minimum_without_room_a_drain_waits(serving: Serving, nodes: AddNodes) -> None:
    (*_, spare) = nodes(blocks=1, racks=1, nodes=6)
    serving.cluster.kubectl("cordon", spare)
    serving.create(*pair(), topology={"required": "block"})
    before = serving.await_ready(5)
    (decode,) = serving.pods(role="decode")
    with pytest.raises(RuntimeError, match="disruption budget"):
        drain(serving, node_of(decode), seconds=10)
    message = serving.await_condition("EvacuationBlocked", "True", "NoRoom")
    assert node_of(decode) in message
    assert "spec.disruption.allowBelowMinimum" in message
    assert uids(before) <= uids(serving.pods())
    assert serving.await_event("EvacuationBlocked")
    # There is room now: it goes on by itself.
    serving.cluster.kubectl("uncordon", spare)
    drain(serving, node_of(decode))
    after = await_settled(serving, 5, node_of(decode))
    assert uids(after) & uids(before) == uids(before) - {uid_of(decode)}


def test_a_replica_that_serves_nobody_does_not_block_a_drain(serving: Serving, nodes: AddNodes) -> None:
    """Without room for a successor, too; its pods go, and nothing else does."""
    nodes(blocks=1, racks=1, nodes=5)
    serving.create(*pair(), topology={"required": "block"})
    before = serving.await_ready(5)
    (decode,) = serving.pods(role="decode")
    crash(serving, decode)
    drain(serving, node_of(decode))
    # What is left of the unit waits for room, and serves as far as it did.
    assert uids(serving.bound()) == uids(before) - {uid_of(decode)}
    serving.cluster.kubectl("uncordon", node_of(decode))
    await_settled(serving, 5)


def test_it_may_be_allowed_below_the_minimum(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=5)
    serving.create(*pair(), topology={"required": "block"}, disruption={"allowBelowMinimum": True})
    before = serving.await_ready(5)
    (decode,) = serving.pods(role="decode")
    drain(serving, node_of(decode))
    assert uids(serving.bound()) == uids(before) - {uid_of(decode)}
    serving.cluster.kubectl("uncordon", node_of(decode))
    await_settled(serving, 5)


def test_above_the_minimum_without_room_it_shrinks(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    serving.create(workers("prefill"), workers("decode", replicas=3), disruption={"evacuateAfterSeconds": 0})
    before = serving.await_ready(4)
    victims = sorted(nodes_of(serving.pods(role="decode")))[:2]
    drain(serving, *victims)
    bound = serving.bound()
    assert uids(bound) <= uids(before)
    assert not nodes_of(bound) & set(victims)
    assert len(bound) == 2
    serving.cluster.kubectl("uncordon", *victims)
    await_settled(serving, 4)


def test_a_cordon_takes_nobody_who_serves_before_its_time_and_covey_drain_does(
    serving: Serving, nodes: AddNodes
) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    serving.create(workers("prefill"), workers("decode", replicas=3), disruption={"evacuateAfterSeconds": 3600})
    before = serving.await_ready(4)
    victim = serving.pods(role="decode")[0]
    serving.cluster.kubectl("cordon", node_of(victim))
    message = "without a successor after 3600 s"
    eventually(lambda: message in conditions(serving).get("Evacuating", {}).get("message", ""), 120, "it has no room")
    assert uids(serving.bound()) == uids(before)
    assert "EvacuationBlocked" not in conditions(serving)

    def run(*arguments: str) -> str:
        result = files.covey("drain", node_of(victim), *arguments, "--kubeconfig", serving.cluster.kubeconfig)
        assert result.exit_code == 0, result.output
        return str(result.output)

    assert run() == f"node/{node_of(victim)} cordoned, and left at once\n"
    eventually(lambda: uids(serving.bound()) == uids(before) - {uid_of(victim)}, 60, "it has left")
    unknown = files.covey("drain", "nobody", "--kubeconfig", serving.cluster.kubeconfig)
    assert (unknown.exit_code, unknown.output) == (1, 'error: nodes "nobody" not found\n')
    assert run("--undo") == f"node/{node_of(victim)} uncordoned\n"
    await_settled(serving, 4)
    node = serving.cluster.api("GET", f"/api/v1/nodes/{node_of(victim)}")
    assert "covey.dev/drain" not in node["metadata"].get("annotations", {})
    assert not node["spec"].get("unschedulable")


def test_a_unit_that_fits_nowhere_in_its_block_moves_to_another_one(serving: Serving, nodes: AddNodes) -> None:
    """Both blocks hold one unit and nothing more: the other one is built first, and no moment passes without one."""
    nodes(blocks=2, racks=1, nodes=5)
    serving.create(*pair(), topology={"required": "block"})
    before = serving.await_ready(5)
    home = serving.domains(before, BLOCK)
    (decode,) = serving.pods(role="decode")
    with serving.cluster.record(serving.path("Pod")) as recording:
        drain(serving, node_of(decode))
        history = recording.events
    after = await_settled(serving, 5, node_of(decode))
    assert serving.domains(after, BLOCK) != home
    assert not uids(before) & uids(after)
    assert fewest_whole(before, history) == 1
    serving.await_condition("Available", "True", "Available")


def test_a_unit_that_is_moved_serves_with_its_surplus_all_the_time(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=2, racks=1, nodes=5)
    serving.create(workers("prefill", replicas=4, minReplicas=1), workers("decode"), topology={"required": "block"})
    before = serving.await_ready(5)
    (decode,) = serving.pods(role="decode")
    with serving.cluster.record(serving.path("Pod")) as recording:
        drain(serving, node_of(decode))
        history = recording.events
    after = await_settled(serving, 5, node_of(decode))
    assert not uids(before) & uids(after)
    assert fewest_serving(before, history, "prefill", 1) == 4


def test_a_candidate_of_an_autoscaler_is_left_after_a_while(serving: Serving, nodes: AddNodes) -> None:
    """A soft taint keeps nobody off, but successors would only have to move again."""
    nodes(blocks=1, racks=1, nodes=6)
    serving.create(workers("prefill"), workers("decode"), disruption={"evacuateAfterSeconds": 3})
    before = serving.await_ready(2)
    (decode,) = serving.pods(role="decode")
    free = sorted({name_of(each) for each in serving.cluster.api("GET", "/api/v1/nodes")["items"]} - nodes_of(before))
    candidates = [node_of(decode), *free[:3]]
    serving.cluster.kubectl("taint", "node", *candidates, "DeletionCandidateOfClusterAutoscaler=x:PreferNoSchedule")
    after = await_settled(serving, 2, *candidates)
    assert uid_of(decode) not in uids(after)
    assert len(uids(after) & uids(before)) == 1


def test_a_hard_taint_that_is_listed_and_not_tolerated_empties_a_node(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    covey_to_kill.operator.kill()
    serving.cluster.start_covey("operator", "--evacuation-taints=team", name="covey-operator-taints")
    nodes(blocks=1, racks=1, nodes=4)
    tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    serving.create(workers("prefill", spec=tolerated), workers("decode"))
    before = serving.await_ready(2)
    (decode,) = serving.pods(role="decode")
    serving.cluster.kubectl("taint", "node", *sorted(nodes_of(before)), "team=other:NoSchedule")
    after = await_settled(serving, 2, node_of(decode))
    assert uids(after) & uids(before) == uids(before) - {uid_of(decode)}


def fewest_whole(before: list[Object], events: list[tuple[str, Object]]) -> int:
    """The fewest units with all of their minimum at any moment."""
    pods = {uid_of(pod): pod for pod in before}

    def whole() -> int:
        ready = Counter((label(pod, "unit"), label(pod, "role")) for pod in pods.values() if serves(pod))
        return sum(ready[unit, "prefill"] >= 4 and ready[unit, "decode"] >= 1 for unit in {unit for unit, _ in ready})

    found = [whole()]
    for kind, pod in events:
        pods.pop(uid_of(pod), None)
        if kind != "DELETED":
            pods[uid_of(pod)] = pod
        found.append(whole())
    return min(found)
