"""Nodes and pods that are lost with everything running: the replica is made anew, its room is held, what is stuck moves."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import BLOCK, RACK, AddNodes, Serving, check_history, replicas, serves, serving, workers
from cluster.workbench import label, name_of, uid_of, uids
from localcluster import Cluster, eventually
from scheduler_trees import node_of

__all__ = ["serving"]

pytestmark = pytest.mark.usefixtures("covey")

#: Pods that end only when somebody on their node ends them.
LASTING = {"terminationGracePeriodSeconds": 30}
QUICK = {
    **LASTING,
    "tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in ("unreachable", "not-ready")
    ],
}


def await_ready(serving: Serving, count: int, timeout: float = 120) -> list[Object]:
    serving.await_bound(count, timeout)

    def ready() -> list[Object]:
        pods = serving.pods()
        assert len(pods) == count
        assert all(map(serves, pods))
        return pods

    return eventually(ready, 60, "all pods are Ready")


def fail(serving: Serving, nodes: Iterable[str], *, out_of_service: bool = True) -> None:
    """These nodes die, and somebody says so."""
    dead = sorted(nodes)
    for node in dead:
        serving.cluster.fail_node(node)
    if out_of_service:
        # Said when all are dead: nothing is placed on one that is about to die.
        taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        serving.cluster.kubectl("taint", "node", *dead, taint)


def of_unit(serving: Serving, name: str = "llm") -> Object:
    return serving.get("DisaggregatedInference", name)["status"]["unitStatuses"][0]


def on_root(serving: Serving, kind: str, name: str = "llm-0") -> str:
    conditions = serving.get("CompositePodGroup", name).get("status", {}).get("conditions", ())
    return next((item["status"] for item in conditions if item["type"] == kind), "")


def made(events: Iterable[tuple[str, Object]], before: Iterable[Object]) -> int:
    """How many new pods have been bound."""
    old = uids(list(before))
    return len({uid_of(pod) for _, pod in events if node_of(pod) and uid_of(pod) not in old})


@pytest.mark.parametrize("died", ["one", "two of a replica", "a rack's share of two roles"])
def test_nodes_that_are_out_of_service(serving: Serving, nodes: AddNodes, died: str) -> None:
    """lws#508: pods that never end are replaced elsewhere in the block, each replica once, and the rest is not touched."""
    # The nodes die one after the other: whatever takes the place of the first must leave room for the second.
    nodes(blocks=2, racks=2, nodes=5)
    roles = (
        workers("prefill", replicas=2, size=2, topology={"required": "rack"}, spec=LASTING),
        workers("decode", replicas=2, spec=LASTING),
    )
    serving.create(*roles, topology={"required": "block"})
    before = await_ready(serving, 6)
    first = next(pods for key, pods in replicas(before).items() if key[2] == "prefill")
    decode = next(pod for pod in before if label(pod, "role") == "decode")
    lost = {"one": first[:1], "two of a replica": first, "a rack's share of two roles": [first[0], decode]}[died]
    gone = first if died != "a rack's share of two roles" else [*first, decode]
    with serving.cluster.record(serving.path("Pod")) as recording:
        fail(serving, {node_of(pod) for pod in lost})
        eventually(lambda: not uids(gone) & uids(serving.pods()), 60, "what was lost is given up")
        after = await_ready(serving, 6)
        recording.wait(lambda events: uids(after) <= {uid_of(pod) for _, pod in events if node_of(pod)})
        assert made(recording.events, before) == len(gone)
        check_history(recording.events, *roles)
    assert uids(before) - uids(gone) <= uids(after)
    assert not {node_of(pod) for pod in after} & {node_of(pod) for pod in lost}
    assert serving.domains(after, BLOCK) == serving.domains(before[-1:], BLOCK)
    for key, members in replicas(after).items():
        assert key[2] != "prefill" or len(serving.domains(members, BLOCK, RACK)) == 1
    serving.await_condition("MinimumMet", "True", "MinimumMet")


def test_a_node_that_is_unreachable(serving: Serving, nodes: AddNodes) -> None:
    """Its pods' own tolerationSeconds count; then they are Terminating for ever, and nobody waits for that."""
    nodes(racks=1, nodes=4)
    serving.create(workers("prefill", size=2, spec=QUICK), workers("decode", spec=QUICK))
    before = await_ready(serving, 3)
    victim = next(pod for pod in before if label(pod, "role") == "prefill")
    fail(serving, [node_of(victim)], out_of_service=False)
    eventually(lambda: uid_of(victim) not in uids(serving.pods()), 120, "it is evicted")
    after = await_ready(serving, 3)
    assert node_of(victim) not in {node_of(pod) for pod in after}
    assert {uid_of(pod) for pod in before if label(pod, "role") == "decode"} <= uids(after)


