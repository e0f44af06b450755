"""Devices of a driver: counted by Covey, allocated and bound by kube-scheduler, whose claims kube-controller-manager makes.

No driver runs here: the slices are written by hand, and nobody prepares devices for the simulated nodes.
"""

from __future__ import annotations

from typing import Any

import pytest

from builders.devices import DRIVER, GPU, class_body, device, gpus, request_body, slice_body, wish_body
from builders.manifests import Object, workers
from cluster.workbench import OWNED, label, name_of, uid_of, uids
from covey.placement.cluster.classes import IMPLICIT
from device_driver import API, Driver, assert_devices
from scheduler_trees import GATE, RELEASE, START_GATE, Role, Tree, gates_of, node_of, pin_of
from stage import Stage
from stage.play import INFERENCE, ROOT, Trees, replace_released

MIG = "mig.nvidia.com"
SMALL = "device.attributes['gpu.nvidia.com'].profile == '1g'"
LARGE = "device.attributes['gpu.nvidia.com'].profile == '3g'"


@pytest.fixture
def driver(stage: Stage) -> Driver:
    """Writes slices and classes; at the end of the story they go, and so do claims and their templates."""
    made = Driver(stage.cluster, stage.namespace)
    # The law counts what nodes say that they have; these devices are in no node's allocatable.
    stage.excused.add("overcommitted")

    def remove() -> None:
        for path in made.made:
            stage.cluster.api("DELETE", path)
        for plural in ("resourceclaims", "resourceclaimtemplates"):
            stage.cluster.api("DELETE", f"{API}/namespaces/{stage.namespace}/{plural}")

    stage.after(remove)
    return made


def template(stage: Stage, name: str, *requests: Object) -> Object:
    """Have a ResourceClaimTemplate; return what the spec of a pod needs for a claim of it."""
    path = f"{API}/namespaces/{stage.namespace}/resourceclaimtemplates"
    stage.cluster.api("POST", path, {"metadata": {"name": name}, "spec": {"spec": wish_body(*requests)}})
    return claiming(name)


def claiming(name: str) -> Object:
    return {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": name}]}


def named(stage: Stage, name: str, *requests: Object) -> Object:
    """Have a ResourceClaim; return what the spec of a pod needs to name it."""
    path = f"{API}/namespaces/{stage.namespace}/resourceclaims"
    stage.cluster.api("POST", path, {"metadata": {"name": name}, "spec": wish_body(*requests)})
    return {"resourceClaims": [{"name": "r", "resourceClaimName": name}]}


def bound(stage: Stage, tree: Tree, count: int) -> list[Object]:
    """The pods of a unit once so many are bound: claims are made and allocated by others, meanwhile nobody may owe anything."""
    stage.await_event(
        lambda: len(stage.bound(inference=tree.name)) == count, f"{count} pods of {tree.name} are bound; {stage.told()}"
    )
    return stage.ready(count, inference=tree.name)


def await_message(stage: Stage, root: str, words: str) -> None:
    """Wait until a root that is not admitted says so in these words."""
    stage.await_event(lambda: words in stage.condition("Admitted", root, of=ROOT)[2], words)


def never_released(stage: Stage) -> bool:
    return stage.never("Pod", lambda pod: RELEASE in pod["metadata"].get("annotations", {}))


def test_gang_when_its_resource_is_devices_of_a_driver_is_bound_whole_on_them(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    """Four nodes with eight GPUs in two slices each, and none in allocatable; four pods of eight, and no fifth."""
    driver.make("deviceclasses", class_body())
    names = stage.nodes(nodes=4, gpus=0)
    for name in names:
        driver.make("resourceslices", slice_body(f"{name}-a", *gpus(4), node=name, of=2))
        driver.make("resourceslices", slice_body(f"{name}-b", *gpus(4, first=4), node=name, of=2))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, size=2), required="rack")
    pods = bound(stage, tree, 4)
    assert {node_of(pod) for pod in pods} == set(names)
    assert never_released(stage)
    assert_devices(driver, tree, 8)
    late = bench.unit("late", Role("decode", gpus=1))
    assert stage.refusal("late", of=ROOT).endswith(f"1 more {GPU} there would do")
    stage.delete("Pod", name_of(pods[0]), grace=0)
    bound(stage, late, 1)
    assert_devices(driver, late, 1)


