"""Where native groups are off, absent, or not Covey's alone: nothing is different, or it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attached import Attachment
from cluster.native_groups import FLAGS, GATES, RIGHTS, Foreign, pod_spec, start_covey
from cluster.workbench import is_gated, name_of
from localcluster import Cluster, Nodes, eventually
from scheduler_trees import node_of

pytestmark = pytest.mark.slow  # control planes of their own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The groups are served; neither process has the flag, or the rights."""
    with Cluster(gates=GATES, flags=FLAGS) as running:
        running.start_all(Nodes(nodes=2))
        yield running


def test_switched_off_neither_groups_nor_pods_are_touched(cluster: Cluster) -> None:
    foreign = Foreign(cluster, "default")
    eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
    foreign.gang("g", 2)
    made = foreign.pods("g", 2)
    own = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    body = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "own"}, "spec": own}
    cluster.api("POST", "/apis/scheduling.covey.dev/v1alpha1/namespaces/default/podgroups", body)
    # One of Covey's, made later, is bound: these were seen.
    labels = {"scheduling.covey.dev/pod-group": "own"}
    foreign.make("Pod", "own", pod_spec(), labels=labels)
    eventually(lambda: node_of(cluster.api("GET", foreign.path("Pod", "own"))), 60, "Covey's own is bound")
    time.sleep(5)  # for as long as a status waits
    assert foreign.conditions("g") == {}
    found = {name_of(pod): pod for pod in foreign.of_group("g")}
    assert all(map(is_gated, found.values()))
    assert {name: pod["metadata"].get("annotations") for name, pod in found.items()} == {name_of(p): None for p in made}


def test_where_the_api_is_absent_one_line_says_so_and_gangs_go_on() -> None:
    with Cluster() as cluster:
        cluster.add_nodes(Nodes(nodes=1))
        cluster.install_rbac()
        cluster.install_rbac(RIGHTS)
        start_covey(cluster)
        own = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        meta = {"metadata": {"name": "own"}, "apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "PodGroup"}
        cluster.api("POST", "/apis/scheduling.covey.dev/v1alpha1/namespaces/default/podgroups", {**meta, "spec": own})
        eventually(lambda: cluster.api("GET", "/api/v1/namespaces/default/serviceaccounts/default"))
        foreign = Foreign(cluster, "default")
        labels = {"scheduling.covey.dev/pod-group": "own"}
        for name in ("a", "b"):
            foreign.make("Pod", name, pod_spec(), labels=labels)
        eventually(lambda: all(map(node_of, foreign.all_pods())), 60, "the gang is bound")
        lines = [json.loads(line) for line in cluster.processes["covey-scheduler"].log_text().splitlines()]
        absent = [each for each in lines if each["event"] == "resource is not served"]
        assert sorted((each["resource"], each["version"]) for each in absent) == [
            ("compositepodgroups", "v1alpha3"),
            ("podgroups", "v1alpha2"),
            ("podgroups", "v1beta1"),
        ]
        assert {each["level"] for each in absent} == {"info"}


def test_beside_a_kube_scheduler_of_the_user_s_no_native_group_is_planned(cluster: Cluster, tmp_path: Path) -> None:
    """Mode Existing: nobody can see whether that kube-scheduler plans the groups too, so each is refused by name."""
    cluster.stop_all()
    cluster.install_rbac(RIGHTS)
    attached = Attachment(cluster, tmp_path, "--native-groups")
    cluster.start_scheduler(attached.beside_stock())
    cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": "attached"}})
    eventually(lambda: cluster.api("GET", "/api/v1/namespaces/attached/serviceaccounts/default"))
    foreign = Foreign(cluster, "attached")
    marked = {"limits": {"cpu": "1", "scheduling.covey.dev/member": "0"}}
    containers = [{"name": "a", "image": "a", "resources": marked}]
    foreign.gang("called", 2)
    foreign.pods("called", 2, containers=containers)
    message = foreign.await_condition("called", "False", "Waiting")
    assert "is of a group of scheduling.k8s.io, which the kube-scheduler that calls Covey may plan" in message
    assert all(map(is_gated, foreign.of_group("called")))
