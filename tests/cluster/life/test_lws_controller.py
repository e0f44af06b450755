"""Groups of LeaderWorkerSets with the label ``covey.dev/gang``, made by LeaderWorkerSet's own controller, 0.9.0, and its webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from builders.manifests import Object
from cluster.conftest import AddNodes, Covey
from cluster.leader_worker_sets import Sets, covey
from cluster.lws import LWS, path_of, start_controller
from cluster.workbench import is_gated, name_of, uid_of
from localcluster import Cluster, Process, eventually
from scheduler_trees import node_of, pin_of

__all__ = ["covey"]

# The controller is built when it is wanted for the first time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("lws", "covey")]

_GANG: Final = {"covey.dev/gang": "true"}


class LeaderWorkerSets(Sets):
    """One namespace whose LeaderWorkerSets are as users write them."""

    def apply(
        self, name: str, size: int, replicas: int = 1, *, labels: Object | None = None, cpu: str = "1", **spec: Any
    ) -> None:
        """Create a LeaderWorkerSet or change it."""
        container = {"name": "engine", "image": spec.pop("image", "engine:1"), "resources": {"requests": {"cpu": cpu}}}
        template = {
            "metadata": {"labels": _GANG if labels is None else labels},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
        metadata = {"name": name, "namespace": self.namespace, "annotations": spec.pop("annotations", {})}
        template_spec = {"size": size, "workerTemplate": template}
        body = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": metadata}
        self.cluster.apply(body | {"spec": {"replicas": replicas, "leaderWorkerTemplate": template_spec, **spec}})

    def await_available(self, name: str, replicas: int) -> None:
        """Wait until the controller itself says that all groups of the newest revision are ready."""

        def available() -> bool:
            found = self.cluster.api("GET", path_of(self.namespace, name))
            status = found.get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            assert conditions.get("Available") == "True", str(status)
            counts = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
            assert counts == [replicas] * 3, str(status)
            return True

        eventually(available, 120, f"{name} is available")

    def clear(self) -> None:
        """Delete all, and wait until nothing makes pods any more."""
        self.cluster.api("DELETE", f"{path_of(self.namespace)}?propagationPolicy=Background")
        path = f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets"
        eventually(lambda: not self.cluster.api("GET", path)["items"], 60, "no StatefulSet is left")


@pytest.fixture(scope="module")
def lws(cluster: Cluster) -> Iterator[Process]:
    """LeaderWorkerSet's controller and webhooks."""
    try:
        yield start_controller(cluster)
    finally:
        for each in ("mutating", "validating"):
            name = f"lws-{each}-webhook-configuration"
            cluster.kubectl("delete", "--ignore-not-found", f"{each}webhookconfiguration", name)
        cluster.forget("lws")


@pytest.fixture
def sets(cluster: Cluster, namespace: str) -> Iterator[LeaderWorkerSets]:
    made = LeaderWorkerSets(cluster, namespace)
    yield made
    made.clear()