def test_gang_when_its_devices_do_not_suffice_is_refused_with_numbers_until_a_stranger_gives_his_back(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    driver.make("deviceclasses", class_body())
    [name] = stage.nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    bench.pod("ordinary", gpus=1)
    bench.pod("stranger", gpus=0, **named(stage, "theirs", request_body(1)))
    stage.await_event(lambda: len(stage.bound()) == 2, "both strangers are bound")
    tree = bench.unit("llm", Role("decode", replicas=3, minimum=3, gpus=1))
    message = stage.refusal("llm", of=ROOT)
    assert "capacity for 2 of 3 replicas" in message
    assert message.endswith(f"1 more {GPU} there would do")
    assert len(driver.allocated()) == 1, "that of the ordinary pod"
    stage.delete("Pod", "stranger", grace=0)
    bound(stage, tree, 3)
    assert_devices(driver, tree, 1)


def test_class_when_its_selectors_cannot_be_judged_is_named_and_counts_once_they_can(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    driver.make("deviceclasses", class_body(DRIVER, f"device.driver.startsWith('{DRIVER}')"))
    [name] = stage.nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    # Of a pool that is not written to its end, and newer, nothing counts either.
    driver.offer(name, 2, "-new", generation=2, of=2)
    tree = bench.unit("llm", Role("decode", gpus=4))
    message = stage.refusal("llm", "Unsupported", of=ROOT)
    assert f"{GPU} is of DeviceClass {DRIVER}, whose selectors Covey cannot judge" in message
    stage.cluster.api(
        "PATCH", f"{API}/deviceclasses/{DRIVER}", {"spec": {"selectors": class_body()["spec"]["selectors"]}}
    )
    assert GPU in stage.refusal("llm", of=ROOT)
    driver.make("resourceslices", slice_body(f"{name}-rest", *gpus(2, first=2), node=name, generation=2, of=2))
    driver.withdraw(name)
    bound(stage, tree, 1)


def test_gang_of_claims_shares_nodes_with_one_of_the_extended_resource(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    """Nodes with four GPUs in slices of two: claims of three leave one each for who asks by the resource."""
    driver.make("deviceclasses", class_body())
    names = stage.nodes(nodes=2, gpus=0)
    for name in names:
        driver.make("resourceslices", slice_body(f"{name}-a", *gpus(2), node=name, of=2))
        driver.make("resourceslices", slice_body(f"{name}-b", *gpus(2, first=2), node=name, of=2))
    three = template(stage, "three", request_body(3))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=three))
    assert {node_of(pod) for pod in bound(stage, tree, 2)} == set(names)
    assert never_released(stage)
    assert_devices(driver, tree, 3)
    bench.unit("big", Role("decode", gpus=2))
    stage.refusal("big", of=ROOT)
    small = bench.unit("small", Role("decode", replicas=2, minimum=2, gpus=1))
    bound(stage, small, 2)
    assert_devices(driver, small, 1)


def test_gang_of_parts_of_a_class_waits_for_a_template_that_comes_late(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    selector = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
    driver.make("deviceclasses", class_body(MIG, selector, resource=None))
    [name] = stage.nodes(nodes=1, gpus=0)
    parts = [device(f"d{number}", "mig") for number in range(6)]
    for number, part in enumerate(parts):
        part["attributes"]["profile"] = {"string": "1g" if number < 4 else "3g"}
    driver.make("resourceslices", slice_body(name, *parts, node=name))
    large = template(stage, "large", request_body(1, LARGE, of=MIG))
    tree = bench.unit(
        "llm",
        Role("prefill", replicas=2, minimum=2, gpus=0, spec=large),
        Role("decode", replicas=2, minimum=2, gpus=0, spec=claiming("late")),
    )
    await_message(stage, "llm", "was not made yet")
    stage.settle()
    assert all(map(gates_of, stage.pods()))
    template(stage, "late", request_body(2, SMALL, of=MIG))
    bound(stage, tree, 4)
    assert never_released(stage)
    bench.unit("more", Role("decode", gpus=0, spec=template(stage, "small", request_body(1, SMALL, of=MIG))))
    await_message(stage, "more", "capacity for 0 of 1 replicas")
    bench.unit("whole", Role("decode", gpus=0, spec=template(stage, "any", request_body(1, of=MIG))))
    await_message(stage, "whole", "capacity for 0 of 1 replicas")
    assert len(stage.bound()) == 4


def test_device_when_another_scheduler_takes_it_between_pin_and_bind_costs_the_pin(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    """Pinned, but held by a gate of somebody else. Meanwhile the pool is written anew."""
    driver.make("deviceclasses", class_body())
    [name] = stage.nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    four = template(stage, "four", request_body(4))
    tree = bench.unit("llm", Role("decode", gpus=0, spec=four, gates=(GATE, START_GATE)))
    stage.await_event(lambda: [pin_of(pod) for pod in stage.pods()] == [name], "the gang is pinned")
    bench.pod("ordinary", gpus=0, **named(stage, "wished", request_body(1)))
    stage.await_event(
        lambda: any("reserved for admitted gangs" in str(pod.get("status")) for pod in stage.pods()), "it is kept off"
    )
    stage.delete("Pod", "ordinary", grace=0)
    driver.take("theirs", name, "gpu-0")
    assert replace_released(stage, tree) == ["CapacityTaken"]
    await_message(stage, "llm", DRIVER)
    assert driver.allocated() == {}
    driver.make("resourceslices", slice_body(f"{name}-new", *gpus(4), node=name, generation=2))
    driver.withdraw(name)
    driver.give_back("theirs")
    stage.await_event(lambda: [pin_of(pod) for pod in stage.pods()] == [name], "the gang is pinned again")
    stage.patch("Pod", name_of(stage.pods()[0]), [{"op": "remove", "path": "/spec/schedulingGates/0"}])
    bound(stage, tree, 1)
    assert_devices(driver, tree, 4)


def test_gang_when_it_is_released_leaves_no_device_allocated(stage: Stage, bench: Trees, driver: Driver) -> None:
    """One pod is held with its devices; the other is one that kube-scheduler takes to no node."""
    driver.make("deviceclasses", class_body())
    [name] = stage.nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    nobody = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
    lonely: dict[str, Any] = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}}}
    four = template(stage, "four", request_body(4))
    with stage.cluster.record(driver.claims) as recording:
        tree = bench.unit("llm", Role("decode", gpus=0, spec=four), Role("router", gpus=0, spec=lonely))
        assert replace_released(stage, tree)
        assert "the pods use what Covey does not model" in stage.refusal("llm", of=ROOT)
        stage.await_event(lambda: driver.allocated() == {}, "nothing is allocated")
    assert any(claim.get("status", {}).get("allocation") for _, claim in recording.events), "none was ever allocated"
    bound(stage, bench.unit("next", Role("decode", gpus=4)), 1)


