"""Fixtures of the installation's tests: the chart and the manifests on a real control plane, by real tools.

Covey's pods are placed by a stock kube-scheduler and run as processes (``localcluster.pods``); every request of their
service accounts is in the API server's audit log. Without Go and without ready binaries these tests fail with the
reason: they are never skipped.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from install.audit import Audit
from install.chart import NAMESPACE, Helm
from install.foreign import foreign_crds
from localcluster import Cluster, Nodes


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
