"""Pins that no plan would have made: told from the gang as the planner sees it, and given up by the barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from builders.members import GATE, cache, group, member, node, pod, role_groups, root_key
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.required_levels import Astray, astray, requires_levels
from covey.api import core
from covey.placement.model import Plan
from covey.placement.planner import plan_minimum
from covey.scheduler.topologies import Topologies

KEY = "cloud.provider.com/topology-rack"
IN_RACK = {"topology": [{"level": "rack", "mode": "Required"}]}


def racks(**names: str) -> list[core.Node]:
    """Nodes and their racks; an empty name is a node without one."""
    return [
        node(name, labels={"topology.kubernetes.io/zone": "z", "cloud.provider.com/topology-block": "b"} | rack(label))
        for name, label in names.items()
    ]


def rack(name: str) -> dict[str, str]:
    return {KEY: name} if name else {}


def tree(
    places: Sequence[Mapping[str, Any]], *, size: int = 1, wish: Mapping[str, Any] = IN_RACK, **more: Any
) -> list[core.Group | core.Pod]:
    replicas = len(places) // size
    root = group("root", composite=True, minimum=1, desired=1, constraints=wish, **more)
    pods = [member("decode", number // size, number % size, size=size, **place) for number, place in enumerate(places)]
    return [root, *role_groups("decode", replicas=replicas, minimum=replicas, size=size), *pods]


def judge(nodes: Sequence[core.Node], objects: Sequence[core.Group | core.Pod]) -> Astray | None:
    made = cache(*nodes, *objects)
    [root] = made.index.roots()
    unit = made.index.unit(root)
    assert unit is not None
    assert requires_levels(unit)
    topology = Topologies(made).choose(unit)
    gang = build_gang(unit, topology, made.capacity.shape, Surroundings())
    bound = {found.metadata.uid for found in unit.pods() if found.spec.node_name}
    return astray(gang, topology, lambda name: made.path(topology, name), bound.__contains__)


TWO = racks(a1="r1", a2="r1", a3="r1", b1="r2", bare="")


def test_required_proximity_is_a_level_too() -> None:
    wish = {"proximity": [{"roles": ["decode"], "level": "rack", "mode": "Required"}]}
    assert judge(TWO, tree([{"pin": "a1"}, {"pin": "b1"}], wish=wish)) is not None
    assert judge(TWO, tree([{"pin": "a1"}, {"pin": "a2"}], wish=wish)) is None


@pytest.mark.parametrize(
    "wish",
    [IN_RACK, {"proximity": [{"roles": ["decode"], "level": "rack", "mode": "Required"}]}],
    ids=["the unit's level", "a proximity"],
)
@pytest.mark.parametrize(
    ("state", "nodes"), [({}, {"b2", "b3"}), ({"deleted": True}, {"a1", "a2"})], ids=["bound", "going"]
)
def test_places_of_a_replica_that_lacks_a_pod_bind_the_next_one(
    wish: Mapping[str, Any], state: Mapping[str, Any], nodes: set[str]
) -> None:
    """A replica whose deletion was denied half-way, or that repairs one pod, lies where it lies."""
    root = group("root", composite=True, minimum=1, desired=1, constraints=wish)
    groups = role_groups("decode", replicas=2, minimum=1, size=2)
    left = member("decode", 0, 0, size=2, node="b1", gpus=8, **state)
    coming = [member("decode", 1, index, size=2, gates=(GATE,), gpus=8) for index in range(2)]
    made = cache(
        *racks(a1="r1", a2="r1", a3="r1", b1="r2", b2="r2", b3="r2"),
        pod("used", node="a3", gpus=8),
        root,
        *groups,
        left,
        *coming,
    )
    found = made.index.unit(root_key("root"))
    assert found is not None
    topology = Topologies(made).choose(found)
    gang = build_gang(found, topology, made.capacity.shape, Surroundings())
    with made.capacity.planning() as inventory:
        plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    assert {each.node for each in plan.assignments} == nodes
