"""Failures, as a kubelet reports them: what is recreated, when it starts, and where it does not go."""

from __future__ import annotations

from builders.manifests import Object, workers
from cluster.workbench import label, name_of, uid_of, uids
from covey.compile.pods import shunning
from scheduler_trees import node_of, pin_of
from stage import Stage
from stage.kubelet import fail, replace_containers, restart

START = {"name": "scheduling.covey.dev/start"}
#: No pause between a failure and the next start.
AT_ONCE = {"backoff": {"baseSeconds": 0, "maxSeconds": 0}}


def annotation(pod: Object, key: str) -> str:
    return str(pod["metadata"].get("annotations", {}).get(key, ""))


def failures(pods: list[Object]) -> set[str]:
    """How often in a row these replicas have failed."""
    return {annotation(pod, "covey.dev/failures") for pod in pods}


def served(stage: Stage, count: int, noted: int) -> list[Object]:
    """The pods at rest: so many, all Ready, and of so many it is noted that their replicas have been."""
    pods = stage.ready(count)
    assert sum(bool(annotation(pod, "covey.dev/started")) for pod in pods) == noted
    return pods


def test_replica_when_a_container_of_it_restarts_is_recreated_whole_and_once(stage: Stage) -> None:
    stage.nodes(racks=2, nodes=4)
    stage.create(workers("prefill", replicas=2, size=2, minReplicas=1), workers("decode", replicas=2))
    before = served(stage, 6, noted=2)
    broken = stage.pods(role="prefill", replica=1)
    # The peers of a process that has gone end, too; nobody sees one without the other.
    with stage.late("operator", "pods"):
        for pod in broken:
            restart(stage, pod)
    after = served(stage, 6, noted=2)
    assert uids(before) & uids(after) == uids(before) - uids(broken)
    assert len({uid_of(event.object) for event in stage.history("Pod")}) == 8, "exactly once"
    assert {annotation(pod, "covey.dev/restarts") for pod in stage.pods(role="prefill", replica=1)} == {"1"}
    assert {role["name"]: role["restarts"] for role in stage.status()["roles"]} == {"prefill": 1, "decode": 0}
    assert any("failed on" in note for note in stage.event_notes("ReplicaFailed"))


def test_replica_when_a_container_was_replaced_without_a_restart_is_recreated_whole(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("prefill", size=2), workers("decode"))
    before = served(stage, 3, noted=1)
    broken = stage.pods(role="prefill")
    replace_containers(stage, broken[1])
    after = served(stage, 3, noted=1)
    assert uids(before) & uids(after) == uids(before) - uids(broken)
    assert any("failed on" in note for note in stage.event_notes("ReplicaFailed"))


def test_restarts_before_the_first_ready_and_of_single_pods_are_the_kubelets(stage: Stage) -> None:
    stage.create(workers("prefill", size=2), workers("decode"))
    stage.settle()
    gated = stage.pods()
    assert len(gated) == 3
    for pod in gated:
        # kwok makes nobody Ready who runs already.
        crashed = [{"name": "engine", "image": "e", "imageID": "", "ready": False, "restartCount": 3}]
        unready = [{"type": "Ready", "status": "False"}]
        status = {"phase": "Running", "containerStatuses": crashed, "conditions": unready}
        stage.patch_status("Pod", name_of(pod), {**status, "startTime": "2026-01-01T00:00:00Z"})
    stage.nodes(nodes=4)
    stage.settle()
    assert uids(stage.bound()) == uids(gated)
    for pod in gated:
        stage.patch_status("Pod", name_of(pod), {"phase": "Pending", "startTime": None, "conditions": None})
    assert uids(served(stage, 3, noted=1)) == uids(gated)
    [single] = stage.pods(role="decode")
    restart(stage, single, 7)
    assert uids(stage.ready(3)) == uids(gated)


def test_crash_loop_slows_down_and_is_counted_by_an_operator_that_comes_back(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("prefill", size=2, restart={"backoff": {"baseSeconds": 300, "maxSeconds": 600}}))
    first = served(stage, 2, noted=1)
    restart(stage, first[0])
    second = served(stage, 2, noted=1)
    assert not uids(first) & uids(second)
    assert failures(second) == {"1"}
    assert stage.never("Pod", is_held), "the first time at once"
    with stage.away("operator"):
        restart(stage, second[0])
    stage.settle()
    third = stage.pods()
    assert not uids(second) & uids(third)
    assert failures(third) == {"2"}
    assert {label(pod, "index") for pod in third if is_held(pod) and pin_of(pod)} == {"0", "1"}, "their places are kept"
    assert not stage.bound()
    stage.advance(250)
    assert not stage.bound()
    stage.advance(60)
    assert uids(served(stage, 2, noted=1)) == uids(third)


