"""Interconnects with everything running but a driver: exclusive units and their cliques, and replicas through a rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.devices import class_body, device, slice_body
from builders.manifests import Object, role, template
from cluster.compute_domains import CHANNEL, DEFINITION, GROUP, Controller
from cluster.workbench import Workbench, name_of, uid_of
from device_driver import Driver
from localcluster import Cluster, Process, concurrently, eventually
from localcluster.programs import ROOT, scheduler_config

RIGHTS = ROOT / "manifests" / "components" / "compute-domains" / "rights.yaml"
DRIVER = "compute-domain.nvidia.com"
CLIQUE = "nvidia.com/gpu.clique"
AddNodes = Callable[..., list[str]]


@pytest.fixture(scope="module")
def scheduler(cluster: Cluster) -> Iterator[Process]:
    """The scheduler process, beside an operator with the switch for ComputeDomains and a kube-scheduler."""
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    cluster.apply([DEFINITION])
    try:
        cluster.start_covey("operator", "--compute-domains")
        process = cluster.start_covey("scheduler")
        cluster.start_scheduler(scheduler_config(process))
        yield process
    finally:
        cluster.stop_all()
        cluster.kubectl("delete", "-f", str(RIGHTS), check=False)
        cluster.kubectl("delete", "crd", f"computedomains.{GROUP}", check=False)


@pytest.fixture
def bench(cluster: Cluster, scheduler: Process, namespace: str) -> Iterator[Workbench]:
    if not scheduler.alive:
        scheduler.start()
    made = Workbench(cluster, namespace)
    with Controller(cluster, namespace).running():
        yield made
        cluster.api("DELETE", made.path("DisaggregatedInference"))
        eventually(lambda: not made.all("Pod"), 60, "no pod is left")


@pytest.fixture
def names(cluster: Cluster, namespace: str, nodes: AddNodes) -> Iterator[list[str]]:
    """Two cliques of two nodes, each with a channel."""
    driver = Driver(cluster, namespace)
    driver.make("deviceclasses", class_body(CHANNEL, f'device.driver == "{DRIVER}"', resource=None))
    found = nodes(preset="clique", racks=2, nodes=2)
    for name in found:
        driver.make("resourceslices", slice_body(name, device("channel-0", "channel"), node=name, driver=DRIVER))
    yield found
    for path in driver.made:
        cluster.api("DELETE", path)


def joined(count: int = 1, **fields: Any) -> Object:
    return role("decode", replicas=count, minReplicas=count, interconnect=True, **fields)


def exclusive(bench: Workbench, name: str) -> None:
    bench.create(joined(), name=name, interconnect={"exclusive": True})


def bound(bench: Workbench, name: str) -> list[Object]:
    return [pod for pod in bench.pods(inference=name) if pod["spec"].get("nodeName")]


def clique_of(bench: Workbench, name: str) -> str:
    """The clique of a resource with one pod; empty while that has no node."""
    for pod in bound(bench, name):
        node = bench.cluster.api("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")
        return str(node["metadata"]["labels"][CLIQUE])
    return ""


@pytest.mark.usefixtures("names")
def test_of_three_exclusive_units_two_have_a_clique_each_and_the_third_waits_for_one(
    bench: Workbench, scheduler: Process
) -> None:
    """Each clique has a node, a channel and GPUs left for it, so nothing but the cliques keeps it off."""
    everybody = ("one", "two", "three")
    concurrently(lambda name: exclusive(bench, name), everybody)
    eventually(lambda: len([name for name in everybody if bound(bench, name)]) == 2, 90, "two units are bound")
    (late,) = (name for name in everybody if not bound(bench, name))
    said = bench.await_condition("Admitted", "False", "Infeasible", late)
    assert "exclusive interconnect" in said, said
    first, second = (name for name in everybody if name != late)
    assert clique_of(bench, first) != clique_of(bench, second)
    # A process that comes later knows the same, from the pods; and who joins nothing goes anywhere.
    scheduler.kill()
    scheduler.start()
    bench.create(role("decode"), name="plain")
    bench.create(joined(), name="shared", interconnect={})
    eventually(lambda: bound(bench, "plain"), 60, "a unit without an interconnect is bound")
    assert "exclusive" in bench.await_condition("Admitted", "False", "Infeasible", "shared")
    assert not bound(bench, late)
    bench.delete("DisaggregatedInference", "shared")
    left = clique_of(bench, first)
    bench.delete("DisaggregatedInference", first)
    eventually(lambda: clique_of(bench, late) == left, 90, "the third has the clique that was left")
    assert clique_of(bench, second) != left


@pytest.mark.usefixtures("names")
def test_replicas_have_their_own_domain_all_through_a_rollout(bench: Workbench) -> None:
    bench.create(joined(2), interconnect={"scope": "Replica"})
    eventually(lambda: len(bound(bench, "llm")) == 2, 90, "both replicas are bound")
    before = {uid_of(pod) for pod in bench.pods()}
    domains = Controller(bench.cluster, bench.namespace)
    changed = template()
    changed["spec"]["containers"][0]["env"] = [{"name": "NEXT", "value": "1"}]
    seen: set[str] = set()
    without: set[str] = set()

    def is_done() -> bool:
        earlier = {uid_of(pod) for pod in bench.pods()}
        there = {name_of(each) for each in domains.all() if "deletionTimestamp" not in each["metadata"]}
        live = [pod for pod in bench.pods() if uid_of(pod) in earlier]
        for pod in live:
            (claim,) = pod["spec"]["resourceClaims"]
            seen.add(uid_of(pod))
            if claim["resourceClaimTemplateName"].removesuffix("-interconnect") not in there:
                without.add(name_of(pod))
        return len(live) == 2 and not before & earlier and len(bound(bench, "llm")) == 2

    assert not is_done(), "both old replicas are looked at before one can go"
    bench.change({"roles": [joined(2) | {"template": changed}]})
    eventually(is_done, 120, "the rollout has ended")
    assert not without
    assert len(seen) >= 4
    used = {pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for pod in bench.pods()}
    eventually(
        lambda: {f"{name_of(each)}-interconnect" for each in domains.all()} == used, 60, "no domain is left over"
    )
    assert len(used) == 2
