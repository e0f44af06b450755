"""Drains with everything running: the eviction API, kubectl drain and autoscalers' taints meet gangs that are moved whole."""

from __future__ import annotations

from collections import Counter

import pytest
from kubernetes.client import ApiException

from api_manifests import Object
from cluster.serving import BLOCK, AddNodes, Serving, fewest_serving, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")


def await_ready(serving: Serving, count: int) -> list[Object]:
    serving.await_bound(count)
    eventually(lambda: all(map(serves, serving.pods())), 60, "all pods are Ready")
    return serving.pods()


def await_budget(serving: Serving, healthy: int, name: str = "llm-gang") -> Object:
    """Wait until the disruption controller has counted so many healthy pods."""

    def counted() -> Object:
        budget = serving.get("PodDisruptionBudget", name)
        status = budget.get("status", {})
        assert status.get("currentHealthy") == healthy, str(status)
        return budget

    return eventually(counted, 60, f"{healthy} healthy pods are counted")


def evict(serving: Serving, pod: Object) -> int:
    """The code that the eviction API answers with."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    try:
        serving.cluster.api("POST", f"{serving.path('Pod', name_of(pod))}/eviction", body)
    except ApiException as error:
        return error.status
    return 201


def test_the_eviction_api_takes_no_pod_of_a_gang(serving: Serving, nodes: AddNodes) -> None:
    nodes(racks=2, nodes=4)
    serving.create(
        workers("prefill", replicas=2, size=2), workers("decode", replicas=2), workers("router", minReplicas=0, gpus=1)
    )
    before = await_ready(serving, 7)
    budget = await_budget(serving, 6)
    assert budget["status"]["disruptionsAllowed"] == 0
    for pod in before:
        assert evict(serving, pod) == (201 if label(pod, "role") == "router" else 429), name_of(pod)
    gang = {uid_of(pod) for pod in before if label(pod, "role") != "router"}
    assert gang <= uids(serving.pods())
    # Why it is a number of pods: the disruption controller expects as many as the resource's /scale says, in units.
    other = {"maxUnavailable": 0, "selector": budget["spec"]["selector"]}
    serving.cluster.api("POST", serving.path("PodDisruptionBudget"), {"metadata": {"name": "other"}, "spec": other})
    assert await_budget(serving, 6, "other")["status"]["disruptionsAllowed"] == 5


def test_the_budget_is_kept_and_goes(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    serving.create(workers("prefill"), workers("decode"))
    await_ready(serving, 2)
    path = serving.path("PodDisruptionBudget", "llm-gang")
    serving.cluster.api("PATCH", path, {"spec": {"minAvailable": 1}})
    eventually(
        lambda: serving.get("PodDisruptionBudget", "llm-gang")["spec"]["minAvailable"] > 1, 30, "it is put right"
    )
    first = serving.get("PodDisruptionBudget", "llm-gang")
    serving.cluster.api("DELETE", path)
    eventually(lambda: uid_of(serving.get("PodDisruptionBudget", "llm-gang")) != uid_of(first), 30, "it is made again")
    serving.change({"suspend": True})
    eventually(lambda: not serving.owned("PodDisruptionBudget"), 30, "what is suspended needs none")


def test_a_strangers_budget_of_this_name_is_told(serving: Serving, nodes: AddNodes) -> None:
    nodes(nodes=2)
    theirs = {"metadata": {"name": "llm-gang"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    serving.cluster.api("POST", serving.path("PodDisruptionBudget"), theirs)
    serving.create(workers("prefill"), workers("decode"))
    message = serving.await_condition("Progressing", "False", "NameTaken")
    assert "PodDisruptionBudget llm-gang exists and is not Covey's" in message
    serving.delete("PodDisruptionBudget", "llm-gang")
    serving.await_bound(2)
    assert serving.owned("PodDisruptionBudget")


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
    before = await_ready(serving, 5)
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
    assert {"Evacuating", "Evacuated"} <= serving.events()
    found = serving.get("DisaggregatedInference", "llm")["status"]
    assert "rollout" not in found
    assert not {"Evacuating", "EvacuationBlocked"} & conditions(serving).keys()


def test_at_the_minimum_without_room_a_drain_waits(serving: Serving, nodes: AddNodes) -> None:
    (*_, spare) = nodes(blocks=1, racks=1, nodes=6)
    serving.cluster.kubectl("cordon", spare)
    serving.create(*pair(), topology={"required": "block"})
    before = await_ready(serving, 5)
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


def test_it_may_be_allowed_below_the_minimum(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=5)
    serving.create(*pair(), topology={"required": "block"}, disruption={"allowBelowMinimum": True})
    before = await_ready(serving, 5)
    (decode,) = serving.pods(role="decode")
    drain(serving, node_of(decode))
    assert uids(serving.bound()) == uids(before) - {uid_of(decode)}
    serving.cluster.kubectl("uncordon", node_of(decode))
    await_settled(serving, 5)


def test_above_the_minimum_without_room_it_shrinks(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    serving.create(workers("prefill"), workers("decode", replicas=3))
    before = await_ready(serving, 4)
    victims = sorted(nodes_of(serving.pods(role="decode")))[:2]
    drain(serving, *victims)
    bound = serving.bound()
    assert uids(bound) <= uids(before)
    assert not nodes_of(bound) & set(victims)
    assert len(bound) == 2
    serving.cluster.kubectl("uncordon", *victims)
    await_settled(serving, 4)


def test_a_unit_that_fits_nowhere_in_its_block_moves_to_another_one(serving: Serving, nodes: AddNodes) -> None:
    """Both blocks hold one unit and nothing more: the other one is built first, and no moment passes without one."""
    nodes(blocks=2, racks=1, nodes=5)
    serving.create(*pair(), topology={"required": "block"})
    before = await_ready(serving, 5)
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


def test_a_candidate_of_an_autoscaler_is_left_after_a_while(serving: Serving, nodes: AddNodes) -> None:
    """A soft taint keeps nobody off, but successors would only have to move again."""
    nodes(blocks=1, racks=1, nodes=6)
    serving.create(workers("prefill"), workers("decode"), disruption={"evacuateAfterSeconds": 3})
    before = await_ready(serving, 2)
    (decode,) = serving.pods(role="decode")
    free = sorted({name_of(each) for each in serving.cluster.api("GET", "/api/v1/nodes")["items"]} - nodes_of(before))
    candidates = [node_of(decode), *free[:3]]
    serving.cluster.kubectl("taint", "node", *candidates, "DeletionCandidateOfClusterAutoscaler=x:PreferNoSchedule")
    after = await_settled(serving, 2, *candidates)
    assert uid_of(decode) not in uids(after)
    assert len(uids(after) & uids(before)) == 1


def test_a_hard_taint_that_is_not_tolerated_empties_a_node(serving: Serving, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=4)
    tolerated = {"tolerations": [{"key": "team", "operator": "Exists"}]}
    serving.create(workers("prefill", spec=tolerated), workers("decode"))
    before = await_ready(serving, 2)
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
