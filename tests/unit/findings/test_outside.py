"""Devices, Jobs and native groups: what is right, and is not so yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.devices import DRIVER, GPU, Json, class_body, gpus, request_body, slice_body
from builders.files import cluster, covey, inference, role
from builders.members import cache, group, member, node, pod, put, role_groups, root_key
from builders.steps import count_steps
from covey.api import core
from covey.placement.cluster.device_claims import DeviceAsk
from covey.placement.cluster.selectors import canonical_selector
from covey.placement.cluster.slices import DeviceCounts
from covey.scheduler.releases import DOUBT
from scheduler_loop import Loop, settle
from unit.cli.test_plan_devices import arguments_of, claiming, template_body
from unit.scheduler.test_dra_claims import claim, tell, with_claims
from unit.scheduler.test_dra_claims import cluster as dra_cluster
from unit.scheduler.test_dra_claims import gang as dra_gang
from unit.scheduler.test_releases import Writes, running

#: Before and after the builders' objects were created.
BEFORE, AFTER = "2020-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
NARROW = "device.attributes['gpu.nvidia.com'].index == 0"
#: Two selectors of which 60 characters and 24 bits of a hash are alike; no device meets the second.
H200 = 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA H200"'
LOOKALIKE = 'device.attributes["x33248689.example"].productName == "NVIDIA H200"'


def numbered(count: int, **attributes: Json) -> list[Json]:
    """Devices with their numbers, and more, as attributes."""
    devices = gpus(count)
    for number, body in enumerate(devices):
        body["attributes"] |= {"index": {"int": number}, **attributes}
    return devices


async def placed_beside(mine: Json, selector: str, **state: Any) -> tuple[int, str]:
    """How many pods of a gang of two get places, each with a claim of its own for devices of three nodes; and a refusal.

    A pod of somebody else claims one device by a selector: it has a node in ``state``, or is gated for ever.
    """
    made = dra_cluster(class_body(resource=None), nodes=3, devices=numbered(8, productName={"string": "NVIDIA H200"}))
    tell(made, claim("odd", request_body(1, selector), have=((DRIVER, "n1", "gpu-0"),) if "node" in state else ()))
    gates = () if "node" in state else ("example.com/never",)
    put(made, with_claims(pod("stranger", gpus=0, gates=gates, **state), "odd"))
    dra_gang("gang", mine, made=made, replicas=2)
    await made.devices.steady.wait()
    loop = Loop(made)
    places = await loop.turn()
    return len(places), loop.queue.decision(root_key("gang")).message


async def test_claims_of_a_class_when_a_gated_pod_has_asked_for_a_part_of_it_before_are_planned() -> None:
    assert await placed_beside(request_body(8), NARROW, created=BEFORE) == (2, "")


async def test_claims_of_a_class_when_a_running_pod_has_its_device_by_a_selector_are_planned() -> None:
    """Its device is gone from its node, and two others are whole."""
    assert await placed_beside(request_body(8), NARROW, created=BEFORE, node="n1", phase="Running") == (2, "")


async def test_claims_by_a_selector_when_another_one_has_the_same_short_name_are_planned() -> None:
    assert await placed_beside(request_body(8, H200), LOOKALIKE, created=AFTER) == (2, "")


@pytest.mark.parametrize("way", ["claim", "extended resource"])
def test_a_pod_when_it_asks_for_more_devices_than_a_claim_may_have_is_refused_by_name(tmp_path: Path, way: str) -> None:
    """kube-scheduler: ``adding 33 devices exceeds the claim limit of 32``."""
    wanted = claiming("many") if way == "claim" else inference("llm", role("w", gpus=33))
    nodes = cluster(1)
    nodes[0]["status"]["allocatable"].pop(GPU)
    slices = [slice_body("slice", *gpus(40), node=nodes[0]["metadata"]["name"])]
    nodes += [class_body(), *slices, template_body("many", request_body(33))]
    result = covey("plan", *arguments_of(tmp_path, nodes, wanted))
    assert result.exit_code != 0
    assert "32" in result.output + result.stderr


def test_a_selector_when_it_comes_into_play_costs_no_more_for_others_that_are() -> None:
    """Only what is new is judged, once for devices that are alike."""

    def steps(others: int) -> int:
        counts = DeviceCounts()
        counts.set_class(msgspec.convert(class_body(DRIVER, f"device.driver == '{DRIVER}'"), core.DeviceClass))
        for number in range(8):
            body = slice_body(f"s{number}", *numbered(8), node=f"n{number}")
            counts.set_slice(msgspec.convert(body, core.ResourceSlice))
        for number in range(others):
            ask(counts, f"p{number}", f"{NARROW[:-1]}{number}", f"t{number % 4}")
        for _ in counts.judge():
            pass
        ask(counts, "new", f"{NARROW[:-1]}7", "t9")
        return count_steps(lambda: [*counts.judge()])

    def ask(counts: DeviceCounts, name: str, selector: str, namespace: str) -> None:
        asker = core.Pod(core.Meta(name=name, namespace=namespace, uid=name, creation_timestamp="2026-01-01T00:00:00Z"))
        counts.ask(asker, [DeviceAsk(DRIVER, (canonical_selector(selector),))])

    assert steps(6) < 1.5 * steps(0)


async def test_a_pin_when_kube_scheduler_fails_at_it_is_undone_as_one_that_it_refuses() -> None:
    """Not after ``timeoutSeconds``, for which the room would be held."""
    now = 0.0
    failed = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "adding 33 devices"}
    pinned = member("decode", 0, root="g", pin="n1", conditions=[failed])
    groups = [group("g", composite=True, minimum=1), *role_groups("decode", replicas=1, minimum=1, size=1, root="g")]
    made = cache(*groups, node("n1"), pinned)
    writes = Writes()
    async with running(made, writes, lambda: now):
        now = 2 * DOUBT
        put(made, pinned)
        await settle()
        now = 4 * DOUBT
        put(made, pinned)
        await settle()
    assert "release" in [verb for verb, *_ in writes.said]
