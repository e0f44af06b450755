"""The process itself: probes, metrics, its end, and the namespaces that it looks after."""

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from kubernetes.client import ApiException

from builders.manifests import role
from cluster.workbench import Workbench
from localcluster import Cluster, Process, eventually


@pytest.fixture
def process(cluster: Cluster, namespace: str) -> Iterator[Process]:
    """An operator for one namespace alone."""
    try:
        yield cluster.start_covey("operator", f"--namespace={namespace}")
    finally:
        cluster.stop_all()


@pytest.fixture
def elsewhere(cluster: Cluster) -> Iterator[Workbench]:
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    bench = Workbench(cluster, "elsewhere")
    yield bench
    bench.delete("DisaggregatedInference", "llm")


def test_one_namespace(cluster: Cluster, namespace: str, process: Process, elsewhere: Workbench) -> None:
    elsewhere.create(role("r"))
    bench = Workbench(cluster, namespace)
    bench.create(role("r"))
    bench.await_pods(1)
    assert process.alive
    assert not elsewhere.pods()
    # The API server says that nobody has looked at it yet.
    assert elsewhere.get("DisaggregatedInference", "llm")["status"] == {"observedGeneration": -1}


def test_probes_and_metrics(cluster: Cluster, namespace: str, process: Process) -> None:
    bench = Workbench(cluster, namespace)
    bench.create(role("r"))
    bench.await_condition("Admitted", "False", "Waiting")
    for probe in ("healthz", "readyz"):
        with urlopen(f"{process.health_url}/{probe}") as answer:
            assert answer.read() == b"ok\n"
    with urlopen(process.metrics_url) as page:
        text = page.read().decode()
    for metric in ("covey_reconcile_total", "covey_kube_requests_total", "covey_workqueue_depth"):
        assert f"\n{metric}{{" in text
    assert '\ncovey_reconcile_total{result="error"} 0.0\n' in text


def test_sigterm_ends_it_cleanly(process: Process) -> None:
    assert process.stop(timeout=30) == 0
    assert '"event":"stopped"' in process.log_text()


def test_kopf_leaves_no_trace_on_the_resource(cluster: Cluster, namespace: str, process: Process) -> None:
    assert process.alive
    bench = Workbench(cluster, namespace)
    bench.create(role("r"))
    bench.await_pods(1)
    metadata = bench.get("DisaggregatedInference", "llm")["metadata"]
    assert "annotations" not in metadata
    assert "finalizers" not in metadata


@pytest.fixture
def unserved(cluster: Cluster) -> Iterator[str]:
    """A kind of the backend's that the cluster does not serve; in the end it does again."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.covey.dev"
    cluster.api("DELETE", path)
    # The definition may be gone before: an operator that starts then would still be served.
    kind = "/apis/scheduling.covey.dev/v1alpha1/podgroups"
    eventually(lambda: _is_gone(cluster, kind), describe="the kind is gone")
    yield "podgroups"
    cluster.install_crds()


def _is_gone(cluster: Cluster, path: str) -> bool:
    try:
        cluster.api("GET", path)
    except ApiException as error:
        return error.status == 404
    return False


def test_a_kind_that_is_not_served_keeps_nobody_waiting(cluster: Cluster, namespace: str, unserved: str) -> None:
    try:
        cluster.start_covey("operator", f"--namespace={namespace}")
        bench = Workbench(cluster, namespace)
        bench.create(role("r"))
        assert f"does not serve {unserved}" in bench.await_condition("BackendSupported", "False", "Unsupported")
        assert not bench.owned("Workload")
        cluster.install_crds()
        bench.await_pods(1)
        bench.await_condition("BackendSupported", "True", "Supported")
    finally:
        cluster.stop_all()
