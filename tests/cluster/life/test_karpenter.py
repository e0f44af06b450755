"""Karpenter itself makes the nodes: asked by a CapacityBuffer, one NodePool for each rack, and empty again at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.manifests import Object
from cluster.conftest import Covey
from cluster.scraping import await_scrape, scrape
from cluster.serving import RACK, Serving, serving, workers
from cluster.workbench import name_of
from localcluster import Cluster, eventually
from localcluster.karpenter import delete_pools, rack_pool, start_karpenter, waiting_pod
from localcluster.programs import ROOT, scheduler_config

__all__ = ["serving"]

# Karpenter looks for empty nodes every ten seconds, and each time twice.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("covey")]

RIGHTS = ROOT / "manifests" / "components" / "capacity-buffers" / "rights.yaml"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers"
POOLS = ("rack-a", "rack-b")
#: What is counted of devices, ``covey_device_kinds_dropped`` aside, which has no labels.
DEVICES = ("covey_devices", "covey_free_domains")


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
    """The processes; the operator asks in CapacityBuffers, and nodes are kept for who has waited for a moment."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    scheduler = cluster.start_covey("scheduler", "--reserve-after=3s")
    kube_scheduler = cluster.start_scheduler(scheduler_config(scheduler))
    flags = ("--capacity-provider=CapacityBuffer", "--capacity-after-seconds=1", "--capacity-wait-seconds=300")
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

    eventually(lambda: not items(cluster, BUFFERS), 60, "nothing is asked for")
    with waiting_pod(cluster):
        eventually(empty, 360, "the cluster is empty again")


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
    # A buffer asks for as many beside the gang. Between the binds of the gang and the end of the buffer Karpenter may look
    # once, and make so many too many: they have gone again.
    assert 3 <= len({name_of(each) for kind, each in made.events if kind == "ADDED"}) <= 6


def filler(number: int) -> Object:
    """An ordinary pod that takes a whole node, for which Karpenter makes one."""
    container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {"schedulerName": "covey-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": f"job-{number}"}, "spec": spec}


def test_a_pool_that_scales_to_zero_leaves_nothing_behind(serving: Serving, covey: Covey) -> None:
    cluster, only = serving.cluster, rack_pool("rack-a", block="block-k", nodes=3, idle="10s")
    cluster.apply(only)
    for number in range(3):
        cluster.api("POST", serving.path("Pod"), filler(number))
    eventually(lambda: len(serving.bound()) == 3, 120, "ordinary pods take all nodes that the pool may have")
    serving.create(workers("decode", replicas=3, minReplicas=3), topology={"name": "kueue", "required": "rack"})

    def kept() -> list[str]:
        claims = [root.get("status", {}).get("claim") or {} for root in serving.all("CompositePodGroup")]
        return [node for claim in claims for node in claim.get("nodes") or ()]

    def series() -> list[str]:
        return sorted({name for name, _ in scrape(covey.scheduler).samples if name.startswith(DEVICES)})

    eventually(lambda: len(kept()) == 3, 60, "the nodes are kept for who has waited")
    assert scrape(covey.scheduler)("covey_domains_reserved") == 1
    eventually(lambda: "covey_free_domains" in series(), 30, "devices are counted")
    # The pool may have no more: Karpenter says the same as of nodes that are on their way.
    serving.await_condition("CapacityAsked", "True", "Coming")
    # Karpenter drains the nodes: the ordinary pods are evicted, and nobody may come.
    delete_pools(cluster, ["rack-a"])
    eventually(lambda: not items(cluster, "/api/v1/nodes"), 120, "no node is left")
    eventually(lambda: not kept(), 60, "no room is kept")
    await_scrape(covey.scheduler, lambda seen: not seen("covey_domains_reserved"), "no domain is reserved")
    eventually(lambda: not series(), 60, lambda: f"series are left: {series()}")
    assert not serving.bound()
    # Nothing stands in the way of those that come again.
    cluster.apply(only)
    serving.await_ready(3, inference="llm")
    serving.delete("DisaggregatedInference", "llm")
    serving.await_nothing_left()
    delete_pools(cluster, ["rack-a"])
    await_empty(cluster)
