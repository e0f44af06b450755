"""Gangs whose pods claim devices by templates: made by kube-controller-manager, allocated and bound by kube-scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.devices import DRIVER, class_body, device, gpus, request_body, slice_body, wish_body
from device_driver import API, Driver, assert_devices
from localcluster import Cluster, eventually
from scheduler_trees import GATE, START_GATE, Bench, Replacing, Role, node_of, pin_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("scheduler")
MIG = "mig.nvidia.com"
SMALL = "device.attributes['gpu.nvidia.com'].profile == '1g'"
LARGE = "device.attributes['gpu.nvidia.com'].profile == '3g'"


@pytest.fixture
def driver(cluster: Cluster, namespace: str) -> Iterator[Driver]:
    made = Driver(cluster, namespace)
    yield made
    for path in made.made:
        cluster.api("DELETE", path)


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def template(bench: Bench, name: str, *requests: Json) -> Json:
    """A ResourceClaimTemplate, and what the spec of a pod needs for a claim of it."""
    path = f"{API}/namespaces/{bench.namespace}/resourceclaimtemplates"
    bench.cluster.api("POST", path, {"metadata": {"name": name}, "spec": {"spec": wish_body(*requests)}})
    return claiming(name)


def claiming(name: str) -> Json:
    return {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": name}]}


def named(bench: Bench, name: str, *requests: Json) -> Json:
    """A ResourceClaim, and what the spec of a pod needs to name it."""
    path = f"{API}/namespaces/{bench.namespace}/resourceclaims"
    bench.cluster.api("POST", path, {"metadata": {"name": name}, "spec": wish_body(*requests)})
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


def test_a_gang_of_claims_shares_nodes_with_one_of_the_extended_resource(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    """Nodes with four GPUs in slices of two: claims of three leave one each for who asks by the resource."""
    driver.make("deviceclasses", class_body())
    names = nodes(nodes=2, gpus=0)
    for name in names:
        driver.make("resourceslices", slice_body(f"{name}-a", *gpus(2), node=name, of=2))
        driver.make("resourceslices", slice_body(f"{name}-b", *gpus(2, first=2), node=name, of=2))
    three = template(bench, "three", request_body(3))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=three))
    with Replacing(tree) as replacing:
        bound = tree.wait_bound()
    assert sorted(map(node_of, bound)) == sorted(names)
    assert replacing.released == []
    assert_devices(driver, tree, 3)
    bench.unit("big", Role("decode", gpus=2)).wait_refused()
    small = bench.unit("small", Role("decode", replicas=2, minimum=2, gpus=1))
    small.wait_bound()
    assert_devices(driver, small, 1)
    last = bench.unit("last", Role("decode", gpus=0, spec=template(bench, "one", request_body(1))))
    last.wait_refused()
    bench.delete(tree.bound()[0]["metadata"]["name"])
    last.wait_bound()
    assert_devices(driver, last, 1)


def test_parts_of_a_class_by_selectors_and_a_template_that_comes_late(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    selector = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
    driver.make("deviceclasses", class_body(MIG, selector, resource=None))
    (name,) = nodes(nodes=1, gpus=0)
    parts = [device(f"d{number}", "mig") for number in range(6)]
    for number, each in enumerate(parts):
        each["attributes"]["profile"] = {"string": "1g" if number < 4 else "3g"}
    driver.make("resourceslices", slice_body(name, *parts, node=name))
    large = template(bench, "large", request_body(1, LARGE, of=MIG))
    tree = bench.unit(
        "llm",
        Role("prefill", replicas=2, minimum=2, gpus=0, spec=large),
        Role("decode", replicas=2, minimum=2, gpus=0, spec=claiming("late")),
    )
    eventually(lambda: "was not made yet" in bench.condition("llm").get("message", ""))
    assert all(pod["spec"].get("schedulingGates") for pod in tree.pods())
    template(bench, "late", request_body(2, SMALL, of=MIG))
    with Replacing(tree) as replacing:
        tree.wait_bound(timeout=120)
    assert replacing.released == []
    more = bench.unit("more", Role("decode", gpus=0, spec=template(bench, "small", request_body(1, SMALL, of=MIG))))
    more.wait_refused()
    whole = bench.unit("whole", Role("decode", gpus=0, spec=template(bench, "any", request_body(1, of=MIG))))
    whole.wait_refused()
    assert more.bound() + whole.bound() == []


def test_a_pool_that_is_written_anew_and_a_stranger_between_pin_and_bind(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    """Pinned, but held by a gate of somebody else. Who asks kube-scheduler is kept off; another scheduler takes a device."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    four = template(bench, "four", request_body(4))
    tree = bench.unit("llm", Role("decode", gpus=0, spec=four, gates=(GATE, START_GATE)))
    eventually(lambda: [pin_of(pod) for pod in tree.pods()] == [name])
    with Replacing(tree) as replacing:
        bench.pod("ordinary", gpus=0, **named(bench, "wished", request_body(1)))
        eventually(lambda: "reserved for admitted gangs" in str(bench.get("ordinary").get("status")))
        bench.delete("ordinary")
        driver.take("theirs", name, "gpu-0")
        eventually(lambda: replacing.released, describe=lambda: str(bench.condition("llm")))
        assert set(replacing.released) == {"CapacityTaken"}
        assert DRIVER in tree.wait_refused()
        assert driver.allocated() == {}
        driver.make("resourceslices", slice_body(f"{name}-new", *gpus(4), node=name, generation=2))
        driver.withdraw(name)
        driver.give_back("theirs")
        eventually(lambda: [pin_of(pod) for pod in tree.pods()] == [name])
    [pod] = tree.pods()
    lifted = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    bench.cluster.api("PATCH", f"{bench.pods_path}/{pod['metadata']['name']}", lifted)
    tree.wait_bound()
    assert_devices(driver, tree, 4)


