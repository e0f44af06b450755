"""What is lost or edited is put right, and what is healthy is left alone."""

from __future__ import annotations

import pytest

from builders.manifests import Object, role, template
from cluster.workbench import is_gated, name_of, uid_of, uids
from stage import Stage
from stage.play import ROLES

HOLD = "example.com/hold"


@pytest.fixture
def served(stage: Stage) -> Stage:
    """A resource whose six pods are bound and Ready: two prefill replicas of two, two decode replicas of one."""
    stage.nodes()
    stage.create()
    stage.ready(6)
    return stage


def by_hostname(stage: Stage) -> dict[str, Object]:
    """Live pods by hostname, which is that of their place."""
    return {pod["spec"]["hostname"]: pod for pod in stage.pods()}


def renewed(stage: Stage, before: dict[str, Object]) -> set[str]:
    """The places whose pods are others than before, when all are Ready again."""
    stage.ready(len(before))
    now = by_hostname(stage)
    assert now.keys() == before.keys()
    return {hostname for hostname, pod in now.items() if uid_of(pod) != uid_of(before[hostname])}


def roles_of(prefill: int = 2, decode: int = 2) -> list[Object]:
    """The roles of a resource as it is created, with other numbers of replicas."""
    return [{**ROLES[0], "replicas": prefill}, {**ROLES[1], "replicas": decode}]


def test_pod_when_it_is_lost_takes_its_replica_of_several_with_it(served: Stage) -> None:
    before = by_hostname(served)
    served.delete("Pod", name_of(before["0-prefill-1-0"]))
    assert renewed(served, before) == {"0-prefill-1-0", "0-prefill-1-1"}
    assert served.event_notes("ReplicaReplaced")
    assert {role["name"]: role["restarts"] for role in served.status()["roles"]} == {"prefill": 1, "decode": 0}


def test_pod_when_it_fails_alone_in_its_replica_is_replaced_alone(served: Stage) -> None:
    before = by_hostname(served)
    lost = before["0-decode-0-0"]
    served.patch_status("Pod", name_of(lost), {"phase": "Failed"})
    assert renewed(served, before) == {"0-decode-0-0"}
    assert name_of(by_hostname(served)["0-decode-0-0"]) != name_of(lost)
    # Its successor had to wait for the scheduler process, as every pod does.
    assert served.was("Pod", lambda pod: is_gated(pod) and uid_of(pod) == uid_of(by_hostname(served)["0-decode-0-0"]))


def test_address_when_a_pod_cannot_go_is_its_successors_alone(served: Stage) -> None:
    before = by_hostname(served)
    lost = before["0-decode-0-0"]
    # It can be deleted, but does not go: somebody holds it back.
    served.patch("Pod", name_of(lost), {"metadata": {"finalizers": [HOLD]}})
    served.delete("Pod", name_of(lost))
    assert renewed(served, before) == {"0-decode-0-0"}
    holders: dict[str, str] = {}
    for event in served.history("Pod"):
        if event.object["spec"]["hostname"] == "0-decode-0-0":
            holders.pop(uid_of(event.object), None)
            if event.change != "DELETED" and "covey.dev/address" in event.object["metadata"]["labels"]:
                holders[uid_of(event.object)] = name_of(event.object)
            assert len(holders) <= 1
    assert list(holders) == [uid_of(by_hostname(served)["0-decode-0-0"])]
    assert uid_of(served.get("Pod", name_of(lost))) == uid_of(lost)
    served.patch("Pod", name_of(lost), {"metadata": {"finalizers": None}})