def test_claim_that_pods_name_ties_them_to_its_devices_once_these_are_allocated(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    driver.make("deviceclasses", class_body())
    for name in stage.nodes(nodes=3, gpus=0):
        driver.offer(name, 4)
    shared = named(stage, "shared", request_body(4))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=shared))
    await_message(stage, "llm", "ResourceClaim shared is named by several pods")
    bench.pod("first", gpus=0, **shared)
    pods = bound(stage, tree, 2)
    assert {node_of(pod) for pod in pods} == {node_of(stage.get("Pod", "first"))}


def test_quota_on_a_device_class_when_it_is_full_keeps_the_gang_gated(
    stage: Stage, bench: Trees, driver: Driver
) -> None:
    """kube-controller-manager makes no claim beyond the quota; so no pod of the gang is let go until it is raised."""
    driver.make("deviceclasses", class_body())
    [name] = stage.nodes(nodes=1, gpus=0)
    driver.offer(name, 4)
    devices = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
    stage.quota("few", **{devices: 2})
    two = template(stage, "two", request_body(2))
    tree = bench.unit("llm", Role("decode", replicas=2, minimum=2, gpus=0, spec=two))
    await_message(stage, "llm", "was not made yet")
    stage.settle()
    assert all(map(gates_of, stage.pods()))
    assert driver.allocated() == {}
    stage.quota("few", **{devices: 4})
    bound(stage, tree, 2)
    assert_devices(driver, tree, 2)


# Resources whose pods claim devices by a template


CLAIMS = "count/resourceclaims.resource.k8s.io"


def claimants(size: int = 1, replicas: int = 1, **spec: Any) -> Object:
    """A role whose pods claim by the template ``four``."""
    return workers(
        "decode", gpus=0, size=size, replicas=replicas, minReplicas=replicas, spec={**claiming("four"), **spec}
    )


@pytest.fixture
def offered(stage: Stage, driver: Driver) -> Driver:
    """Two nodes of eight devices each, and nothing else."""
    driver.make("deviceclasses", class_body())
    for node in stage.nodes(nodes=2, gpus=0):
        driver.offer(node, 8)
    return driver