def test_a_node_that_is_deleted(serving: Serving, nodes: AddNodes) -> None:
    """Pod garbage collection would take 40 seconds and more; Covey does not wait for it."""
    nodes(racks=1, nodes=4)
    serving.create(workers("prefill", size=2, spec=LASTING), workers("decode", spec=LASTING))
    before = await_ready(serving, 3)
    victim = next(pod for pod in before if label(pod, "role") == "prefill")
    begun = time.monotonic()
    serving.cluster.delete_nodes([node_of(victim)])
    eventually(lambda: uid_of(victim) not in uids(serving.pods()), 60, "it is given up")
    after = await_ready(serving, 3)
    print(f"node deleted -> serving again: {time.monotonic() - begun:.1f} s")
    assert node_of(victim) not in {node_of(pod) for pod in after}
    assert "lost" in serving.await_event("NodeLost")


@pytest.fixture
def urgent(cluster: Cluster) -> Iterator[str]:
    """The name of a PriorityClass above that of everybody else."""
    name = "urgent"
    body = {"metadata": {"name": name}, "value": 1000}
    cluster.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    yield name
    cluster.api("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


def test_a_pod_that_another_scheduler_preempts(
    serving: Serving, nodes: AddNodes, covey_to_kill: Covey, urgent: str
) -> None:
    """kube-scheduler evicts one pod for a stranger's, whatever the budget says; the replica goes and comes whole."""
    assert covey_to_kill.kube_scheduler.alive
    serving.cluster.start_scheduler(name="default-scheduler")
    nodes(racks=1, nodes=4)
    serving.create(workers("prefill", size=2), workers("decode"))
    before = await_ready(serving, 3)
    lost = next(pod for pod in before if label(pod, "role") == "prefill")
    stranger = {
        "metadata": {"name": "stranger"},
        "spec": {
            "priorityClassName": urgent,
            "nodeSelector": {"kubernetes.io/hostname": node_of(lost)},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "c", "image": "registry.test/c:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
            ],
        },
    }
    serving.cluster.api("POST", serving.path("Pod"), stranger)
    eventually(lambda: node_of(serving.get("Pod", "stranger")) == node_of(lost), 60, "the stranger has the node")
    after = eventually(lambda: _renewed(serving, before), 60, "the replica is made anew")
    assert node_of(lost) not in {node_of(pod) for pod in after}
    assert {uid_of(pod) for pod in before if label(pod, "role") == "decode"} <= uids(after)


def _renewed(serving: Serving, before: Iterable[Object]) -> list[Object]:
    """The pods that serve, where no prefill pod is one of before."""
    old = {uid_of(pod) for pod in before if label(pod, "role") == "prefill"}
    pods = serving.pods(inference="llm")
    return pods if len(pods) == 3 and all(map(serves, pods)) and not old & uids(pods) else []


