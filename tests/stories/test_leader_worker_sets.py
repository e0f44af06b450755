"""Groups of LeaderWorkerSets with the label ``covey.dev/gang``, from StatefulSets as its controller writes them.

The real StatefulSet controller makes the pods; the story makes the workers' StatefulSet once the leader's pod is there, as
that controller does (``startupPolicy: LeaderCreated``). The controller itself: ``cluster/life/test_lws_controller.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.leader_worker_sets import Sets, is_in_force, policies
from cluster.workbench import is_gated, uid_of, uids
from localcluster import status_of
from scheduler_trees import node_of, pin_of
from stage import Ground, Stage

_LWS: Final = "leaderworkerset.sigs.k8s.io"
_MARK: Final = {"covey.dev/gang": "true"}
_GATE: Final = {"name": "scheduling.covey.dev/gang"}


@pytest.fixture(scope="module", autouse=True)
def component(ground: Ground) -> Iterator[None]:
    """The component is installed."""
    made = policies()
    ground.cluster.apply(made)
    ground.wait(lambda: is_in_force(ground.cluster), "the policies are in force")
    yield
    for item in made:
        ground.cluster.kubectl("delete", item["kind"], item["metadata"]["name"])


@pytest.fixture
def sets(stage: Stage) -> Sets:
    """Makes the StatefulSets; Covey's operator looks for their pods."""
    stage.restart(operator={"leader_worker_sets": True})
    stage.after(
        lambda: stage.cluster.api(
            "DELETE", f"/apis/apps/v1/namespaces/{stage.namespace}/statefulsets?propagationPolicy=Background"
        )
    )
    stage.nodes(nodes=2)
    stage.claim_nodes()
    return Sets(stage.cluster, stage.namespace)


def members(stage: Stage, leader: str, count: int) -> list[Object]:
    """The pods of a group once there are so many, at rest."""

    def found() -> list[Object]:
        return [
            pod for pod in stage.pods() if pod["metadata"]["labels"].get("scheduling.covey.dev/pod-group") == leader
        ]

    stage.await_event(lambda: len(found()) == count, f"{count} pods of {leader}")
    stage.settle()
    return found()


def bound(stage: Stage, leader: str, count: int) -> list[Object]:
    """The pods of a group at rest: so many, all bound."""
    pods = members(stage, leader, count)
    assert sum(bool(node_of(pod)) for pod in pods) == count
    return pods


def test_group_starts_whole_and_by_itself_once_its_workers_are_there(stage: Stage, sets: Sets) -> None:
    sets.leaders("llm", 3, replicas=2)
    for leader in ("llm-0", "llm-1"):
        members(stage, leader, 1)
    assert stage.get("PodGroup", "llm-0")["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "desiredCount": 3,
        "membership": "Namespace",
    }
    sets.workers("llm", 0, 3)
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in bound(stage, "llm-0", 3)}
    assert len(owners) == 2, "of two StatefulSets"
    assert all(map(is_gated, members(stage, "llm-1", 1)))


def test_group_goes_with_its_leader_and_comes_with_the_next(stage: Stage, sets: Sets) -> None:
    sets.leaders("llm", 2)
    [before] = members(stage, "llm-0", 1)
    first = stage.get("PodGroup", "llm-0")
    stage.delete("Pod", "llm-0")
    stage.await_event(
        lambda: uid_of(before) not in uids(stage.pods()) and bool(stage.pods()), "the next leader is there"
    )
    stage.await_event(
        lambda: any(uid_of(group) != uid_of(first) for group in stage.all("PodGroup")), "its group is there"
    )
    stage.settle()
    assert stage.get("PodGroup", "llm-0")["metadata"]["ownerReferences"][0]["uid"] == uid_of(stage.get("Pod", "llm-0"))
    sets.workers("llm", 0, 2)
    bound(stage, "llm-0", 2)


def test_pod_when_it_is_beyond_the_size_of_its_group_is_no_member(stage: Stage, sets: Sets) -> None:
    """Any pod of the namespace may name the group; those that were there first count, and it never grows."""
    sets.leaders("llm", 2)
    sets.workers("llm", 0, 2)
    bound(stage, "llm-0", 2)
    spec: Object = {"schedulerName": "covey-scheduler", "schedulingGates": [_GATE]}
    spec["containers"] = [{"name": "a", "image": "a"}]
    metadata = {"name": "late", "labels": {"scheduling.covey.dev/pod-group": "llm-0"}}
    stage.cluster.api("POST", stage.path("Pod"), {"metadata": metadata, "spec": spec})
    sets.leaders("other", 1)
    bound(stage, "other-0", 1)
    assert is_gated(stage.get("Pod", "late"))
    # It would be a member of the group that comes after this one.
    stage.delete("Pod", "late", grace=0)


def test_pods_when_one_of_them_loses_its_place_before_the_bind_are_replaced(stage: Stage, sets: Sets) -> None:
    with stage.away("kube-scheduler"):
        sets.leaders("llm", 2)
        sets.workers("llm", 0, 2)
        before = members(stage, "llm-0", 2)
        assert all(map(pin_of, before))
        stage.cordon(str(pin_of(before[0])))
        stage.await_event(
            lambda: len(stage.pods()) == 2 and not uids(stage.pods()) & uids(before), "their successors are there"
        )
    bound(stage, "llm-0", 2)


@pytest.mark.parametrize(
    "labels",
    [
        {f"{_LWS}/name": "llm"},
        {f"{_LWS}/name": "llm", "covey.dev/gang": "false"},
        _MARK,
        {f"{_LWS}/name": "llm", **_MARK, "covey.dev/inference": "llm"},
    ],
    ids=["of a LeaderWorkerSet without the label", "that says no", "of nobody's with it", "Covey's own"],
)
def test_pod_when_it_is_not_meant_is_stored_as_it_was(stage: Stage, labels: Object) -> None:
    body = {"metadata": {"name": "a", "labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    made: Any = stage.cluster.api("POST", f"{stage.path('Pod')}?dryRun=All", body)
    assert made["metadata"]["labels"] == labels
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert "schedulingGates" not in made["spec"]


def test_worker_when_its_leader_lacks_the_label_is_told_so(stage: Stage, sets: Sets) -> None:
    """The leader starts by itself, and nobody makes the group for which the worker waits."""
    sets.leaders("llm", 2, marks={})
    sets.workers("llm", 0, 2)
    [worker] = members(stage, "llm-0", 1)
    assert is_gated(worker)
    [note] = stage.event_notes("Unsupported")
    assert "leader llm-0 lacks the label covey.dev/gang" in note


def test_exclusive_topology_is_refused_by_a_sentence(stage: Stage) -> None:
    labels = {f"{_LWS}/name": "llm", **_MARK}
    metadata = {"name": "llm-0", "labels": labels, "annotations": {f"{_LWS}/exclusive-topology": "rack"}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    with pytest.raises(ApiException) as caught:
        stage.cluster.api("POST", stage.path("Pod"), body)
    assert "makes workers only once their leader has a node" in str(status_of(caught.value)["message"])
