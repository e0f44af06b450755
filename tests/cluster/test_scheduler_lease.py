"""The scheduler process and its lease: renewed whatever else is going on, and given up only when nothing is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.client import ApiException

from localcluster import Cluster, eventually
from scheduler_trees import Bench, Role, gates_of, pin_of

pytestmark = pytest.mark.slow  # a gang of 512 pods

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/covey-planner"
NAMESPACES = 31


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


@pytest.fixture(autouse=True)
def alone(cluster: Cluster) -> Iterator[None]:
    """No process of another module runs, and the lease is free before and after."""
    forget(cluster)
    yield
    cluster.forget("covey-scheduler")
    forget(cluster)


def forget(cluster: Cluster) -> None:
    try:
        cluster.api("DELETE", LEASE)
    except ApiException as error:
        if error.status != 404:
            raise


def renewed(cluster: Cluster) -> str:
    return str(cluster.api("GET", LEASE)["spec"]["renewTime"])


def test_many_namespaces_leave_connections_for_everything_else(bench: Bench, nodes: AddNodes, cluster: Cluster) -> None:
    nodes(nodes=4)
    watched = [bench.namespace, *(f"{bench.namespace}-{number}" for number in range(1, NAMESPACES))]
    process = cluster.start_covey("scheduler", "--leader-elect=true", *(f"--namespace={name}" for name in watched))
    tree = bench.unit("one", Role("decode", size=32, gpus=1))
    eventually(lambda: all(pin_of(pod) for pod in tree.pods()))
    eventually(lambda: bench.condition("one").get("status") == "True")
    before = renewed(cluster)
    # One that cannot renew for ten seconds ends.
    eventually(lambda: renewed(cluster) > before)
    assert process.alive


def test_asked_to_end_in_the_middle_of_a_gang_it_pins_nothing_after_it_gave_the_lease_up(
    bench: Bench, nodes: AddNodes, cluster: Cluster
) -> None:
    nodes(nodes=64)
    process = cluster.start_covey("scheduler", "--leader-elect=true")
    eventually(lambda: cluster.api("GET", LEASE)["spec"]["holderIdentity"])
    tree = bench.unit("one", Role("decode", size=512, gpus=1), pods=False)
    with cluster.record(bench.pods_path) as recording:
        tree.create()
        recording.wait(lambda events: pin_of(events[-1][1]) is not None, 60)
        assert process.stop(timeout=60) == 0
    lease = cluster.api("GET", LEASE)
    assert not lease["spec"]["holderIdentity"]
    pods = tree.pods()
    pinned = [pod for pod in pods if pin_of(pod)]
    assert 0 < len(pinned) < len(pods)
    assert all(gates_of(pod) for pod in pods if not pin_of(pod))
    # Versions are counted across all objects, and nobody else changes these pods.
    assert max(version(pod) for pod in pinned) < version(lease)


def version(item: Json) -> int:
    return int(item["metadata"]["resourceVersion"])
