"""What is lost or edited is put right, and what is healthy is left alone."""

from collections.abc import Callable

import pytest

from builders.manifests import Object, role, template
from cluster.operating import bench, operator
from cluster.workbench import Workbench, is_gated, is_ready, name_of, uid_of, uids
from localcluster import Process, eventually

__all__ = ["bench", "operator"]


@pytest.fixture
def served(bench: Workbench, nodes: Callable[..., list[str]]) -> Workbench:
    """A resource whose six pods are bound and Ready."""
    bench.create()
    pods = bench.await_pods(6)
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    bench.bind(pods, node)
    return bench


def await_replaced(served: Workbench, lost: Object, count: int, timeout: float = 60) -> list[Object]:
    """The pods, once there are ``count`` of them, and none is the lost one."""

    def replaced() -> list[Object]:
        pods = served.pods()
        assert len(pods) == count
        assert uid_of(lost) not in uids(pods)
        return pods

    return eventually(replaced, timeout, f"{name_of(lost)} is replaced")


def test_a_pod_of_a_replica_of_several_takes_the_replica_with_it(served: Workbench) -> None:
    before = {pod["spec"]["hostname"]: pod for pod in served.pods()}
    served.delete("Pod", name_of(before["0-prefill-1-0"]))

    def replaced() -> dict[str, Object]:
        now = {pod["spec"]["hostname"]: pod for pod in served.pods()}
        gated = {hostname for hostname, pod in now.items() if is_gated(pod)}
        assert gated == {"0-prefill-1-0", "0-prefill-1-1"}
        return now

    now = eventually(replaced)
    assert {name for name, pod in now.items() if uid_of(pod) == uid_of(before[name])} == {
        "0-prefill-0-0",
        "0-prefill-0-1",
        "0-decode-0-0",
        "0-decode-1-0",
    }
    served.await_pods(6)
    eventually(lambda: "ReplicaReplaced" in served.events())

    def restarts() -> dict[str, int]:
        status = served.get("DisaggregatedInference", "llm").get("status", {})
        return {role["name"]: role["restarts"] for role in status.get("roles", ())}

    eventually(lambda: restarts() == {"prefill": 1, "decode": 0}, describe=lambda: str(restarts()))


def test_a_single_pod_is_replaced_alone(served: Workbench) -> None:
    before = served.pods()
    (lost,) = served.pods(role="decode", replica=0)
    served.cluster.api(
        "PATCH", f"{served.path('Pod', name_of(lost))}/status", {"status": {"phase": "Failed"}}, patch="strategic"
    )
    now = await_replaced(served, lost, 6)
    assert len(uids(before) & uids(now)) == 5
    (successor,) = served.pods(role="decode", replica=0)
    assert is_gated(successor)
    assert name_of(successor) != name_of(lost)


def test_an_address_never_means_two_pods(served: Workbench) -> None:
    (lost,) = served.pods(role="decode", replica=0)
    # It can be deleted, but does not go: somebody holds it back.
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    served.cluster.api("PATCH", served.path("Pod", name_of(lost)), held)
    with served.cluster.record(served.path("Pod")) as recording:
        served.delete("Pod", name_of(lost))
        recording.wait(
            lambda events: any(
                is_gated(pod) and pod["spec"]["hostname"] == "0-decode-0-0" and uid_of(pod) != uid_of(lost)
                for kind, pod in events
                if kind == "ADDED"
            )
        )
        holders: dict[str, str] = {}
        for kind, pod in recording.events:
            if pod["spec"]["hostname"] != "0-decode-0-0":
                continue
            holders.pop(uid_of(pod), None)
            if kind != "DELETED" and "covey.dev/address" in pod["metadata"]["labels"]:
                holders[uid_of(pod)] = name_of(pod)
            assert len(holders) <= 1
    served.cluster.api("PATCH", served.path("Pod", name_of(lost)), {"metadata": {"finalizers": None}})
    assert list(holders) != [uid_of(lost)]


