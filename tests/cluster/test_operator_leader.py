"""Two replicas: one leads, the other is ready, and takes over with nothing lost."""

import contextlib
from collections.abc import Iterator

import pytest
from kubernetes.client import ApiException

from builders.manifests import role
from cluster.workbench import Workbench, uid_of
from localcluster import Cluster, Process, eventually

LEASE = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases/covey-operator"


@pytest.fixture
def replicas(cluster: Cluster) -> Iterator[tuple[Process, Process]]:
    """The leader and the one that waits."""
    with contextlib.suppress(ApiException):
        cluster.api("DELETE", LEASE)
    try:
        first = cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-a")
        eventually(lambda: cluster.api("GET", LEASE)["spec"]["holderIdentity"])
        second = cluster.start_covey("operator", "--leader-elect=true", name="covey-operator-b")
        yield first, second
    finally:
        cluster.stop_all()


@pytest.mark.slow  # a lease runs out
def test_the_second_takes_over(cluster: Cluster, namespace: str, replicas: tuple[Process, Process]) -> None:
    leader, waiting = replicas
    bench = Workbench(cluster, namespace)
    # A quota holds the leader in the middle of its work, so that it is never killed too late.
    quota = {"metadata": {"name": "half"}, "spec": {"hard": {"pods": "60"}}}
    cluster.api("POST", bench.path("ResourceQuota"), quota)
    eventually(lambda: bench.get("ResourceQuota", "half")["status"].get("hard"))
    bench.create(role("prefill", replicas=30, size=4), name="big")
    eventually(lambda: len(bench.pods()) == 60)
    leader.kill()
    before = {uid_of(pod) for pod in bench.pods()}
    cluster.api("DELETE", bench.path("ResourceQuota", "half"))
    # The lease has to expire first, and then the rest of the pods is created.
    assert before <= {uid_of(pod) for pod in bench.await_pods(120, timeout=90)}
    assert waiting.alive


def test_a_clean_end_hands_over_at_once(cluster: Cluster, namespace: str, replicas: tuple[Process, Process]) -> None:
    leader, waiting = replicas
    holder = cluster.api("GET", LEASE)["spec"]["holderIdentity"]
    assert leader.stop(timeout=60) == 0
    # It gave the lease up: nobody waits until it expires.
    assert cluster.api("GET", LEASE)["spec"].get("holderIdentity") != holder
    eventually(lambda: cluster.api("GET", LEASE)["spec"].get("holderIdentity") not in {None, "", holder})
    bench = Workbench(cluster, namespace)
    bench.create()
    bench.await_pods(6)
    assert waiting.alive


def test_a_lost_lease_ends_the_process(cluster: Cluster, replicas: tuple[Process, Process]) -> None:
    leader, _ = replicas
    cluster.api("PATCH", LEASE, {"spec": {"holderIdentity": "somebody-else"}})
    assert leader.wait(timeout=40) == 1
    cluster.api("DELETE", LEASE)
