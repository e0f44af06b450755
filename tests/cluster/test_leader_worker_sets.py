"""Groups of LeaderWorkerSets with the label ``covey.dev/gang``, from StatefulSets as its controller writes them.

The real StatefulSet controller makes the pods; the test makes the workers' StatefulSet once the leader's pod is there, as that
controller does (``startupPolicy: LeaderCreated``). The controller itself: ``life/test_lws_controller.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml
from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.workbench import Workbench, is_gated, name_of, uid_of
from localcluster import Cluster, eventually, status_of
from localcluster.programs import ROOT, scheduler_config
from scheduler_trees import node_of, pin_of

pytestmark = pytest.mark.usefixtures("covey")

_LWS: Final = "leaderworkerset.sigs.k8s.io"
_COMPONENT: Final = ROOT / "manifests" / "components" / "leader-worker-sets"
_FILES: Final = (
    _COMPONENT / "policies.yaml",
    _COMPONENT / "rights.yaml",
    ROOT / "manifests" / "base" / "admission-policy.yaml",
)


@dataclass(frozen=True)
class Sets(Workbench):
    """One namespace with the StatefulSets of a LeaderWorkerSet."""

    def make(
        self, name: str, labels: Object, annotations: Object, *, replicas: int, start: int = 0, **more: Any
    ) -> None:
        """Create a StatefulSet."""
        labels = {f"{_LWS}/{key}": value for key, value in labels.items()} | more.pop(
            "marks", {"covey.dev/gang": "true"}
        )
        container = {"name": "engine", "image": "engine", "resources": {"requests": {"cpu": more.pop("cpu", "1")}}}
        annotations = {f"{_LWS}/{key}": value for key, value in annotations.items()}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 0, **more.pop("pod", {})}
        body = {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "serviceName": "lws",
            "ordinals": {"start": start},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        }
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets"
        self.cluster.api("POST", path, {"metadata": {"name": name}, "spec": body})

    def leaders(
        self, name: str, size: int, replicas: int = 1, *, annotations: Object | None = None, **more: Any
    ) -> None:
        notes = {"size": str(size), **(annotations or {})}
        self.make(name, {"name": name, "worker-index": "0"}, notes, replicas=replicas, **more)

    def workers(self, name: str, group: int, size: int, **more: Any) -> None:
        """Those of one group; what its webhook adds, the index, says nothing to Covey."""
        leader = f"{name}-{group}"
        labels = {"name": name, "group-index": str(group)}
        notes = {"size": str(size), "leader-name": leader}
        self.make(leader, labels, notes, replicas=size - 1, start=1, **more)

    def group_of(self, leader: str) -> list[Object]:
        named = (
            pod for pod in self.pods() if pod["metadata"]["labels"].get("scheduling.covey.dev/pod-group") == leader
        )
        return sorted(named, key=name_of)

    def await_members(self, leader: str, count: int) -> list[Object]:
        def there() -> list[Object]:
            found = self.group_of(leader)
            assert len(found) == count, f"{len(found)} pods"
            return found

        return eventually(there, 60, f"{count} pods of {leader}")

    def await_bound(self, leader: str, count: int) -> None:
        def bound() -> bool:
            found = [name_of(pod) for pod in self.group_of(leader) if node_of(pod)]
            assert len(found) == count, str(found)
            return True

        eventually(bound, 90, f"{leader} is bound")


def policies() -> list[Object]:
    return [each for file in _FILES for each in yaml.safe_load_all(file.read_text())]


def is_in_force(cluster: Cluster) -> bool:
    """Tell whether a pod gets the gate that LeaderWorkerSet's own webhook would take, where there is one."""
    labels = {"covey.dev/gang": "true", f"{_LWS}/name": "probe", f"{_LWS}/worker-index": "0"}
    metadata = {"name": "probe-0", "labels": labels, "annotations": {f"{_LWS}/size": "1"}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    made = cluster.api("POST", "/api/v1/namespaces/default/pods?dryRun=All", body)
    return "schedulingGates" in made["spec"]


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Iterator[Covey]:
    made = policies()
    cluster.apply(made)
    try:
        eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
        eventually(lambda: is_in_force(cluster), 60, "the policies are in force")
        operator = cluster.start_covey("operator", "--leader-worker-sets")
        scheduler = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(scheduler))
        yield Covey(operator, scheduler, cluster.processes["kube-scheduler"])
    finally:
        cluster.stop_all()
        for each in made:
            cluster.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


@pytest.fixture
def sets(cluster: Cluster, namespace: str) -> Iterator[Sets]:
    yield Sets(cluster, namespace)
    cluster.api("DELETE", f"/apis/apps/v1/namespaces/{namespace}/statefulsets?propagationPolicy=Background")


