"""Only groups are made anew, and only for what their owner changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInference
from covey.backends import BACKENDS, Cluster
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS_1_38
from unit.operator.world import World


def test_an_edited_service_takes_no_unit_down() -> None:
    network = {"subdomain": "UniquePerReplica"}
    world = native(inference(role("prefill", size=2, network=network), role("decode"), backend="Kubernetes"))
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


def native(resource: DisaggregatedInference) -> World:
    """A world of a cluster that has every field of Kubernetes' own groups."""
    world = World(resource)
    world.cluster = Cluster(
        frozenset({COMPOSITE_POD_GROUPS_1_38}),
        frozenset(probe.name for each in BACKENDS for probe in each.probes()),
    )
    return world


def topology(name: str, rack: str) -> core.ClusterTopology:
    levels = (core.TopologyLevel("block", ("x/block",)), core.TopologyLevel("rack", (rack,)))
    return core.ClusterTopology(core.Meta(name=name), core.ClusterTopologySpec(levels))


def confined(required: str) -> World:
    roles = role("prefill", size=2), role("decode")
    world = native(inference(*roles, topology={"required": required}, backend="Kubernetes"))
    world.topologies = (topology("main", "x/rack"),)
    return world


def serving() -> World:
    world = confined("rack")
    world.settle()
    world.serve()
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
    found = world.conditions()
    assert found[names.REMAKE_PENDING]["reason"] == names.REASON_TOPOLOGY_CHANGED
    assert "main" in found[names.REMAKE_PENDING]["message"]
    world.topologies = (topology("main", "x/rack"),)
    assert names.REMAKE_PENDING not in world.conditions()


def counted(least: int, **spec: Any) -> World:
    roles = role("prefill", size=2), role("decode", replicas=3, minReplicas=least)
    return native(inference(*roles, backend="Kubernetes", **spec))


def act(world: World, passes: int = 4) -> None:
    for _ in range(passes):
        world.carry_out()
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


def serve(world: World, *units: str) -> None:
    """The pods of these units get nodes, and Ready."""
    for name, pod in list(world.pods.items()):
        if pod.metadata.label(names.LABEL_UNIT) in units and not pod.metadata.deletion_timestamp:
            world.bind(name)
            world.ready(name)


def wide(least: int, replicas: int) -> DisaggregatedInference:
    roles = (role("prefill", size=2, replicas=3, minReplicas=least), role("decode"))
    return inference(*roles, replicas=replicas, backend="Kubernetes")


def units(world: World) -> set[str | None]:
    return {pod.metadata.label(names.LABEL_UNIT) for pod in world.pods.values()}


def pending(world: World) -> dict[str, str]:
    found = world.conditions()
    return found.get(names.REMAKE_PENDING, {})


def test_a_unit_that_waits_for_room_is_made_anew_before_one_that_serves() -> None:
    world = native(wide(1, 2))
    for _ in range(3):
        act(world)
        serve(world, "0")
    serving_pods = {name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_UNIT) == "0"}
    assert units(world) == {"0", "1"}
    world.inference = wide(3, 2)
    going = {item.pod.metadata.label(names.LABEL_UNIT) for item in world.plan().actions.delete_pods}
    assert going == {"1"}
    for _ in range(8):
        act(world, 1)
        assert serving_pods <= set(world.pods), "three replicas of unit 1 find no room: unit 0 serves on"
    groups = {name: owned.spec["schedulingPolicy"] for (_, name), owned in world.objects.items() if "-prefill" in name}
    assert groups["llama-1-prefill"] == {"gang": {"minGroupCount": 3}}
    assert groups["llama-0-prefill"] == {"gang": {"minGroupCount": 1}}
    assert pending(world)["reason"] == names.REASON_GROUPS_FIXED
    assert "unit 0 cannot be changed" in pending(world)["message"]


def place(world: World, unit: str, *but: str) -> None:
    """kube-scheduler places all groups of a unit that has pods, but for those of some replicas, and their pods serve."""
    placed = core.GroupStatus(conditions=(core.Condition("PodGroupInitiallyScheduled", "True"),))
    for key, owned in world.objects.items():
        if key[0].startswith("PodGroup.") and owned.metadata.label(names.LABEL_UNIT) == unit and key[1] not in but:
            world.objects[key] = msgspec.structs.replace(owned, status=placed)
    for name, pod in list(world.pods.items()):
        if pod.metadata.label(names.LABEL_UNIT) == unit and not name.startswith(but):
            world.bind(name)
            world.ready(name)


def test_a_unit_with_surplus_stays_until_the_rest_of_the_other_is_refused() -> None:
    world = native(wide(1, 1))
    for _ in range(3):
        act(world)
        place(world, "0")
    act(world)
    before = set(world.pods)
    assert len(before) == 7
    world.inference = wide(2, 1)
    rest = "llama-1-prefill-2"
    for _ in range(3):
        act(world)
        place(world, "1", rest)
    waiting = [name for name in world.pods if name.startswith(rest)]
    assert len(waiting) == 2
    assert before < set(world.pods), "nobody has said that there is no room for its third replica of prefill"
    words = "0/9 nodes are available: 9 Insufficient nvidia.com/gpu. preemption: 0/9 nodes are available"
    said = core.Condition("PodScheduled", "False", "Unschedulable", words)
    for name in waiting:
        world.change(name, spec={"scheduling_gates": None}, status={"conditions": (said,)})
    act(world)
    assert not before & set(world.pods)