def test_the_room_of_what_was_lost_is_held(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """A gang that waits for longer does not get it, not even when the operator is late."""
    nodes(racks=1, nodes=2)
    serving.create(workers("prefill"), workers("decode"))
    before = await_ready(serving, 2)
    serving.create(workers("prefill"), name="other")
    serving.await_condition("Admitted", "False", "Infeasible", name="other")
    covey_to_kill.operator.pause()
    victim = next(pod for pod in before if label(pod, "role") == "decode")
    serving.delete("Pod", name_of(victim))
    eventually(lambda: uid_of(victim) not in uids(serving.all("Pod")), 30, "it is gone")
    covey_to_kill.operator.resume()
    after = serving.await_bound(2, inference="llm")
    assert {node_of(pod) for pod in after} == {node_of(pod) for pod in before}
    assert not serving.bound(inference="other")
    successor = next(pod for pod in after if label(pod, "role") == "decode")
    assert successor["metadata"]["annotations"]["scheduling.covey.dev/room"] == node_of(victim)


def test_without_a_hold_the_next_in_line_gets_it(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    nodes(racks=1, nodes=2)
    serving.create(workers("prefill"), workers("decode"), disruption={"holdSeconds": 0})
    before = await_ready(serving, 2)
    serving.create(workers("prefill"), name="other")
    serving.await_condition("Admitted", "False", "Infeasible", name="other")
    covey_to_kill.operator.pause()
    serving.delete("Pod", name_of(next(pod for pod in before if label(pod, "role") == "decode")))
    serving.await_bound(1, inference="other")
    covey_to_kill.operator.resume()
    serving.await_condition("MinimumMet", "False", "BelowMinimum")


def test_a_minimum_is_told_as_it_is(serving: Serving, nodes: AddNodes) -> None:
    """Upstream's PodGroupInitiallyScheduled stays True for ever; ours goes and comes back, on the root as well."""
    nodes(racks=1, nodes=2)
    serving.create(workers("prefill"), workers("decode"))
    before = await_ready(serving, 2)
    serving.await_condition("MinimumMet", "True", "MinimumMet")
    eventually(lambda: on_root(serving, "Scheduled") == "True", 30)
    victim = next(pod for pod in before if label(pod, "role") == "decode")
    serving.cluster.kubectl("cordon", node_of(victim))
    serving.delete("Pod", name_of(victim))
    assert "decode 0/1" in serving.await_condition("MinimumMet", "False", "BelowMinimum")
    eventually(lambda: (on_root(serving, "Admitted"), on_root(serving, "Scheduled")) == ("False", "False"), 60)
    assert of_unit(serving)["belowMinimumSince"]
    serving.cluster.kubectl("uncordon", node_of(victim))
    await_ready(serving, 2)
    serving.await_condition("MinimumMet", "True", "MinimumMet")
    eventually(lambda: on_root(serving, "Scheduled") == "True", 60)
    eventually(lambda: "belowMinimumSince" not in of_unit(serving))


def test_the_termination_delay(serving: Serving, nodes: AddNodes, covey_to_kill: Covey) -> None:
    """GT-1: below the minimum for so long, the unit is taken down and waits whole; a restart of the operator between
    counts nothing twice. When the node is back it starts."""
    nodes(racks=1, nodes=3)
    serving.create(workers("prefill", size=2), workers("decode"), gang={"terminationDelaySeconds": 600})
    before = await_ready(serving, 3)
    victim = next(pod for pod in before if label(pod, "role") == "decode")
    serving.cluster.kubectl("cordon", node_of(victim))
    serving.delete("Pod", name_of(victim))
    assert "terminationDelaySeconds" in serving.await_condition("Escalating", "True", "TerminationDelay")
    at = of_unit(serving)["escalation"]
    assert at["step"] == "Termination"
    covey_to_kill.operator.kill()
    covey_to_kill.operator.start()
    assert len(serving.bound()) == 2
    assert of_unit(serving)["escalation"] == at
    # It counts from the loss, so it is over now.
    serving.change({"gang": {"terminationDelaySeconds": 1}})
    eventually(lambda: not serving.bound(), 60, "the unit is taken down")
    waiting = serving.await_pods(3, 60)
    assert not uids(waiting) & uids(before)
    assert serving.await_event("GivenUp")
    serving.cluster.kubectl("uncordon", node_of(victim))
    await_ready(serving, 3)
    serving.await_condition("MinimumMet", "True", "MinimumMet")


def test_a_unit_that_is_stuck_moves(serving: Serving, nodes: AddNodes) -> None:
    """No room beside what is left of it, room for all of it in another block: announced, then given up and placed there."""
    nodes(blocks=2, racks=1, nodes=2)
    serving.create(workers("prefill"), workers("decode"), topology={"required": "block"}, disruption={"holdSeconds": 5})
    before = await_ready(serving, 2)
    victim = next(pod for pod in before if label(pod, "role") == "decode")
    serving.cluster.kubectl("cordon", node_of(victim))
    serving.delete("Pod", name_of(victim))
    assert "elsewhere" in serving.await_condition("Escalating", "True", "UnitMoves")
    assert on_root(serving, "Movable") == "True"
    after = eventually(lambda: not uids(before) & uids(serving.bound()) and serving.await_bound(2), 120, "it has moved")
    assert serving.domains(after, BLOCK) != serving.domains(before, BLOCK)
    assert serving.await_event("Escalating")
    assert serving.await_event("GivenUp")
    serving.await_condition("MinimumMet", "True", "MinimumMet")


def test_what_still_serves_stays(serving: Serving, nodes: AddNodes) -> None:
    """Below the minimum, but each role has a replica that answers: it is kept, though all would fit elsewhere."""
    nodes(blocks=2, racks=1, nodes=3)
    serving.create(
        workers("prefill", replicas=2, minReplicas=2),
        workers("decode"),
        topology={"required": "block"},
        disruption={"holdSeconds": 1},
    )
    before = await_ready(serving, 3)
    victim = next(pod for pod in before if label(pod, "role") == "prefill")
    serving.cluster.kubectl("cordon", node_of(victim))
    serving.delete("Pod", name_of(victim))
    serving.await_condition("MinimumMet", "False", "BelowMinimum")
    eventually(lambda: on_root(serving, "Movable") == "True", 60)
    time.sleep(15)
    assert uids(serving.bound()) == uids(before) - {uid_of(victim)}
