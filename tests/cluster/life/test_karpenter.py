"""Karpenter itself makes the nodes: asked by a CapacityBuffer, one NodePool for each rack, and empty again at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.serving import RACK, Serving, serving, workers
from cluster.workbench import name_of
from localcluster import Cluster, eventually
from localcluster.karpenter import delete_pools, rack_pool, start_karpenter
from localcluster.programs import ROOT, scheduler_config

__all__ = ["serving"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("covey")]

RIGHTS = ROOT / "manifests" / "components" / "capacity-buffers" / "rights.yaml"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
POOLS = ("rack-a", "rack-b")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane of its own: Karpenter looks at all nodes and pods that there are."""
    with Cluster() as running:
        running.install_rbac()
        running.install_account_policies()
        start_karpenter(running)
        yield running


@pytest.fixture(scope="module")
def covey(cluster: Cluster) -> Covey:
    """The processes; the operator asks in CapacityBuffers."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    scheduler = cluster.start_covey("scheduler")
    kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
    flags = ("--capacity-provider=CapacityBuffer", "--capacity-after-seconds=1", "--capacity-wait-seconds=120")
    return Covey(cluster.start_covey("operator", *flags), scheduler, kube_scheduler)


@pytest.fixture
def pools(cluster: Cluster) -> Iterator[None]:
    """Two racks of up to four nodes each; none is there yet."""
    cluster.apply([rack_pool(name, block="block-k", nodes=4, idle="10s") for name in POOLS])
    yield
    delete_pools(cluster, POOLS)


def items(cluster: Cluster, path: str) -> list[Object]:
    return list(cluster.api("GET", path)["items"])


def claims(cluster: Cluster) -> list[Object]:
    return items(cluster, "/apis/karpenter.sh/v1/nodeclaims")


def await_empty(cluster: Cluster) -> None:
    """Wait until Karpenter has taken down what it made, and nothing of what was asked is left."""

    def empty() -> bool:
        left = [*items(cluster, BUFFERS), *claims(cluster), *items(cluster, "/api/v1/nodes")]
        left += items(cluster, "/api/v1/podtemplates")
        assert not left, str(sorted(map(name_of, left)))
        return True

    eventually(empty, 180, "the cluster is empty again")


@pytest.mark.parametrize("level", [None, "rack"])
@pytest.mark.usefixtures("pools")
def test_a_gang_brings_its_nodes_and_they_go_with_it(serving: Serving, level: str | None) -> None:
    cluster = serving.cluster
    topology = {"topology": {"name": "kueue", "required": level}} if level else {}
    with cluster.record(BUFFERS) as buffers, cluster.record("/apis/karpenter.sh/v1/nodeclaims") as made:
        serving.create(workers("decode", replicas=3, minReplicas=3), **topology)
        pods = serving.await_ready(3, inference="llm")
        eventually(lambda: not items(cluster, BUFFERS), 60, "nobody is asked any more")
        racks = serving.domains(pods, RACK)
        if level:
            assert len(racks) == 1
        assert racks <= {(name,) for name in POOLS}
        asked = {name_of(each): each["spec"]["replicas"] for _, each in buffers.events}
        assert list(asked.values()) == [3]
        serving.delete("DisaggregatedInference", "llm")
        serving.await_nothing_left()
        await_empty(cluster)
    # No more than were asked for: a buffer that stayed would have asked for as many beside the gang.
    assert len({name_of(each) for kind, each in made.events if kind == "ADDED"}) == 3
