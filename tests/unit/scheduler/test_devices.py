"""The gauges of devices: counted when something has changed, from what is free now, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from builders.members import cache, group, put, root_key
from builders.requests import GPU, TOPOLOGY, make_node, make_shape
from covey.placement.cluster.device_claims import DeviceAsk
from covey.placement.cluster.inventory import NO_TOPOLOGY, Inventory
from covey.placement.model import Topology
from covey.scheduler import devices
from covey.scheduler.devices import Surveyor
from covey.scheduler.topologies import Topologies
from scrapes import Scrape


class Stage:
    """An inventory without topologies, as the room is, and a surveyor of it."""

    def __init__(self) -> None:
        self.room = Inventory()
        self.chosen: Topology | None = TOPOLOGY
        self.guarded = {GPU}
        self.surveyor = Surveyor(self.room, self._choose, guards=lambda resource: resource in self.guarded)
        self._registry = CollectorRegistry()
        self._registry.register(self.surveyor.gauges)

    def node(self, name: str, rack: str, product: str = "H100", **more: Any) -> None:
        labels = {"zone": "z", "block": "b", "rack": rack, "nvidia.com/gpu.product": product}
        self.room.set_node(make_node(name, labels=labels, **more))

    def look(self) -> Scrape:
        asyncio.run(self.surveyor.look())
        return Scrape.parse(generate_latest(self._registry).decode())

    def _choose(self) -> Topology:
        if self.chosen is None:
            raise LookupError("several")
        return self.chosen


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")):
        made.node(name, rack)
    return made


def test_what_is_shown(stage: Stage) -> None:
    stage.room.hold("p", "a", make_shape(3))
    stage.node("d", "r2", cordoned=True)
    seen = stage.look()
    h100 = {"resource": GPU, "product": "H100"}
    assert seen.by("state", "covey_devices", **h100) == {"used": 3, "whole": 16, "partial": 5, "closed": 8}
    assert seen.by("level", "covey_devices_largest_gang", **h100) == {
        "cluster": 16,
        "zone": 16,
        "block": 16,
        "rack": 8,
        "host": 8,
    }
    assert seen.by("level", "covey_devices_stranded", **h100) == {"zone": 29, "block": 29, "rack": 29, "host": 13}
    assert seen.by("level", "covey_free_domains", **h100) == {"host": 2}
    assert seen("covey_devices_fragmentation_ratio", level="cluster", **h100) == pytest.approx(1 - 16 / 21)
    assert seen("covey_device_kinds_dropped") == 0
    assert seen.by("resource", "covey_devices_unguarded") == {}
    stage.guarded.clear()
    assert stage.look().by("resource", "covey_devices_unguarded") == {GPU: 1}


def test_devices_that_claims_are_counted_by_are_never_unguarded() -> None:
    stage, counted = Stage(), DeviceAsk("gpu.nvidia.com").resource
    stage.guarded.clear()
    stage.node("a", "r1", extra={counted: 4})
    seen = stage.look()
    assert seen("covey_devices", state="whole", resource=counted) == 4
    assert seen.by("resource", "covey_devices_unguarded") == {GPU: 1}


def test_what_a_stranger_makes_up_has_no_series(stage: Stage) -> None:
    for number in range(50):
        stage.node(f"x{number}", f"rack-{number}", product=f"made-up-{number}", gpus=1)
    seen = stage.look()
    assert len(seen.samples) <= devices.MOST * (4 + 4 * 5) + 1
    assert seen("covey_device_kinds_dropped") == 51 - devices.MOST
    assert seen("covey_devices", product="H100") == 32


def test_the_planner_need_not_know_the_topology_that_is_counted_by() -> None:
    """A tree that no gang asks for would cost every event something."""
    made = cache(make_node("a", labels={"cloud.provider.com/topology-rack": "r"}))
    topologies = Topologies(made)
    assert "rack" in {level.name for level in topologies.default().levels}
    assert made.capacity.planned.topologies.keys() == {NO_TOPOLOGY.name}
    put(made, group("root", composite=True))
    unit = made.index.unit(root_key("root"))
    assert unit is not None
    topologies.choose(unit)
    assert made.capacity.planned.topologies.keys() == {NO_TOPOLOGY.name, topologies.default().name}


def test_every_change_is_seen(stage: Stage) -> None:
    assert stage.look()("covey_devices", state="whole") == 32
    stage.room.hold("p", "a", make_shape(8))
    assert stage.look()("covey_devices", state="whole") == 24
    stage.room.release("p")
    stage.room.remove_node("b")
    assert stage.look()("covey_devices", state="whole") == 24
    stage.node("b", "r2", product="H200")
    assert stage.look().by("product", "covey_devices_largest_gang", level="rack") == {"H100": 16, "H200": 8}
    stage.chosen = None
    assert stage.look().by("level", "covey_devices_largest_gang", product="H100") == {"cluster": 24}
    stage.chosen = TOPOLOGY
    assert stage.look()("covey_devices_largest_gang", product="H100", level="rack") == 16
