"""Only groups are made anew, and only for what their owner changed."""

from __future__ import annotations

import msgspec
import pytest

from covey.api import constants as names
from covey.api import core
from covey.backends import BACKENDS, Cluster
from unit.compile.inferences import inference, role
from unit.operator.world import World


def test_an_edited_service_takes_no_unit_down() -> None:
    network = {"subdomain": "UniquePerReplica"}
    world = World(inference(role("prefill", size=2, network=network), role("decode"), backend="Kubernetes"))
    world.cluster = Cluster(kept=frozenset(probe.name for each in BACKENDS for probe in each.probes()))
    world.settle()
    for key, owned in world.objects.items():
        if key[0].startswith("Service"):
            metadata = msgspec.structs.replace(
                owned.metadata, labels={**(owned.metadata.labels or {}), "covey.dev/role": "x"}
            )
            spec = {**owned.spec, "type": "ClusterIP", "sessionAffinity": "None"}
            world.objects[key] = msgspec.structs.replace(owned, metadata=metadata, spec=spec)
    actions = world.plan().actions
    assert not actions.delete_pods
    assert not actions.delete_objects
    assert any(body["kind"] == "Service" for level in actions.apply for body in level)


def topology(name: str, rack: str) -> core.ClusterTopology:
    levels = (core.TopologyLevelSpec("block", ("x/block",)), core.TopologyLevelSpec("rack", (rack,)))
    return core.ClusterTopology(core.Meta(name=name), core.ClusterTopologySpec(levels))


def confined(required: str) -> World:
    world = World(
        inference(role("prefill", size=2), role("decode"), topology={"required": required}, backend="Kubernetes")
    )
    world.cluster = Cluster(kept=frozenset(probe.name for each in BACKENDS for probe in each.probes()))
    world.topologies = (topology("main", "x/rack"),)
    return world


def serving() -> World:
    world = confined("rack")
    world.settle()
    for name in list(world.pods):
        world.bind(name)
        world.ready(name)
    world.settle()
    return world


@pytest.mark.parametrize(
    "changed",
    [(topology("main", "y/rack"),), (topology("other", "y/rack"),), ()],
    ids=["key renamed", "another one is left", "none is left"],
)
def test_another_topology_takes_no_unit_down(changed: tuple[core.ClusterTopology, ...]) -> None:
    world = serving()
    world.topologies = changed
    assert not world.plan().actions, "nothing is taken down, applied or recorded"
    found = {each["type"]: each for each in world.tell()["conditions"]}
    assert found[names.REMAKE_PENDING]["reason"] == names.REASON_TOPOLOGY_CHANGED
    assert "main" in found[names.REMAKE_PENDING]["message"]
    world.topologies = (topology("main", "x/rack"),)
    assert names.REMAKE_PENDING not in {each["type"] for each in world.tell()["conditions"]}


def test_groups_are_made_for_other_keys_when_the_owner_asks_for_another_level() -> None:
    world = serving()
    world.topologies = (topology("main", "y/rack"),)
    world.inference = confined("block").inference
    assert world.plan().actions.delete_pods
    verdict = world.judge()
    assert verdict.levels is not None
    assert verdict.levels["rack"] == ("y/rack",)
