"""Gangs on nodes whose GPUs come from a driver: counted by the scheduler process, allocated and bound by kube-scheduler.

No driver runs here: the ResourceSlices are written by hand, and nobody prepares devices for the simulated nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders.devices import DRIVER, GPU, class_body, gpus, slice_body
from device_driver import API, Driver, assert_devices
from localcluster import Cluster, eventually
from scheduler_trees import GATE, START_GATE, Bench, Replacing, Role, node_of, pin_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
pytestmark = pytest.mark.usefixtures("scheduler")


@pytest.fixture
def driver(cluster: Cluster, namespace: str) -> Iterator[Driver]:
    made = Driver(cluster, namespace)
    yield made
    for path in made.made:
        cluster.api("DELETE", path)


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def claimed(bench: Bench, name: str, count: int, class_: str = DRIVER) -> Json:
    """A claim of so many devices that a stranger's pod names, and what its spec needs for it."""
    exactly = {"deviceClassName": class_, "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    path = f"{API}/namespaces/{bench.namespace}/resourceclaims"
    bench.cluster.api("POST", path, {"metadata": {"name": name}, "spec": spec})
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


def test_a_gang_is_admitted_and_bound_whole_on_devices_of_a_driver(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    """Four nodes with eight GPUs in two slices each, and none in allocatable; four pods of eight, and no fifth."""
    driver.make("deviceclasses", class_body())
    names = nodes(nodes=4, gpus=0)
    for name in names:
        driver.make("resourceslices", slice_body(f"{name}-a", *gpus(4), node=name, of=2))
        driver.make("resourceslices", slice_body(f"{name}-b", *gpus(4, first=4), node=name, of=2))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, size=2), required="rack")
    with Replacing(tree) as replacing:
        bound = tree.wait_bound()
    assert sorted(map(node_of, bound)) == sorted(names)
    assert replacing.released == []
    assert_devices(driver, tree, 8)
    late = bench.unit("late", Role("decode", gpus=1))
    assert late.wait_refused().endswith(f"1 more {GPU} there would do")
    for pod in tree.bound()[:1]:
        bench.delete(pod["metadata"]["name"])
    late.wait_bound()
    assert_devices(driver, late, 1)


def test_a_gang_that_does_not_fit_is_refused_with_numbers_and_none_of_it_is_bound(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    driver.make("deviceclasses", class_body())
    first, second = nodes(nodes=2, gpus=0)
    driver.offer(first, 4)
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=4))
    said = tree.wait_refused()
    assert "room for 1 of 2 replicas" in said, said
    assert f"(4 {GPU}) is missing" in said, said
    assert tree.bound() == []
    assert driver.allocated() == {}
    driver.offer(second, 4)
    tree.wait_bound()
    assert_devices(driver, tree, 4)


def test_a_claim_of_a_stranger_lowers_capacity_at_once(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    stranger = bench.pod("stranger", gpus=0, **claimed(bench, "theirs", 1))
    eventually(lambda: node_of(bench.get("stranger")) == name)
    tree = bench.unit("llm", Role("decode", gpus=4))
    assert GPU in tree.wait_refused()
    assert tree.bound() == []
    bench.delete(stranger["metadata"]["name"])
    tree.wait_bound()
    assert_devices(driver, tree, 4)


def test_pools_that_are_not_whole_or_old_count_nothing(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    driver.offer(name, 2, "-new", generation=2, of=2)
    tree = bench.unit("llm", Role("decode", gpus=4))
    assert GPU in tree.wait_refused()
    driver.make("resourceslices", slice_body(f"{name}-rest", *gpus(2, first=2), node=name, generation=2, of=2))
    driver.withdraw(name)
    tree.wait_bound()
    assert_devices(driver, tree, 4)


def test_a_class_that_cannot_be_judged_is_refused_by_name(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    driver.make("deviceclasses", class_body(DRIVER, f"device.driver.startsWith('{DRIVER}')"))
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    tree = bench.unit("llm", Role("decode", gpus=4))
    assert f"{GPU} is of DeviceClass {DRIVER}, whose selectors Covey cannot judge" in tree.wait_refused("Unsupported")
    selectors = class_body()["spec"]["selectors"]
    bench.cluster.api("PATCH", f"{API}/deviceclasses/{DRIVER}", {"spec": {"selectors": selectors}})
    tree.wait_bound()


def test_ordinary_pods_and_gangs_share_devices_of_a_driver(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    """An ordinary pod of the same resource: what it has is counted once, before and after it is bound."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    bench.pod("ordinary", gpus=2)
    eventually(lambda: node_of(bench.get("ordinary")) == name)
    tree = bench.unit("llm", Role("decode", gpus=2))
    tree.wait_bound()
    assert_devices(driver, tree, 2)
    bench.unit("more", Role("decode", gpus=1)).wait_refused()


def test_a_gang_whose_claims_are_not_made_yet_is_not_pinned(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    """The template of one role's claims comes late; until then no pod of the gang is let go."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "late"}]}
    tree = bench.unit("llm", Role("prefill", gpus=0), Role("decode", gpus=0, spec=claims))

    def waits() -> bool:
        return "was not made yet" in bench.condition("llm").get("message", "")

    eventually(waits, describe=lambda: str(bench.condition("llm")))
    assert all(pod["spec"].get("schedulingGates") for pod in tree.pods())
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
    template = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    path = f"{API}/namespaces/{bench.namespace}/resourceclaimtemplates"
    bench.cluster.api("POST", path, {"metadata": {"name": "late"}, "spec": template})
    tree.wait_bound(timeout=120)


def test_a_stranger_between_pin_and_bind_makes_the_gang_wait_and_not_share(
    bench: Bench, driver: Driver, nodes: AddNodes
) -> None:
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    tree = bench.unit("llm", Role("decode", gpus=4, gates=(GATE, START_GATE)))
    eventually(lambda: [pin_of(pod) for pod in tree.pods()] == [name])
    with Replacing(tree) as replacing:
        driver.take("theirs", name, "gpu-0")
        eventually(lambda: replacing.released, describe=lambda: str(bench.condition("llm")))
        assert set(replacing.released) == {"CapacityTaken"}
        assert GPU in tree.wait_refused()
        assert driver.allocated() == {}
        driver.give_back("theirs")
        eventually(lambda: [pin_of(pod) for pod in tree.pods()] == [name])
    [pod] = tree.pods()
    lifted = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    bench.cluster.api("PATCH", f"{bench.pods_path}/{pod['metadata']['name']}", lifted)
    tree.wait_bound()
    assert_devices(driver, tree, 4)


def test_nothing_stays_allocated_of_a_gang_that_was_released(bench: Bench, driver: Driver, nodes: AddNodes) -> None:
    """One pod is held with its devices; the other is one that kube-scheduler takes to no node."""
    driver.make("deviceclasses", class_body())
    (name,) = nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    nobody = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
    lonely = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}}}
    tree = bench.unit("llm", Role("decode", gpus=4), Role("router", gpus=0, spec=lonely))
    with bench.cluster.record(driver.claims) as recording, Replacing(tree) as replacing:
        tree.wait_refused("Unschedulable")
        eventually(lambda: driver.allocated() == {}, describe=lambda: str(driver.allocated()))
        assert replacing.released
        assert tree.bound() == []
    assert any(claim.get("status", {}).get("allocation") for _, claim in recording.events), "none was ever allocated"
    bench.unit("next", Role("decode", gpus=4)).wait_bound()