def test_each_group_starts_whole_and_by_itself(sets: Sets, nodes: AddNodes) -> None:
    """The leader waits for its workers, which another controller makes."""
    nodes(blocks=1, racks=1, nodes=1)
    sets.leaders("llm", 3, replicas=2)
    for leader in ("llm-0", "llm-1"):
        sets.await_members(leader, 1)
    group = eventually(lambda: sets.get("PodGroup", "llm-0"), 30, "the group is there")
    assert group["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "desiredCount": 3,
        "membership": "Namespace",
    }
    sets.workers("llm", 0, 3)
    sets.await_bound("llm-0", 3)
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in sets.group_of("llm-0")}
    assert len(owners) == 2, "of two StatefulSets"
    assert all(map(is_gated, sets.group_of("llm-1")))


def test_the_group_goes_with_its_leader_and_comes_with_the_next(sets: Sets, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    sets.leaders("llm", 2)
    [leader] = sets.await_members("llm-0", 1)
    first = eventually(lambda: sets.get("PodGroup", "llm-0"), 30, "the group is there")
    sets.delete("Pod", "llm-0")

    def renewed() -> bool:
        found = sets.get("PodGroup", "llm-0")
        assert uid_of(found) != uid_of(first)
        return found["metadata"]["ownerReferences"][0]["uid"] == uid_of(sets.get("Pod", "llm-0")) != uid_of(leader)

    eventually(renewed, 90, "the next leader has its own group")
    sets.workers("llm", 0, 2)
    sets.await_bound("llm-0", 2)


def test_a_pod_beyond_the_size_of_a_group_is_no_member(sets: Sets, nodes: AddNodes) -> None:
    """Any pod of the namespace may name the group; those that were there first count, and it never grows."""
    nodes(blocks=1, racks=1, nodes=1)
    sets.leaders("llm", 2)
    sets.workers("llm", 0, 2)
    sets.await_bound("llm-0", 2)
    spec: Object = {"schedulerName": "covey-scheduler", "schedulingGates": [{"name": "scheduling.covey.dev/gang"}]}
    spec["containers"] = [{"name": "a", "image": "a"}]
    labels = {"scheduling.covey.dev/pod-group": "llm-0"}
    sets.cluster.api("POST", sets.path("Pod"), {"metadata": {"name": "late", "labels": labels}, "spec": spec})
    sets.leaders("other", 1)
    sets.await_bound("other-0", 1)
    assert is_gated(sets.get("Pod", "late"))


def test_a_pod_that_lost_its_place_is_replaced(sets: Sets, nodes: AddNodes, covey_to_kill: Covey) -> None:
    [first, _] = nodes(blocks=1, racks=1, nodes=2)
    covey_to_kill.kube_scheduler.pause()  # so that the gang is pinned, and nothing of it is bound
    sets.leaders("llm", 2)
    sets.workers("llm", 0, 2)

    def pinned() -> list[Object]:
        pods = [pod for pod in sets.group_of("llm-0") if pin_of(pod) and not is_gated(pod)]
        assert len(pods) == 2
        return pods

    before = eventually(pinned, 60, "the gang is pinned")
    sets.cluster.kubectl("cordon", str(pin_of(before[0]) or first))

    def replaced() -> bool:
        live = {uid_of(pod) for pod in sets.group_of("llm-0")}
        return len(live) == 2 and not live & {uid_of(pod) for pod in before}

    eventually(replaced, 90, "their successors are there")
    covey_to_kill.kube_scheduler.resume()
    sets.await_bound("llm-0", 2)


def test_pods_without_the_label_are_stored_as_before(sets: Sets) -> None:
    """Of a LeaderWorkerSet without it, of nobody's with it, and Covey's own with LeaderWorkerSet's labels."""
    name = {f"{_LWS}/name": "llm"}
    spec = {"containers": [{"name": "a", "image": "a"}]}
    for labels in (name, {"covey.dev/gang": "true"}, {**name, "covey.dev/gang": "true", "covey.dev/inference": "llm"}):
        body = {"metadata": {"name": "a", "labels": labels}, "spec": spec}
        made = sets.cluster.api("POST", f"{sets.path('Pod')}?dryRun=All", body)
        assert made["metadata"]["labels"] == labels
        assert made["spec"]["schedulerName"] == "default-scheduler"
        assert "schedulingGates" not in made["spec"]


def test_an_exclusive_topology_is_refused_by_a_sentence(sets: Sets) -> None:
    labels = {f"{_LWS}/name": "llm", "covey.dev/gang": "true"}
    metadata = {"name": "llm-0", "labels": labels, "annotations": {f"{_LWS}/exclusive-topology": "rack"}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    with pytest.raises(ApiException) as caught:
        sets.cluster.api("POST", sets.path("Pod"), body)
    assert "makes workers only once their leader has a node" in str(status_of(caught.value)["message"])