def test_a_released_pod_is_replaced_alone(served: Workbench) -> None:
    served.change({"roles": served_roles(prefill=3)})
    one, other = served.await_pods(2, role="prefill", replica=2)
    served.unpin(one)
    served.unpin(other)
    annotation = {"metadata": {"annotations": {"scheduling.covey.dev/release": "Unschedulable"}}}
    served.cluster.api("PATCH", served.path("Pod", name_of(one)), annotation)

    def replaced() -> bool:
        pods = served.pods(role="prefill", replica=2)
        return len(pods) == 2 and uid_of(one) not in uids(pods) and any(map(is_gated, pods))

    eventually(replaced)
    assert uid_of(other) in uids(served.pods(role="prefill", replica=2))
    eventually(lambda: "Released" in served.events())


def served_roles(prefill: int = 2, decode: int = 2) -> list[Object]:
    from cluster.workbench import ROLES  # noqa: PLC0415 - a copy of what the resource was created with

    return [{**ROLES[0], "replicas": prefill}, {**ROLES[1], "replicas": decode}]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Workload", "llm"),
        ("CompositePodGroup", "llm-0"),
        ("CompositePodGroup", "llm-0-prefill"),
        ("PodGroup", "llm-0-prefill-1"),
        ("PodGroup", "llm-0-decode"),
        ("Service", "llm-pods"),
    ],
)
def test_a_deleted_object_comes_back_and_no_pod_is_touched(served: Workbench, kind: str, name: str) -> None:
    before = served.pods()
    old = served.get(kind, name)
    served.delete(kind, name)
    again = eventually(lambda: uid_of(served.get(kind, name)) != uid_of(old) and served.get(kind, name))
    assert again["spec"].keys() == old["spec"].keys()
    assert again["metadata"]["labels"] == old["metadata"]["labels"]
    assert uids(served.await_pods(6)) == uids(before)
    assert all(map(is_ready, served.pods()))


