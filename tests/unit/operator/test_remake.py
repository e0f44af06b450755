"""Only groups are made anew, and only for what their owner changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def counted(least: int, **spec: Any) -> World:
    world = World(
        inference(role("prefill", size=2), role("decode", replicas=3, minReplicas=least), backend="Kubernetes", **spec)
    )
    world.cluster = Cluster(kept=frozenset(probe.name for each in BACKENDS for probe in each.probes()))
    return world


def act(world: World, passes: int = 4) -> None:
    for _ in range(passes):
        for step in world.steps(world.plan().actions):
            step()
        world.finish()


def run(world: World) -> None:
    for _ in range(3):
        act(world)
        for name in list(world.pods):
            if not world.pods[name].spec.node_name:
                world.bind(name)
                world.ready(name)
    act(world)


def later_release(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field of a later Kubernetes, and a level that a webhook gives to groups without one."""
    if kind != "PodGroup":
        return {**spec, "preemptionPolicy": "Never"}
    return {"schedulingConstraints": {"topology": [{"key": "x/zone"}]}, **spec, "queueing": {"mode": "Fair"}}


def stricter(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A webhook has its own mind about preemption."""
    return {**spec, "disruptionMode": {"single": {}}} if kind != "Workload" else spec


@pytest.mark.parametrize("admit", [later_release, stricter])
def test_what_others_write_into_groups_takes_no_unit_down(admit: Any) -> None:
    world = counted(1)
    world.admit = admit
    run(world)
    before = set(world.pods)
    world.inference = counted(2).inference
    act(world)
    assert before <= set(world.pods)
    groups = [
        owned for (kind, name), owned in world.objects.items() if ("Group" in kind, name) == (True, "llama-0-decode")
    ]
    assert [owned.spec["schedulingPolicy"] for owned in groups] == [{"gang": {"minCount": 2}}]


def test_what_is_filled_into_groups_of_former_releases_takes_no_unit_down() -> None:
    world = counted(1)
    world.admit = lambda _, spec: {**spec, "queueing": {"mode": "Fair"}, "priority": 0}
    run(world)
    for key, owned in world.objects.items():
        annotations = {k: v for k, v in (owned.metadata.annotations or {}).items() if k != names.ANNOTATION_FIXED}
        metadata = msgspec.structs.replace(owned.metadata, annotations=annotations)
        world.objects[key] = msgspec.structs.replace(owned, metadata=metadata)
    assert not world.plan().actions, "an upgrade applies nothing"
    world.inference = counted(2).inference
    assert not world.plan().actions.delete_pods


def test_a_field_that_its_owner_takes_away_is_not_taken_for_others() -> None:
    world = serving()
    world.inference = World(inference(role("prefill", size=2), role("decode"), backend="Kubernetes")).inference
    assert world.plan().actions.delete_pods