def is_held(pod: Object) -> bool:
    return START in pod["spec"].get("schedulingGates", ())


def test_replica_when_it_has_failed_too_often_is_left_until_a_person_acts(stage: Stage) -> None:
    stage.nodes(nodes=4)
    stage.create(workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 0}))
    first, _ = stage.ready(2)
    fail(stage, first)
    stage.settle()
    status, reason, message = stage.condition("Degraded")
    assert (status, reason) == ("True", "RestartsExhausted")
    assert "failed 1 times in a row, and restart.maxRestarts is 0" in message
    assert uid_of(stage.get("Pod", name_of(first))) == uid_of(first), "it is still there to be looked at"
    stage.change(roles=[workers("decode", replicas=2, minReplicas=1, restart={"maxRestarts": 3})])
    assert uid_of(first) not in uids(stage.ready(2))
    assert uid_of(first) not in uids(stage.all("Pod"))
    assert stage.condition("Degraded")[:2] == ("False", "AsExpected")


def refuse_three_times(stage: Stage, node: str, reason: str) -> None:
    """Let the kubelet of the only node refuse each pod of a role of one."""
    stage.create(workers("decode", restart=AT_ONCE))
    for _ in range(3):
        [pod] = stage.ready(1)
        assert node_of(pod) == node
        fail(stage, pod, reason)
        stage.settle()
    assert stage.condition("NodesAvoided")[:2] == ("True", "NodeAvoided")
    assert "1 excluded" in stage.refusal()


def test_node_when_it_refuses_pods_is_avoided_for_a_while(stage: Stage) -> None:
    [bad] = stage.nodes()
    refuse_three_times(stage, bad, "OutOfnvidia.com/gpu")
    assert stage.condition("NodesAvoided")[2].startswith(f"new pods keep off node {bad} until ")
    [good] = set(stage.nodes(nodes=2)) - {bad}
    [pod] = stage.ready(1)
    assert node_of(pod) == good, "it went elsewhere"
    stage.advance(700)
    assert stage.condition("NodesAvoided") == ("", "", ""), "it is forgiven"
    stage.change(roles=[workers("decode", replicas=2)])
    assert {node_of(pod) for pod in stage.ready(2)} == {bad, good}


def test_gang_when_it_waits_for_an_avoided_node_gets_it_once_that_is_forgiven(stage: Stage) -> None:
    [bad] = stage.nodes()
    refuse_three_times(stage, bad, "UnexpectedAdmissionError")
    stage.advance(700)
    [pod] = stage.ready(1)
    assert node_of(pod) == bad


def test_unit_when_its_policy_says_so_is_recreated_whole(stage: Stage) -> None:
    # By that policy what serves is given up.
    stage.excused |= {"budget", "taken"}
    stage.nodes(nodes=8)
    prefill = workers("prefill", size=2, restart={"policy": "RecreateUnit"})
    stage.create(prefill, workers("decode"), workers("router", gpus=1, minReplicas=0), replicas=2)
    before = stage.ready(8)
    gang = [pod for pod in before if label(pod, "unit") == "0" and label(pod, "role") != "router"]
    restart(stage, next(pod for pod in gang if label(pod, "role") == "prefill"))
    after = stage.ready(8)
    assert uids(before) & uids(after) == uids(before) - uids(gang), "nothing else was touched"
    assert len(gang) == 3


def test_pod_when_it_is_not_ready_in_time_is_tried_again(stage: Stage) -> None:
    stage.create(workers("decode", startDeadlineSeconds=600))
    stage.settle()
    [slow] = stage.pods()
    # kwok makes nobody Ready who runs already.
    unready = [{"type": "Ready", "status": "False"}]
    stage.patch_status(
        "Pod", name_of(slow), {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": unready}
    )
    stage.nodes(nodes=2)
    stage.settle()
    stage.advance(500)
    assert uids(stage.bound()) == {uid_of(slow)}
    stage.advance(110)
    [pod] = stage.ready(1)
    assert uid_of(pod) != uid_of(slow)
    assert failures([pod]) == {"1"}
    assert any("StartDeadlineExceeded" in note for note in stage.event_notes("ReplicaFailed"))
    assert stage.condition("Available")[:2] == ("True", "Available")


def test_wish_to_keep_off_nodes_is_one_that_the_api_server_takes(stage: Stage) -> None:
    spec = {
        "containers": [{"name": "engine", "image": "registry.test/engine:1"}],
        "affinity": shunning({"podAntiAffinity": {}}, ["node-b", "node-a"]),
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
    made = stage.cluster.api("POST", f"{stage.path('Pod')}?dryRun=All&fieldValidation=Strict", body)
    [wish] = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["values"] for term in wish["preference"]["matchFields"]] == [["node-a"], ["node-b"]]