def test_pod_when_it_is_released_before_it_is_bound_is_replaced_alone(served: Stage) -> None:
    with served.away("scheduler"):
        served.change(roles=roles_of(prefill=3))
        served.settle()
        lost, other = served.pods(role="prefill", replica=2)
        for pod in (lost, other):
            served.patch("Pod", name_of(pod), [{"op": "remove", "path": "/spec/schedulingGates/0"}])
        released = {"metadata": {"annotations": {"scheduling.covey.dev/release": "Unschedulable"}}}
        served.patch("Pod", name_of(lost), released)
        served.settle()
        left = served.pods(role="prefill", replica=2)
        assert len(left) == 2
        assert uid_of(other) in uids(left)
        assert uid_of(lost) not in uids(left)
        assert any(map(is_gated, left))
        assert served.event_notes("Released")


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
def test_object_when_it_is_deleted_comes_back_and_no_pod_is_touched(served: Stage, kind: str, name: str) -> None:
    before, old = by_hostname(served), served.get(kind, name)
    served.delete(kind, name)
    assert not renewed(served, before)
    again = served.get(kind, name)
    assert uid_of(again) != uid_of(old)
    assert again["spec"].keys() == old["spec"].keys()
    assert again["metadata"]["labels"] == old["metadata"]["labels"]


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
def test_object_when_it_is_edited_is_put_right(served: Stage, kind: str, name: str, edit: Object) -> None:
    before, old = by_hostname(served), served.get(kind, name)
    edited = served.patch(kind, name, edit)
    assert edited["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
    assert not renewed(served, before)
    now = served.get(kind, name)
    assert now["spec"] == old["spec"]
    assert now["metadata"]["labels"] == old["metadata"]["labels"]


@pytest.mark.parametrize("kind", ["Workload", "CompositePodGroup", "PodGroup", "Service", "ControllerRevision"])
def test_object_when_it_lost_its_label_gets_it_back(served: Stage, kind: str) -> None:
    """It is no longer seen, so it is created; and its name turns out to be taken by itself."""
    before = by_hostname(served)
    old = served.owned(kind)[0]
    served.patch(kind, name_of(old), {"metadata": {"labels": {"covey.dev/inference": None}}})
    assert not renewed(served, before)
    now = served.get(kind, name_of(old))
    assert uid_of(now) == uid_of(old)
    assert now["metadata"]["labels"]["covey.dev/inference"] == "llm"


def test_object_when_others_add_to_it_keeps_that(served: Stage) -> None:
    served.patch("Service", "llm-pods", {"metadata": {"labels": {"team": "search"}}})
    served.patch("PodGroup", "llm-0-decode", {"metadata": {"annotations": {"note": "x"}}})
    served.change(roles=roles_of(decode=3))
    served.ready(7)
    assert served.get("Service", "llm-pods")["metadata"]["labels"]["team"] == "search"
    group = served.get("PodGroup", "llm-0-decode")
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
def test_labels_of_a_pod_when_they_are_edited_are_put_right(served: Stage, labels: Object) -> None:
    # One label of these says that it is in the place of another.
    served.excused.add("double")
    before = by_hostname(served)
    pod = before["0-prefill-0-0"]
    served.patch("Pod", name_of(pod), {"metadata": {"labels": labels}})
    assert not renewed(served, before)
    assert covey_labels(served.get("Pod", name_of(pod))) == covey_labels(pod)


def covey_labels(pod: Object) -> Object:
    """Those labels of a pod that Covey gives it."""
    return {key: value for key, value in pod["metadata"]["labels"].items() if "covey.dev/" in key}


def test_pod_when_its_node_is_deleted_is_replaced_alone(stage: Stage) -> None:
    stage.nodes(labels={"pool": "a"})
    [node] = stage.nodes(labels={"pool": "b"})
    pools = [role(name, template=template(nodeSelector={"pool": pool})) for name, pool in (("a", "a"), ("b", "b"))]
    stage.create(*pools)
    stage.ready(2)
    before = by_hostname(stage)
    stage.nodes(labels={"pool": "b"}, prefix="other-")
    stage.delete_nodes(node)
    assert renewed(stage, before) == {"0-b-0-0"}


def test_replica_when_it_is_broken_while_the_operator_is_away_is_made_anew_alone(served: Stage) -> None:
    before = by_hostname(served)
    with served.away("operator"):
        served.delete("Pod", name_of(before["0-prefill-0-1"]), grace=0)
        served.delete("PodGroup", "llm-0-prefill-0")
    assert renewed(served, before) == {"0-prefill-0-0", "0-prefill-0-1"}
    assert served.get("PodGroup", "llm-0-prefill-0")


def test_spec_when_it_comes_back_is_in_force_again_as_the_newest_revision(stage: Stage) -> None:
    stage.nodes(labels={"a": "b"}, nodes=2)
    first, second = (template(nodeSelector={"a": "b"}, terminationGracePeriodSeconds=end) for end in (0, 1))
    stage.create(role("decode", template=first))
    stage.settle()
    [revision] = stage.owned("ControllerRevision")
    for wanted, number in ((second, 2), (first, 3)):
        stage.change(roles=[role("decode", template=wanted)])
        [pod] = stage.ready(1)
        assert pod["spec"]["terminationGracePeriodSeconds"] == wanted["spec"]["terminationGracePeriodSeconds"]
        assert max(item["revision"] for item in stage.owned("ControllerRevision")) == number
    assert stage.get("ControllerRevision", name_of(revision))["revision"] == 3