def exchange_template(stage: Stage, *requests: Object) -> None:
    """Write the template in the place of another one: what it asks for nobody can change."""
    path = f"{API}/namespaces/{stage.namespace}/resourceclaimtemplates"
    if stage.cluster.api("GET", path)["items"]:
        stage.cluster.api("DELETE", f"{path}/four")
    template(stage, "four", *requests)


def test_resource_when_its_template_is_not_there_or_cannot_be_counted_makes_nothing_until_it_can(
    stage: Stage, offered: Driver
) -> None:
    """Two replicas of two pods of four devices each fill two nodes of eight; a third finds no room."""
    stage.create(claimants(size=2, replicas=2))
    assert stage.refusal(reason="Waiting") == "role decode: ResourceClaimTemplate four does not exist: create it"
    every = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "All"}}
    exchange_template(stage, every)
    words = "ResourceClaimTemplate four has request r with allocationMode All, which Covey cannot count: remove it"
    assert stage.refusal(reason="Unsupported") == f"role decode: {words}"
    assert words in stage.condition("Stalled")[2]
    assert not any(stage.owned(kind) for kind in OWNED)
    exchange_template(stage, request_body(4))
    stage.await_event(lambda: len(stage.bound()) == 4, "all are bound")
    pods = stage.ready(4)
    allocated = offered.allocated()
    taken = [device for pod in pods for device in allocated[uid_of(pod)]]
    assert len(taken) == len(set(taken)) == 16
    assert all({pool for pool, _ in allocated[uid_of(pod)]} == {node_of(pod)} for pod in pods)
    # It ends nothing that runs.
    exchange_template(stage, every)
    stage.change(rollout={"paused": True})
    stage.settle()
    assert stage.condition("Admitted")[:2] == ("True", "Admitted")
    assert uids(stage.pods()) == uids(pods)
    exchange_template(stage, request_body(4))
    stage.create(claimants(), name="more")
    stage.refusal("more")
    stage.delete(INFERENCE, "llm")
    stage.await_event(lambda: len(stage.bound(inference="more")) == 1, "it has its place")
    stage.await_event(lambda: len(offered.allocated()) == 1, "nothing but what the other has is allocated")


def test_gangs_when_a_quota_of_devices_suffices_for_one_and_a_half_are_one(stage: Stage, offered: Driver) -> None:
    """The API server's own count is what the operator has charged: claims, and the devices under each of their names."""
    charged = {f"{DRIVER}.deviceclass.resource.k8s.io/devices": 8, "requests.nvidia.com/gpu": 8}
    charged |= {f"requests.{IMPLICIT}{DRIVER}": 8, CLAIMS: 2}
    stage.quota("few", **{name: count * 3 // 2 for name, count in charged.items()})
    exchange_template(stage, request_body(4))
    for name in ("one", "two"):
        stage.create(claimants(size=2), name=name)
    stage.await_event(lambda: len(stage.bound()) == 2, "one runs")
    stage.settle()
    [runs] = {label(pod, "inference") for pod in stage.pods()}
    [waits] = {"one", "two"} - {runs}
    assert len(stage.pods()) == 2
    shortages = [
        f"quota {stage.namespace}/few: {name} {charged[name]} needed, {charged[name] // 2} left"
        for name in sorted(charged)
    ]
    words = f"no pod of unit 0 is created before its whole minimum fits: {'; '.join(shortages[:3])}; and 1 more"
    assert stage.refusal(waits, "QuotaExceeded").startswith(words)
    used = stage.get("ResourceQuota", "few")["status"]["used"]
    assert used == {name: str(count) for name, count in charged.items()}
    assert len(offered.allocated()) == 2
    stage.delete(INFERENCE, runs)
    stage.await_event(lambda: len(stage.bound(inference=waits)) == 2, "the other one runs")


def test_gang_of_a_resource_when_it_is_released_leaves_nothing_allocated(stage: Stage, offered: Driver) -> None:
    """kube-scheduler allocates for one pod, and takes the other to no node."""
    exchange_template(stage, request_body(4))
    nobody = {"labelSelector": {"matchLabels": {"is": "nowhere"}}, "topologyKey": "kubernetes.io/hostname"}
    lonely = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [nobody]}}
    stage.create(claimants(), workers("prefill", gpus=0, spec={"affinity": lonely}))
    stage.await_event(lambda: bool(stage.event_notes("Released")) or not never_released(stage), "a pin is taken back")
    stage.delete(INFERENCE, "llm")
    stage.await_event(lambda: not offered.allocated(), "nothing is allocated")
    stage.create(claimants(), name="next")
    stage.await_event(lambda: len(stage.bound(inference="next")) == 1, "the next has it")
