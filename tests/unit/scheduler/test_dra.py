"""Devices of drivers in the scheduler process: gangs on them, strangers' claims, refusals by name, claims of pods."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from builders.devices import DRIVER, GPU, IS_GPU, claim_body, class_body, gpus, slice_body, tell
from builders.members import cache, drop, node, pod, put, root_key
from covey.api import core
from covey.scheduler.cache import Cache
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


async def test_a_node_that_offers_the_resource_itself_lifts_the_refusal() -> None:
    made = cache(node("n1", gpus=0), *tree("one", gpus=4))
    tell(made, class_body(DRIVER, "device.driver.startsWith('gpu')"))
    loop = Loop(made)
    assert await loop.turn() == {}
    assert loop.queue.decision(root_key("one")).reason == "Unsupported"
    put(made, node("n2", gpus=4))
    assert await loop.turn() == {"one-decode-0-0": "n2"}


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


@pytest.mark.parametrize("kind", get_args(core.DeviceObject))
def test_bookmarks_are_read(kind: type[Any]) -> None:
    """A watch's bookmark has a version and nothing else; one that could not be read would let the watch look dead."""
    bookmark = {"kind": kind.__name__, "apiVersion": "resource.k8s.io/v1", "metadata": {"resourceVersion": "7"}}
    assert msgspec.json.decode(msgspec.json.encode(bookmark), type=kind).metadata.resource_version == "7"


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