def test_nothing_stays_allocated_of_claims_of_a_gang_that_was_released(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    """One pod is held with its devices; the other is one that kube-scheduler takes to no node."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    nobody = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
    lonely = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}}}
    four = template(bench, "four", request_body(4))
    tree = bench.unit("llm", Role("decode", gpus=0, spec=four), Role("router", gpus=0, spec=lonely))
    with bench.cluster.record(driver.claims) as recording, Replacing(tree) as replacing:
        tree.wait_refused("Unschedulable")
        eventually(lambda: driver.allocated() == {}, describe=lambda: str(driver.allocated()))
        assert replacing.released
        assert tree.bound() == []
    assert any(claim.get("status", {}).get("allocation") for _, claim in recording.events), "none was ever allocated"
    bench.unit("next", Role("decode", gpus=4)).wait_bound()


def test_claims_that_pods_name_tie_them_to_their_devices_once_these_are_allocated(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    driver.make("deviceclasses", class_body())
    for name in nodes(nodes=3, gpus=0):
        driver.offer(name, 4)
    shared = named(bench, "shared", request_body(4))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=shared))
    assert "ResourceClaim shared is named by several pods" in tree.wait_refused("Unsupported")
    bench.pod("first", gpus=0, **shared)
    eventually(lambda: node_of(bench.get("first")))
    bound = tree.wait_bound()
    assert set(map(node_of, bound)) == {node_of(bench.get("first"))}


def test_a_claim_that_cannot_be_counted_is_refused_by_name(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    path = f"{API}/namespaces/{bench.namespace}/resourceclaimtemplates"
    exactly = {"deviceClassName": DRIVER, "allocationMode": "All"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    bench.cluster.api("POST", path, {"metadata": {"name": "all"}, "spec": {"spec": spec}})
    tree = bench.unit("llm", Role("decode", gpus=0, spec=claiming("all")))
    assert "allocationMode All, which Covey cannot count" in tree.wait_refused("Unsupported")
    assert driver.allocated() == {}


def test_a_full_quota_on_a_device_class_keeps_the_gang_gated_and_takes_no_device(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    """kube-controller-manager makes no claim beyond the quota; so no pod of the gang is let go until it is raised."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    quotas = f"/api/v1/namespaces/{bench.namespace}/resourcequotas"
    hard = {f"{DRIVER}.deviceclass.resource.k8s.io/devices": "2"}
    bench.cluster.api("POST", quotas, {"metadata": {"name": "few"}, "spec": {"hard": hard}})
    eventually(lambda: bench.cluster.api("GET", f"{quotas}/few").get("status", {}).get("used"))
    two = template(bench, "two", request_body(2))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=two))
    eventually(lambda: "was not made yet" in bench.condition("llm").get("message", ""))
    assert all(pod["spec"].get("schedulingGates") for pod in tree.pods())
    assert driver.allocated() == {}
    bench.cluster.api("PATCH", f"{quotas}/few", {"spec": {"hard": dict.fromkeys(hard, "4")}})
    tree.wait_bound(timeout=120)
    assert_devices(driver, tree, 2)