def test_each_group_starts_whole_and_by_itself(sets: LeaderWorkerSets, nodes: AddNodes) -> None:
    """Room for one group of two: none of the other's pods is bound until there is room for all three."""
    nodes(blocks=1, racks=1, nodes=1, cpu="4")
    with sets.cluster.record(sets.path("Pod")) as recording:
        sets.apply("llm", 3, replicas=2)
        members = {leader: sets.await_members(leader, 3) for leader in ("llm-0", "llm-1")}
        first = eventually(lambda: next((each for each in members if all(map(node_of, sets.group_of(each)))), None), 90)
        (second,) = members.keys() - {first}
        group = sets.get("PodGroup", first)
        assert group["spec"] == {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "desiredCount": 3,
            "membership": "Namespace",
        }
        assert all(map(is_gated, sets.group_of(second)))
        nodes(blocks=1, racks=1, nodes=1, cpu="4")
        sets.await_bound(second, 3)
        sets.await_available("llm", 2)
    assert recording.events
    for kind, pod in recording.events:
        # What its webhook writes is there too, whichever came first.
        labels = pod["metadata"]["labels"]
        assert labels["scheduling.covey.dev/pod-group"] == f"llm-{labels[f'{LWS}/group-index']}"
        environment = {each["name"] for each in pod["spec"]["containers"][0]["env"]}
        assert {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX"} <= environment
        assert kind != "ADDED" or is_gated(pod)


def test_a_group_that_lost_a_pod_is_made_anew_and_starts_whole(sets: LeaderWorkerSets, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    sets.apply("llm", 3)
    sets.await_bound("llm-0", 3)
    sets.await_available("llm", 1)
    before = {uid_of(pod) for pod in sets.group_of("llm-0")}
    group = uid_of(sets.get("PodGroup", "llm-0"))
    sets.delete("Pod", "llm-0-1")
    eventually(
        lambda: len(after := {uid_of(pod) for pod in sets.group_of("llm-0")}) == 3 and not after & before,
        90,
        "all three are made anew",
    )
    sets.await_bound("llm-0", 3)
    sets.await_available("llm", 1)
    assert uid_of(sets.get("PodGroup", "llm-0")) != group


def test_a_gang_that_lost_its_place_before_it_ran_is_made_anew(
    sets: LeaderWorkerSets, nodes: AddNodes, covey_to_kill: Covey
) -> None:
    [first, _] = nodes(blocks=1, racks=1, nodes=2)
    covey_to_kill.kube_scheduler.pause()  # so that the gang is pinned, and nothing of it is bound
    sets.apply("llm", 2)

    def pinned() -> list[Object]:
        pods = [pod for pod in sets.group_of("llm-0") if pin_of(pod) and not is_gated(pod)]
        assert len(pods) == 2
        return pods

    before = eventually(pinned, 60, "the gang is pinned")
    lost = str(pin_of(before[0]) or first)
    sets.cluster.kubectl("cordon", lost)
    eventually(
        lambda: not {uid_of(pod) for pod in sets.group_of("llm-0")} & {uid_of(pod) for pod in before},
        90,
        "none of the former pods is left",
    )
    covey_to_kill.kube_scheduler.resume()
    sets.await_bound("llm-0", 2)
    assert lost not in {node_of(pod) for pod in sets.group_of("llm-0")}
    sets.await_available("llm", 1)


def test_groups_come_go_and_are_rolled_by_the_controller(sets: LeaderWorkerSets, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    sets.apply("llm", 2)
    sets.await_available("llm", 1)
    sets.apply("llm", 2, replicas=3)
    sets.await_available("llm", 3)
    old = {uid_of(pod) for pod in sets.pods()}
    sets.apply("llm", 2, replicas=3, image="engine:2")
    eventually(lambda: not {uid_of(pod) for pod in sets.pods()} & old, 120, "all pods are new")
    sets.await_available("llm", 3)
    sets.apply("llm", 2, replicas=1, image="engine:2")
    sets.await_available("llm", 1)
    eventually(
        lambda: sorted(map(name_of, sets.all("PodGroup"))) == ["llm-0"], 60, "groups that are gone leave nothing"
    )
    # Workers go after their StatefulSet, which goes after the leader.
    eventually(lambda: sorted(map(name_of, sets.pods())) == ["llm-0", "llm-0-1"], 60, "neither do their pods")


def test_what_cannot_start_together_says_so(sets: LeaderWorkerSets, nodes: AddNodes) -> None:
    """An exclusive topology is refused where pods are made; with LeaderReady the leader waits for workers, which wait for it."""
    nodes(blocks=1, racks=1, nodes=1)
    sets.apply("one", 2, annotations={f"{LWS}/exclusive-topology": "rack"})
    sets.apply("two", 2, startupPolicy="LeaderReady")

    def said() -> bool:
        events = sets.cluster.api("GET", f"/api/v1/namespaces/{sets.namespace}/events")["items"]
        return any("makes workers only once their leader has a node" in each["message"] for each in events)

    eventually(said, 60, "an Event of the StatefulSet has the sentence")
    group = eventually(lambda: sets.get("PodGroup", "two-0"), 60, "the group is there")
    eventually(
        lambda: [each["status"] for each in sets.get("PodGroup", "two-0").get("status", {}).get("conditions", [])],
        60,
        "the group says why it waits",
    )
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    [leader] = sets.group_of("two-0")
    assert is_gated(leader)
    assert not [pod for pod in sets.pods() if name_of(pod).startswith("one-")]


def test_without_the_label_nothing_is_changed(sets: LeaderWorkerSets, nodes: AddNodes) -> None:
    nodes(blocks=1, racks=1, nodes=1)
    sets.apply("llm", 2, labels={})
    pods = eventually(lambda: found if len(found := sets.pods()) == 2 else None, 60, "its pods are there")
    for pod in pods:
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert "schedulingGates" not in pod["spec"]
        assert not {key for key in pod["metadata"]["labels"] if "covey" in key}
    assert sets.all("PodGroup") == []