@pytest.mark.parametrize(
    ("kind", "name", "edit"),
    [
        ("PodGroup", "llm-0-decode", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
        ("PodGroup", "llm-0-decode", {"metadata": {"labels": {"covey.dev/role": "else"}}}),
        ("PodGroup", "llm-0-decode", {"metadata": {"labels": {"covey.dev/inference": None}}}),
        ("CompositePodGroup", "llm-0", {"spec": {"desiredGroupCount": 7}}),
        ("Service", "llm-pods", {"spec": {"selector": {"covey.dev/address": "else"}}}),
    ],
)
def test_an_edited_object_is_put_right(bench: Workbench, kind: str, name: str, edit: Object) -> None:
    bench.create()
    pods = bench.await_pods(6)
    old = bench.get(kind, name)
    edited = bench.cluster.api("PATCH", bench.path(kind, name), edit)
    assert edited["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]

    def right() -> bool:
        now = bench.get(kind, name)
        return now["spec"] == old["spec"] and now["metadata"]["labels"] == old["metadata"]["labels"]

    eventually(right)
    assert uids(bench.await_pods(6)) == uids(pods)


def test_what_others_add_stays(bench: Workbench) -> None:
    bench.create()
    bench.await_pods(6)
    bench.cluster.api("PATCH", bench.path("Service", "llm-pods"), {"metadata": {"labels": {"team": "search"}}})
    bench.cluster.api("PATCH", bench.path("PodGroup", "llm-0-decode"), {"metadata": {"annotations": {"note": "x"}}})
    bench.change({"roles": served_roles(decode=3)})
    bench.await_pods(7)
    assert bench.get("Service", "llm-pods")["metadata"]["labels"]["team"] == "search"
    group = bench.get("PodGroup", "llm-0-decode")
    assert group["metadata"]["annotations"]["note"] == "x"
    assert group["spec"]["desiredCount"] == 3


@pytest.mark.parametrize(
    "labels",
    [
        {"covey.dev/address": None},
        {"covey.dev/replica": "1"},
        {"covey.dev/role": None},
        {"scheduling.covey.dev/pod-group": "other"},
        {"covey.dev/inference": None},
    ],
)
def test_edited_labels_of_a_pod_are_put_right(served: Workbench, labels: Object) -> None:
    before = served.pods()
    pod = next(pod for pod in before if pod["spec"]["hostname"] == "0-prefill-0-0")
    served.cluster.api("PATCH", served.path("Pod", name_of(pod)), {"metadata": {"labels": labels}})

    eventually(lambda: covey_labels(served.get("Pod", name_of(pod))) == covey_labels(pod))
    assert uids(served.await_pods(6)) == uids(before)


def covey_labels(pod: Object) -> Object:
    return {key: value for key, value in pod["metadata"]["labels"].items() if "covey.dev/" in key}


# The controller-manager's pod garbage collection takes 45 to 80 seconds, and no flag of it changes that.
@pytest.mark.slow
def test_pods_of_a_node_that_is_gone_are_replaced(served: Workbench, nodes: Callable[..., list[str]]) -> None:
    before = served.pods()
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    served.change({"roles": served_roles(decode=3)})
    (pod,) = served.await_pods(1, role="decode", replica=2)
    served.bind([pod], node)
    served.cluster.delete_nodes([node])
    # Pod garbage collection of the controller-manager deletes the pod; a kubelet would confirm it.
    assert uids(before) <= uids(await_replaced(served, pod, 7, timeout=150))


def test_a_failure_while_the_operator_is_away(served: Workbench, operator: Process) -> None:
    before = {pod["spec"]["hostname"]: uid_of(pod) for pod in served.pods()}
    operator.kill()
    lost = next(pod for pod in served.pods() if pod["spec"]["hostname"] == "0-prefill-0-1")
    served.cluster.api("DELETE", f"{served.path('Pod', name_of(lost))}?gracePeriodSeconds=0")
    served.delete("PodGroup", "llm-0-prefill-0")
    operator.start()

    def replaced() -> bool:
        now = {pod["spec"]["hostname"]: uid_of(pod) for pod in served.pods()}
        changed = {hostname for hostname, uid in now.items() if before[hostname] != uid}
        return len(now) == 6 and changed == {"0-prefill-0-0", "0-prefill-0-1"}

    eventually(replaced)
    assert served.get("PodGroup", "llm-0-prefill-0")


@pytest.mark.parametrize("kind", ["Workload", "CompositePodGroup", "PodGroup", "Service", "ControllerRevision"])
def test_an_object_that_lost_its_label_gets_it_back(bench: Workbench, kind: str) -> None:
    """It is no longer seen, so it is created; and its name turns out to be taken by itself."""
    bench.create()
    bench.await_pods(6)
    found = bench.owned(kind)[0]
    path = bench.path(kind, name_of(found))
    bench.cluster.api("PATCH", path, {"metadata": {"labels": {"covey.dev/inference": None}}})

    def mended() -> bool:
        now = bench.get(kind, name_of(found))
        assert uid_of(now) == uid_of(found)
        return bool(now["metadata"].get("labels", {}).get("covey.dev/inference") == "llm")

    eventually(mended, describe="the label is back")
    assert len(bench.pods()) == 6


def test_a_spec_that_comes_back_is_in_force_again(bench: Workbench) -> None:
    first, second = template(nodeSelector={"a": "b"}), template(nodeSelector={"a": "c"})
    bench.create(role("decode", template=first))
    (revision,) = eventually(lambda: bench.owned("ControllerRevision"))

    def selectors() -> list[object]:
        return [pod["spec"].get("nodeSelector") for pod in bench.pods()]

    for wanted, number in ((second, 2), (first, 3)):
        bench.change({"roles": [role("decode", template=wanted)]})
        eventually(
            lambda wanted=wanted: selectors() == [wanted["spec"]["nodeSelector"]], describe=lambda: str(selectors())
        )
        eventually(
            lambda number=number: max(each["revision"] for each in bench.owned("ControllerRevision")) == number,
            describe=f"revision {number}",
        )
    assert bench.get("ControllerRevision", name_of(revision))["revision"] == 3
