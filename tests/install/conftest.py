"""Fixtures of the installation's tests: the chart and the manifests on a real control plane, by real tools.

Covey's pods are placed by a stock kube-scheduler and run as processes (``localcluster.pods``); every request of their
service accounts is in the API server's audit log. Where a program can neither be found nor built, these tests
fail with the reason: they are never skipped.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from install.audit import Audit
from install.chart import NAMESPACE, Helm
from install.foreign import foreign_crds
from localcluster import Cluster, Nodes, eventually


@pytest.fixture(scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """What the service accounts of Covey's namespace have asked of the API server."""
    return Audit.prepare(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="session")
def cluster(audit: Audit) -> Iterator[Cluster]:
    """A control plane without anything of Covey's, but with the CRDs of the operators that the chart can serve."""
    flags = [*audit.flags, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with Cluster(crds=foreign_crds(), scheduler_config="", flags={"kube-apiserver": flags}) as running:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        running.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": restricted}})
        running.run_pods()
        running.add_nodes(Nodes(blocks=2, racks=3, nodes=6))
        yield running


@pytest.fixture(scope="session")
def helm(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm for that cluster."""
    return Helm(tmp_path_factory.mktemp("helm"), Path(cluster.kubeconfig))


@pytest.fixture(scope="session")
def uninstall(cluster: Cluster, helm: Helm, audit: Audit) -> Callable[[], str]:
    """Uninstalls, and waits until Covey's pods and processes are gone; returns what Helm says."""

    def do() -> str:
        with audit.pardon():
            said = helm.run("uninstall", "covey", f"--namespace={NAMESPACE}", "--wait")
            for path in ("/apis/apps/v1/namespaces/{}/replicasets", "/api/v1/namespaces/{}/pods"):
                # While a ReplicaSet is there, its pods come again.
                eventually(lambda path=path: not cluster.api("GET", path.format(NAMESPACE))["items"], 120, path)
            files = cluster.directory / "run"
            eventually(lambda: not list(files.glob("covey-*.*.pid")), 120, "Covey's processes are gone")
        return said

    return do


@pytest.fixture(scope="session")
def covey(helm: Helm, uninstall: Callable[[], str]) -> Iterator[None]:
    """Covey, installed with Helm and what Prometheus needs to find it, for the files that come after ``test_installation.py``."""
    helm.install({"metrics": {"monitor": "PodMonitor"}})
    yield
    uninstall()
