"""Devices of drivers in the scheduler process: gangs on them, strangers' claims, refusals by name, claims of pods."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from builders.devices import DRIVER, GPU, IS_GPU, claim_body, class_body, gpus, slice_body, tell
from builders.members import cache, drop, member, node, pod, put, root_key
from covey.api import core
from covey.placement.cluster.devices import Kind, Share
from covey.placement.cluster.resources import amounts
from covey.scheduler.cache import Cache
from covey.scheduler.devices import Surveyor
from covey.scheduler.direct import DirectBinding
from covey.scheduler.topologies import Topologies
from scheduler_loop import Loop, tree


def made_of(*objects: Any, nodes: int = 1, each: int = 4) -> Cache:
    """A cluster whose nodes have GPUs of a driver alone."""
    names = [f"n{number + 1}" for number in range(nodes)]
    made = cache(*(node(name, gpus=0) for name in names), *objects)
    tell(made, class_body())
    for name in names:
        tell(made, slice_body(f"slice-{name}", *gpus(each), node=name))
    return made


def free(made: Cache, name: str = "n1") -> int:
    """What guard, barrier and planner see."""
    room, planned = (inventory.free(name).get(GPU, 0) for inventory in (made.capacity.room, made.capacity.planned))
    assert room == planned
    return room


async def test_a_gang_gets_places_on_devices_of_a_driver() -> None:
    loop = Loop(made_of(*tree("one", replicas=2, minimum=2, gpus=4), nodes=2))
    assert set((await loop.turn()).values()) == {"n1", "n2"}


async def test_a_gang_that_waits_is_planned_when_devices_come() -> None:
    made = cache(node("n1", gpus=0), *tree("one", gpus=4))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("one")).reason == "Infeasible"
    tell(made, class_body())
    tell(made, slice_body("a", *gpus(4)))
    assert await loop.turn() == {"one-decode-0-0": "n1"}


async def test_a_gang_of_a_class_that_cannot_be_judged_is_refused_by_name_until_it_can() -> None:
    made = cache(node("n1", gpus=0), *tree("one", gpus=4))
    tell(made, slice_body("a", *gpus(4)))
    tell(made, class_body(DRIVER, "device.driver.startsWith('gpu')"))
    loop = Loop(made)
    assert await loop.turn() == {}
    decision = loop.admission.decision(root_key("one"))
    assert decision.reason == "Unsupported"
    assert f"{GPU} is of DeviceClass {DRIVER}, whose selectors Covey cannot judge" in decision.message
    tell(made, class_body(), "MODIFIED")
    assert await loop.turn() == {"one-decode-0-0": "n1"}


async def test_a_node_that_offers_the_resource_itself_lifts_the_refusal() -> None:
    made = cache(node("n1", gpus=0), *tree("one", gpus=4))
    tell(made, class_body(DRIVER, "device.driver.startsWith('gpu')"))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("one")).reason == "Unsupported"
    put(made, node("n2", gpus=4))
    assert await loop.turn() == {"one-decode-0-0": "n2"}


def test_a_stranger_takes_devices_by_a_claim_at_once_and_gives_them_back() -> None:
    made = made_of()
    tell(made, claim_body("c", (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1")))
    assert free(made) == 2
    tell(made, claim_body("c"), "MODIFIED")
    assert free(made) == 4
    tell(made, claim_body("c", (DRIVER, "n1", "gpu-0")), "MODIFIED")
    tell(made, claim_body("c", (DRIVER, "n1", "gpu-0")), "DELETED")
    assert free(made) == 4


def test_a_pod_counts_once_from_its_binding_until_its_claim_is_gone() -> None:
    made = made_of()
    waiting, bound = pod("p", gpus=2), pod("p", gpus=2, node="n1")
    put(made, waiting)
    assert free(made) == 4
    tell(made, claim_body("c", (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1"), pod="uid-p"))
    assert free(made) == 2, "kube-scheduler has allocated, and binds"
    put(made, bound)
    assert free(made) == 2
    drop(made, bound)
    assert free(made) == 2, "its claim goes after it"
    tell(made, claim_body("c", pod="uid-p"), "DELETED")
    assert free(made) == 4


def test_a_pinned_pod_counts_by_its_requests_before_its_claim_does() -> None:
    made = made_of(*tree("one", gpus=3))
    pinned = member("decode", 0, root="one", gpus=3, pin="n1")
    put(made, pinned)
    assert free(made) == 1
    tell(made, claim_body("c", *((DRIVER, "n1", f"gpu-{n}") for n in range(3)), pod=pinned.metadata.uid))
    assert free(made) == 1
    assert made.capacity.refusal_in_place(pinned, "n1") is None
    tell(made, claim_body("stranger", (DRIVER, "n1", "gpu-3")))
    assert free(made) == 0
    assert made.capacity.refusal_in_place(pinned, "n1") is None


def test_a_stranger_between_pin_and_bind_is_seen_where_the_barrier_looks() -> None:
    made = made_of(*tree("one", gpus=3))
    pinned = member("decode", 0, root="one", gpus=3, pin="n1")
    put(made, pinned)
    tell(made, claim_body("stranger", (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1")))
    assert made.capacity.is_overcommitted("n1")
    assert made.capacity.refusal_in_place(pinned, "n1") == f"insufficient {GPU}"


@pytest.mark.parametrize("first", ["pod", "claim"])
def test_a_claim_that_denies_its_pod_is_not_counted_beside_it(first: str) -> None:
    made = made_of()
    denied = claim_body("c", (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1"))
    bound = pod("p", gpus=2, node="n1")
    status = core.PodExtendedClaimStatus(resource_claim_name="c")
    bound = replace(bound, status=replace(bound.status, extended_resource_claim_status=status))
    put(made, pod("p", gpus=2, node="n1"))
    if first == "pod":
        put(made, bound)
    tell(made, denied)
    put(made, bound)
    assert free(made) == 2
    tell(made, denied, "DELETED")
    drop(made, bound)
    assert free(made) == 4
    assert not made.devices._made


def test_pools_that_are_written_anew_count_nothing_until_they_are_whole() -> None:
    made = made_of()
    tell(made, slice_body("new-1", *gpus(4), generation=2, of=2))
    assert free(made) == 0
    tell(made, slice_body("new-2", *gpus(2, first=4), generation=2, of=2))
    assert free(made) == 6


def test_a_node_that_comes_after_its_devices_has_them_and_keeps_them() -> None:
    made = cache()
    tell(made, slice_body("a", *gpus(4)))
    tell(made, class_body())
    put(made, node("n1", gpus=0))
    assert free(made) == 4
    put(made, node("n1", gpus=0, labels={"x": "y"}))
    assert free(made) == 4
    stored = made.node("n1")
    assert stored is not None
    assert GPU not in {k for k, v in amounts(stored.status.allocatable).items() if v}


async def test_a_member_whose_named_claim_does_not_exist_is_not_planned() -> None:
    *groups, one = tree("one", gpus=0)
    assert isinstance(one, core.Pod)
    claims = ({"name": "shared", "resourceClaimName": "mine"},)
    made = cache(node("n1"), *groups, replace(one, spec=replace(one.spec, resource_claims=claims)))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert "ResourceClaim mine of pod one-decode-0-0 does not exist" in loop.admission.decision(root_key("one")).message
    tell(made, claim_body("mine"))
    assert await loop.turn() == {"one-decode-0-0": "n1"}


def test_pods_bound_without_kube_scheduler_may_not_have_devices_that_it_allocates() -> None:
    made = made_of(*tree("one", gpus=4))
    direct = DirectBinding(made, None, "covey-direct", leads=lambda: True)  # type: ignore[arg-type]
    mine = member("decode", 0, root="one", gpus=4)
    wanted = replace(mine, spec=replace(mine.spec, scheduler_name="covey-direct"))
    assert f"{GPU} of a DeviceClass, which only kube-scheduler knows" in (direct.obstacle(wanted) or "")
    assert direct.obstacle(mine) is None
    tell(made, slice_body("slice-n1", *gpus(4)), "DELETED")
    assert direct.obstacle(wanted) is None


async def test_classes_that_change_let_others_have_their_turn_and_all_stays_until_they_are_judged() -> None:
    made, turns = made_of(nodes=50), 0
    await made.devices.steady.wait()
    assert {free(made, f"n{number + 1}") for number in range(50)} == {4}
    for event in ("ADDED", "DELETED"):
        tell(made, class_body("second", IS_GPU, resource="b/gpu"), event)
    tell(made, class_body("second", IS_GPU, resource="b/gpu"))
    tell(made, slice_body("late", *gpus(2), node="late"))
    put(made, node("late", gpus=0))
    assert made.devices.counts.problem(GPU) is None
    assert {free(made, name) for name in ("n1", "n50")} == {4}
    assert free(made, "late") == 2
    while not made.devices.steady.is_set():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    assert "of DeviceClass second too" in (made.devices.counts.problem(GPU) or "")
    assert {free(made, name) for name in ("late", *(f"n{number + 1}" for number in range(50)))} == {0}


async def test_a_restart_decides_nothing_before_devices_are_counted() -> None:
    names = [f"n{number}" for number in range(50)]
    made = cache(*(node(name, gpus=0) for name in names))
    for name in names:
        tell(made, slice_body(name, *gpus(4), node=name))
    tell(made, class_body())
    for reflector in made.reflectors:
        reflector.synced.set()
        reflector.settled.set()
    await made.wait_synced()
    assert {free(made, name) for name in names} == {4}


async def test_metrics_count_them() -> None:
    made = made_of(nodes=2)
    put(made, pod("p", gpus=1, node="n1"))
    tell(made, claim_body("stranger", (DRIVER, "n2", "gpu-0")))
    surveyor = Surveyor(made.capacity.room, Topologies(made).default)
    await surveyor.look()
    assert surveyor.gauges.report.shares == {Kind(GPU): Share(used=1, partial=3, whole=3)}


@pytest.mark.parametrize("kind", get_args(core.DeviceObject))
def test_bookmarks_are_read(kind: type[Any]) -> None:
    """A watch's bookmark has a version and nothing else; one that could not be read would let the watch look dead."""
    bookmark = {"kind": kind.__name__, "apiVersion": "resource.k8s.io/v1", "metadata": {"resourceVersion": "7"}}
    assert msgspec.json.decode(msgspec.json.encode(bookmark), type=kind).metadata.resource_version == "7"
