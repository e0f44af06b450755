"""One control plane on which every example is applied, with all of Covey and the nodes that the examples are written for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from cluster.conftest import namespace, nodes, pytest_runtest_makereport
from cluster.serving import Serving, serving
from examples.files import EXAMPLES, of_kind
from install.foreign import KEDA, foreign_crds
from localcluster import Cluster, Nodes
from localcluster.metrics_api import QUICK_AUTOSCALERS, Metrics, serve_metrics
from localcluster.programs import ROOT

__all__ = ["namespace", "nodes", "pytest_runtest_makereport", "serving"]

#: What the autoscalers of the examples ask for; pods that ask for nothing else share it with the others of their replica or unit.
_METRICS: Final = {
    "vllm_num_requests_waiting": ("unit", "replica"),
    "vllm_kv_cache_usage_perc": ("unit", "replica"),
    "requests_per_second": ("unit",),
}
_TOPOLOGIES: Final = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
Apply = Callable[[Path], list[str]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane whose autoscalers do not take minutes, with the kinds of KEDA."""
    with Cluster(crds=[ROOT / "crds", *foreign_crds(KEDA)], flags=QUICK_AUTOSCALERS) as running:
        running.install_rbac()
        # With several topologies, resources that name none need one that is the default.
        running.apply((EXAMPLES / "topology.yaml").read_text())
        yield running


@pytest.fixture(scope="session")
def racks(cluster: Cluster) -> list[str]:
    """The nodes that `make cluster` makes; returns their names."""
    return cluster.add_nodes(Nodes(blocks=2, racks=3, nodes=6, resources={"rdma/ib": "8"}))


@pytest.fixture(scope="session")
def metrics(cluster: Cluster) -> Iterator[Metrics]:
    """The metrics API."""
    with serve_metrics(cluster, _METRICS) as served:
        yield served


@pytest.fixture(scope="session")
def covey(cluster: Cluster) -> None:
    """Operator, scheduler process and kube-scheduler, until the control plane ends."""
    cluster.start_all()


@pytest.fixture
def apply(request: pytest.FixtureRequest, serving: Serving) -> Iterator[Apply]:
    """Applies a file as a person does, and a warning of the API server fails it; topologies go at the end."""
    request.getfixturevalue("covey")
    applied: list[Path] = []

    def do(file: Path) -> list[str]:
        applied.append(file)
        return serving.kubectl("apply", "--warnings-as-errors", "--filename", str(file)).splitlines()

    yield do
    for topology in (each for file in applied for each in of_kind(file, "ClusterTopology")):
        serving.cluster.api("DELETE", f"{_TOPOLOGIES}/{topology['metadata']['name']}")


def await_ready(serving: Serving) -> None:
    """Wait as the how-tos do: all that is wanted serves."""
    serving.kubectl("wait", "--for=condition=Ready", "disaggregatedinference", "--all", "--timeout=240s")


def await_available(serving: Serving, name: str) -> None:
    """Wait until the minimum of a resource serves; its surplus may have no room beside others."""
    serving.kubectl("wait", "--for=condition=Available", "disaggregatedinference", name, "--timeout=240s")
