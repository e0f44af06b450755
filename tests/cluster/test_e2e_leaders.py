"""Two replicas of everything, as in production: the leaders die one after the other, and nothing is lost."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest
from kubernetes.client import ApiException

from cluster.serving import AddNodes, Serving, check_history, serving, workers
from cluster.workbench import uid_of
from localcluster import Cluster, Process, eventually, programs
from scheduler_trees import node_of, pin_of

__all__ = ["serving"]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases"
ROLES = (
    workers("prefill", gpus=1, replicas=16, minReplicas=16, size=4, topology={"required": "rack"}),
    workers("decode", gpus=1, replicas=8, minReplicas=8, size=8, topology={"required": "rack"}),
)


@pytest.fixture
def leaders(cluster: Cluster) -> Iterator[dict[str, Process]]:
    """The replica that leads of each program; a second one of each waits."""
    leases = {"operator": "covey-operator", "scheduler": "covey-planner", "kube-scheduler": "covey-scheduler"}
    for lease in leases.values():
        with contextlib.suppress(ApiException):
            cluster.api("DELETE", f"{_LEASES}/{lease}")
    account = cluster.kube_scheduler_kubeconfig()
    started: list[dict[str, Process]] = []
    try:
        for number in ("1", "2"):
            operator = cluster.start_covey("operator", "--leader-elect=true", name=f"covey-operator-{number}")
            scheduler = cluster.start_covey("scheduler", "--leader-elect=true", name=f"covey-scheduler-{number}")
            config = programs.scheduler_config(scheduler, leader_elect=True)
            binder = cluster.start_scheduler(config, name=f"kube-scheduler-{number}", kubeconfig=account)
            started.append({"operator": operator, "scheduler": scheduler, "kube-scheduler": binder})
            for lease in leases.values():
                eventually(lambda lease=lease: cluster.api("GET", f"{_LEASES}/{lease}")["spec"]["holderIdentity"])
        yield started[0]
    finally:
        cluster.stop_all()


@pytest.mark.slow
def test_the_second_replicas_finish_what_the_first_began(
    cluster: Cluster, serving: Serving, nodes: AddNodes, leaders: dict[str, Process]
) -> None:
    nodes(racks=2, nodes=8)
    holders = {
        lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in cluster.api("GET", _LEASES)["items"]
    }
    with serving.cluster.record(serving.path("Pod")) as recording:
        serving.create(*ROLES, topology={"required": "block"})
        # At the first pod: 128 of them take a second, and what is watched comes late on a machine with other work.
        recording.wait(lambda events: len(events) >= 1, 60)
        leaders["operator"].kill()
        assert serving.pods()
        recording.wait(lambda events: any(pin_of(pod) for _, pod in events[-1:]), 120)
        # They share a pod, and its fate.
        leaders["scheduler"].kill()
        leaders["kube-scheduler"].kill()
        assert not serving.bound()
        recording.wait(lambda events: len({uid_of(pod) for _, pod in events if node_of(pod)}) == 128, 180)
        assert check_history(recording.events, *ROLES) == 128
        born = Counter(pod["spec"]["hostname"] for kind, pod in recording.events if kind == "ADDED")
    assert set(born.values()) == {1}
    serving.await_bound(128)
    serving.await_condition("Available", "True", "Available")
    now = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in cluster.api("GET", _LEASES)["items"]}
    assert now.keys() == holders.keys()
    assert not now.items() & holders.items()
