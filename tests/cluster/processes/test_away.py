"""A user's kube-scheduler while every process of Covey is gone: ordinary pods are scheduled, and no member is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attached import Attachment
from localcluster import Cluster, eventually
from localcluster.cluster import NAMESPACE
from scheduler_trees import Bench, Role, node_of, pin_of

AddNodes = Callable[..., list[str]]
SERVED = "--scheduler-name=covey-scheduler,default-scheduler"


@pytest.fixture
def start(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], None]]:
    """What starts Covey; kube-scheduler, with Covey's profile and entries beside the stock profile, runs already."""
    try:
        attachment = Attachment(cluster, tmp_path_factory.mktemp("away"), SERVED)
        cluster.start_scheduler(attachment.beside_stock())
        yield lambda: void(attachment.start_again())
    finally:
        cluster.forget("kube-scheduler", "covey-scheduler")


def void(_process: object) -> None:
    """Take no notice of a result."""


def test_a_cluster_without_covey_schedules_its_pods_and_binds_no_member(
    cluster: Cluster, namespace: str, nodes: AddNodes, start: Callable[[], None]
) -> None:
    nodes(nodes=3)
    bench = Bench(cluster, namespace)
    kube_scheduler = cluster.processes["kube-scheduler"]
    kube_scheduler.pause()  # so that the gang is pinned, and nothing of it is bound
    gang = bench.unit("gang", Role("decode", size=2, gpus=4))
    eventually(lambda: all(map(pin_of, gang.pods())), describe="the gang has its pins")
    cluster.forget("covey-scheduler")
    kube_scheduler.resume()

    own = Bench(cluster, NAMESPACE)
    try:
        own.pod("successor", gpus=0, scheduler="default-scheduler", priorityClassName="system-cluster-critical")
        bench.pod("ordinary", gpus=0, scheduler="default-scheduler")
        bench.pod("through-our-profile", gpus=0)
        eventually(lambda: node_of(own.get("successor")), describe="Covey's own pod has a node")
        eventually(lambda: node_of(bench.get("ordinary")) and node_of(bench.get("through-our-profile")))
        # kube-scheduler has tried each of them.
        eventually(lambda: all(_failed(pod) for pod in gang.pods()), 60, "the members were tried")
        assert gang.bound() == []
        start()
        gang.wait_bound(2)
    finally:
        own.delete("successor")


def _failed(pod: dict[str, Any]) -> bool:
    """kube-scheduler could not bind the pod."""
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each.get("reason") == "SchedulerError" for each in conditions)


def test_the_mark_counts_for_nothing(cluster: Cluster, namespace: str) -> None:
    """A quota of none of it admits a marked pod, its class of service is that without it, and it can be resized."""
    hard = {"requests.scheduling.covey.dev/member": "0", "pods": "2"}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.api("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    eventually(lambda: cluster.api("GET", f"{path}/none")["status"]["hard"] == hard, describe="the quota is in force")
    bench = Bench(cluster, namespace)
    mark = {"scheduling.covey.dev/member": "0"}
    plain = bench.pod(
        "plain", containers=[{"name": "main", "image": "registry.invalid/none", "resources": {"limits": mark}}]
    )
    assert plain["status"]["qosClass"] == "BestEffort"
    assert plain["spec"]["containers"][0]["resources"] == {"limits": mark, "requests": mark}
    amounts = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", **mark}}
    bench.pod("sized", containers=[{"name": "main", "image": "registry.invalid/none", "resources": amounts}])
    container = {"name": "main", "resources": {"requests": {"cpu": "1500m"}}}
    resized = cluster.api(
        "PATCH", f"{bench.pods_path}/sized/resize", {"spec": {"containers": [container]}}, patch="strategic"
    )
    assert resized["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1500m", **mark}
    used = cluster.api("GET", f"{path}/none")["status"]["used"]
    assert used == {"requests.scheduling.covey.dev/member": "0", "pods": "2"}
