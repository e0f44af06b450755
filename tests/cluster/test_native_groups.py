"""Groups of ``scheduling.k8s.io`` as their own controllers make them, planned by Covey (Kubernetes 1.37)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from kubernetes.client import ApiException

from builders.manifests import Object
from builders.members import RELEASE
from cluster.namespaces import empty_namespace, make_namespace
from cluster.native_groups import FLAGS, GATES, RACK, RIGHTS, Foreign, name_of, pod_spec, start_covey
from cluster.workbench import is_gated
from localcluster import Cluster, Nodes, eventually, status_of
from localcluster.programs import ROOT
from scheduler_trees import node_of, pin_of
from scrapes import Scrape


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """2 blocks of 2 racks of 2 nodes, and everything of Covey with native groups switched on."""
    with Cluster(gates=GATES, flags=FLAGS) as running:
        running.add_nodes(Nodes(blocks=2, racks=2, nodes=2))
        running.install_rbac()
        running.install_rbac(RIGHTS)
        running.install_account_policies()
        running.apply((ROOT / "manifests" / "base" / "admission-policy.yaml").read_text())
        running.apply(yaml.safe_load((ROOT / "examples" / "topology.yaml").read_text()))
        start_covey(running)
        yield running
        assert not running.account_denials()


@pytest.fixture
def foreign(cluster: Cluster) -> Iterator[Foreign]:
    made = Foreign(cluster, make_namespace(cluster))
    yield made
    empty_namespace(cluster, made.namespace)


def job(pods: int, scheduling: Object, cpu: str = "1", **spec: Any) -> Object:
    template = {"spec": pod_spec(cpu, restartPolicy="Never")}
    return {"parallelism": pods, "completions": pods, "scheduling": scheduling, "template": template, **spec}


def test_a_job_with_scheduling_of_its_own_starts_whole(foreign: Foreign) -> None:
    """Upstream's Job controller makes Workload and PodGroup (``WorkloadWithJob``); no label, no policy of Covey's."""
    foreign.make("Job", "train", job(3, {"schedulingPolicy": {"gang": {"minCount": 3}}}))

    def complete() -> bool:
        status = foreign.cluster.api("GET", foreign.path("Job", "train"))["status"]
        assert status.get("succeeded") == 3, str(status)
        assert not status.get("failed")
        return True

    eventually(complete, 90, "the Job is done")


def test_later_completions_of_a_job_wait_for_nobody(foreign: Foreign) -> None:
    """5 completions of 2 at a time: the last pod is fewer than the gang was. And whoever has ended waits for nothing."""
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    foreign.make("Job", "many", job(2, gang, completions=5))

    def complete() -> bool:
        status = foreign.cluster.api("GET", foreign.path("Job", "many"))["status"]
        assert status.get("succeeded") == 5, str(status)
        return True

    eventually(complete, 120, "the Job is done")
    assert foreign.cluster.api("GET", foreign.path("PodGroup"))["items"]

    def nobody_waits() -> bool:
        with urlopen(foreign.cluster.processes["covey-scheduler"].metrics_url) as answer:
            return Scrape.parse(answer.read().decode())("covey_gangs_waiting") == 0

    eventually(nobody_waits, 30, "no gang waits")


def test_pods_of_any_controllers_are_one_gang(foreign: Foreign) -> None:
    """As LeaderWorkerSet makes them (KEP-666): a flat PodGroup a replica; leader and workers have different owners."""
    leader, workers = foreign.owner("leader"), foreign.owner("workers")
    foreign.gang("lws-0", 3)
    foreign.pods("lws-0", 2, owners=[workers])
    message = foreign.await_condition("lws-0", "False", "Waiting")
    assert message
    assert all(map(is_gated, foreign.of_group("lws-0")))
    body = pod_spec(schedulingGroup={"podGroupName": "lws-0"})
    foreign.make("Pod", "lws-0-leader", body, ownerReferences=[leader])
    foreign.await_bound("lws-0", 3)
    foreign.await_condition("lws-0", "True", "Admitted")
    found = foreign.cluster.api("GET", foreign.path("PodGroup", "lws-0"))
    assert found["status"].keys() == {"conditions"}


def test_a_tree_starts_whole_in_the_domains_that_it_asks_for(foreign: Foreign) -> None:
    """As Grove makes them: groups of groups, each with its minimum, and a label of nodes in place of a level."""
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    foreign.composite("set-0", 2, **rack)
    foreign.composite("prefill", 2, "set-0")
    for name in ("prefill-0", "prefill-1", "prefill-2"):
        foreign.gang(name, 2, "prefill")
    foreign.gang("router", 1, "set-0")
    for name, count in (("prefill-0", 2), ("prefill-1", 1), ("router", 1)):
        foreign.pods(name, count)
    foreign.await_condition("set-0", "False", "Waiting", "CompositePodGroup")
    assert not [name_of(pod) for pod in foreign.all_pods() if node_of(pod)]
    foreign.pods("prefill-2", 2)
    for name, count in (("prefill-0", 2), ("prefill-2", 2), ("router", 1)):
        foreign.await_bound(name, count)
    assert foreign.racks([pod for pod in foreign.all_pods() if node_of(pod)]) == 1
    assert all(map(is_gated, foreign.of_group("prefill-1")))
    foreign.await_condition("set-0", "True", "Admitted", "CompositePodGroup")


def test_a_gang_without_room_starts_nothing_and_its_status_says_why(foreign: Foreign) -> None:
    """A rack has two nodes: of three pods of a node each in one rack none starts; the others' minimum does."""
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    foreign.gang("big", 3, **rack)
    foreign.pods("big", 3, cpu="100")
    assert foreign.await_condition("big", "False", "Infeasible")
    foreign.gang("small", 1)
    foreign.pods("small", 2)
    foreign.await_bound("small", 2)
    assert all(map(is_gated, foreign.of_group("big")))
    # Upstream's minCount can be changed from 1.37 on; what is above it has to wait for room.
    policy = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    foreign.cluster.api("PATCH", foreign.path("PodGroup", "big"), policy)
    assert foreign.racks(foreign.await_bound("big", 2)) == 1


def test_what_cannot_be_carried_is_refused_by_name(foreign: Foreign) -> None:
    claims = [{"name": "shared", "resourceClaimName": "shared"}]
    foreign.gang("claims", 1, resourceClaims=claims)
    foreign.pods("claims", 1)
    message = foreign.await_condition("claims", "False", "Unsupported")
    assert message.startswith(
        "spec.resourceClaims of PodGroup claims: Covey plans no claims that the pods of a group share"
    )
    foreign.gang("elsewhere", 1, schedulingConstraints={"topology": [{"key": "example.com/cage"}]})
    foreign.pods("elsewhere", 1)
    message = foreign.await_condition("elsewhere", "False", "InvalidTopology")
    assert "no level of topology" in message
    assert "example.com/cage" in message
    assert all(map(is_gated, foreign.all_pods()))


def test_pods_of_a_deleted_group_stay_gated(foreign: Foreign) -> None:
    """The group goes as soon as its deletion was asked for, whatever finalizer keeps its object (J6)."""
    foreign.gang("gone", 2)
    foreign.pods("gone", 1)
    foreign.await_condition("gone", "False", "Waiting")
    foreign.cluster.api("DELETE", foreign.path("PodGroup", "gone"))
    body = pod_spec(schedulingGroup={"podGroupName": "gone"})
    foreign.make("Pod", "gone-late", body)
    foreign.gang("other", 1)
    foreign.pods("other", 1)
    foreign.await_bound("other", 1)
    assert all(map(is_gated, foreign.of_group("gone")))


def test_pinned_pods_when_their_group_is_deleted_lose_their_places(foreign: Foreign) -> None:
    """The group waits for its pods (``podgroup-protection``), and they for the group."""
    cluster = foreign.cluster
    kube_scheduler = cluster.processes["kube-scheduler"]
    owners = [foreign.owner()]

    def await_pinned(name: str) -> None:
        foreign.gang(name, 2)
        foreign.pods(name, 2, owners=owners)
        eventually(lambda: [*map(pin_of, foreign.of_group(name))].count(None) == 0, 60, f"{name} is pinned")

    kube_scheduler.pause()
    try:
        await_pinned("gone")
        cluster.api("DELETE", foreign.path("PodGroup", "gone"))
        await_pinned("later")  # by then the deletion has been seen
        kept = [pod for pod in foreign.of_group("gone") if RELEASE not in pod["metadata"].get("annotations", {})]
        assert [*map(name_of, kept)] == []
    finally:
        kube_scheduler.resume()


def test_pods_that_lost_their_places_are_replaced(foreign: Foreign) -> None:
    """With ``backoffLimit: 0`` one failure would be the end of the Job (J3)."""
    cluster = foreign.cluster
    kube_scheduler = cluster.processes["kube-scheduler"]
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    kube_scheduler.pause()  # so that the gang is pinned, and nothing of it is bound
    cordoned: set[str] = set()
    try:
        gang = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        foreign.make("Job", "train", job(2, gang, backoffLimit=0, podFailurePolicy={"rules": [ignored]}))

        def pinned() -> list[Object]:
            pods = foreign.all_pods()
            assert len([pod for pod in pods if pin_of(pod) and not is_gated(pod)]) == 2
            return pods

        before = eventually(pinned, 60, "the gang is pinned")
        cordoned = {str(pin_of(pod)) for pod in before}
        for node in cordoned:
            cluster.kubectl("cordon", node)

        def replaced() -> bool:
            live = {pod["metadata"]["uid"] for pod in foreign.all_pods()}
            assert len(live) == 2
            return not live & {pod["metadata"]["uid"] for pod in before}

        eventually(replaced, 90, "their successors are there")
    finally:
        kube_scheduler.resume()
        for node in cordoned:
            cluster.kubectl("uncordon", node)

    def complete() -> bool:
        status = cluster.api("GET", foreign.path("Job", "train"))["status"]
        assert status.get("succeeded") == 2, str(status)
        return not status.get("failed")

    eventually(complete, 120, "the Job is done")


def test_a_namesake_of_covey_s_own_is_another_group(foreign: Foreign) -> None:
    """Neither takes the other's pods, and no label can name a native group."""
    own = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{foreign.namespace}/podgroups"
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    made = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "same"}}
    foreign.cluster.api("POST", own, {**made, "spec": policy})
    foreign.gang("same", 2)
    foreign.pods("same", 1)
    labels = {"scheduling.covey.dev/pod-group": "same"}
    foreign.make("Pod", "labelled", pod_spec(), labels=labels)
    foreign.await_condition("same", "False", "Waiting")
    assert all(map(is_gated, foreign.all_pods()))
    with pytest.raises(ApiException) as caught:
        foreign.make("Pod", "forged", pod_spec(), labels={**labels, **dict.fromkeys(labels, "scheduling.k8s.io/same")})
    assert "a valid label must" in str(status_of(caught.value)["message"])
    body = pod_spec(schedulingGroup={"podGroupName": "same"})
    foreign.make("Pod", "second", body)
    foreign.await_bound("same", 2)
    assert is_gated(foreign.cluster.api("GET", foreign.path("Pod", "labelled")))


def test_what_a_tenant_writes_into_groups_stops_nobody(foreign: Foreign) -> None:
    """Circles, a tree that is too deep, a parent that never comes, the greatest number: others start."""
    foreign.composite("a", 1, "b")
    foreign.composite("b", 1, "a")
    foreign.gang("in-a-circle", 1, "a")
    for number in range(6):
        foreign.composite(f"deep-{number}", 1, f"deep-{number - 1}" if number else "")
    foreign.gang("at-the-bottom", 1, "deep-5")
    foreign.gang("in-the-middle", 1, "deep-2")
    foreign.gang("orphan", 1, "nobody")
    foreign.gang("vast", 2**31 - 1)
    foreign.composite("vast", 2**31 - 1)
    foreign.gang("below", 1, "vast")
    for name in ("in-a-circle", "at-the-bottom", "in-the-middle", "orphan", "vast", "below"):
        foreign.pods(name, 1)
    foreign.gang("good", 2)
    foreign.pods("good", 2)
    foreign.await_bound("good", 2)
    assert len([pod for pod in foreign.all_pods() if is_gated(pod)]) == 6
    assert "level 4" in foreign.await_condition("deep-0", "False", "Unsupported", "CompositePodGroup")


def test_groups_whose_pods_are_not_for_covey_are_left_alone(foreign: Foreign) -> None:
    """Neither the gate of somebody else nor another scheduler makes a pod Covey's; nothing is written."""
    foreign.gang("theirs", 1)
    pods = {"ungated": {"schedulingGates": []}, "another-gate": {"schedulingGates": [{"name": "example.com/wait"}]}}
    for name, spec in pods.items():
        body = pod_spec(schedulingGroup={"podGroupName": "theirs"}, **spec, schedulerName="nobody")
        foreign.make("Pod", name, body)
    foreign.gang("ours", 1)
    foreign.pods("ours", 1)
    foreign.await_condition("ours", "True", "Admitted")
    assert foreign.conditions("theirs") == {}
    found = {name_of(pod): pod["metadata"].get("annotations") for pod in foreign.of_group("theirs")}
    assert found == dict.fromkeys(pods)


def test_a_restart_changes_nothing_of_what_was_decided(foreign: Foreign) -> None:
    """All follows from the objects, also what happened in between, of which no watch tells."""
    cluster = foreign.cluster
    foreign.gang("first", 2)
    foreign.pods("first", 2)
    foreign.await_condition("first", "True", "Admitted")
    foreign.gang("second", 2)
    foreign.pods("second", 1)
    foreign.await_condition("second", "False", "Waiting")
    before = {name: foreign.conditions(name)["Admitted"] for name in ("first", "second")}
    scheduler = cluster.processes["covey-scheduler"]
    scheduler.stop()
    foreign.gang("between", 1)
    foreign.pods("between", 1)
    scheduler.start()
    scheduler.wait_ready()
    foreign.await_condition("between", "True", "Admitted")
    assert {name: foreign.conditions(name)["Admitted"] for name in before} == before
    foreign.make("Pod", "second-late", pod_spec(schedulingGroup={"podGroupName": "second"}))
    foreign.await_bound("second", 2)
