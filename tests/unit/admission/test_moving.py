"""Would a unit fit if it did not have to stay where it is?"""

from __future__ import annotations

from typing import Any

from builders.members import GATE, group, member, node, pod, role_groups, unit
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.growth import smallest_move
from covey.admission.losses import counted_shape, hold_all
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Plan, Refusal, Topology
from covey.placement.planner import plan_minimum

RACK = "cloud.provider.com/topology-rack"
TOPOLOGY = Topology("t", (Level("rack", (RACK,)),))
WISH = {"schedulingConstraints": {"topology": [{"level": "rack", "mode": "Required"}]}}


def asked(nodes: dict[str, str], taken: list[str], *pods: core.Pod, **root: Any) -> tuple[Gang, Inventory, set[str]]:
    """A unit of prefill and decode, one pod each, on nodes (name → rack); some nodes are taken by strangers."""
    inventory = Inventory([TOPOLOGY])
    for name, rack in nodes.items():
        inventory.set_node(node(name, labels={RACK: rack}))
    strangers = [pod(f"stranger-{name}", node=name, gpus=8) for name in taken]
    hold_all(inventory, [*pods, *strangers], counted_shape)
    top = group("root", composite=True, minimum=2, desired=2, **root)
    groups = [
        *role_groups("prefill", replicas=1, minimum=1, size=1),
        *role_groups("decode", replicas=1, minimum=1, size=1),
    ]
    gang = build_gang(unit(top, groups, pods), TOPOLOGY, counted_shape, Surroundings())
    return gang, inventory, {each.metadata.uid for each in pods if each.spec.node_name}


def prefill(place: str) -> core.Pod:
    return member("prefill", 0, node=place, gpus=8)


def decode() -> core.Pod:
    return member("decode", 0, gates=(GATE,), gpus=8)


def test_the_role_that_lacks_replicas_is_enough() -> None:
    """Two replicas of prefill that must lie together: the one that is left stands where there is no second place."""
    inventory = Inventory([TOPOLOGY])
    for name, rack in {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}.items():
        inventory.set_node(node(name, labels={RACK: rack}))
    near = {"proximity": [{"roles": ["prefill"], "level": "rack", "mode": "Required"}]}
    top = group("root", composite=True, minimum=2, desired=2, schedulingConstraints=near)
    groups = [
        *role_groups("prefill", replicas=2, minimum=2, size=1),
        *role_groups("decode", replicas=1, minimum=1, size=1),
    ]
    pods = [
        member("prefill", 0, node="a1", gpus=8),
        member("prefill", 1, gates=(GATE,), gpus=8),
        member("decode", 0, node="c1", gpus=8),
    ]
    hold_all(inventory, [*pods, pod("stranger", node="a2", gpus=8)], counted_shape)
    gang = build_gang(unit(top, groups, pods), TOPOLOGY, counted_shape, Surroundings())
    assert isinstance(plan_minimum(gang, inventory), Refusal)
    bound = {each.metadata.uid for each in pods if each.spec.node_name}
    assert smallest_move(gang, inventory, bound) == "Role"
    assert isinstance(plan_minimum(gang, inventory), Refusal)


def test_room_for_a_plan_is_what_makes_it_movable() -> None:
    nodes = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    gang, inventory, bound = asked(nodes, ["a2"], prefill("a1"), decode(), **WISH)
    assert smallest_move(gang, inventory, bound) == "Unit"
    whole, again, _ = asked(nodes, ["a2"], member("prefill", 0, gates=(GATE,), gpus=8), decode(), **WISH)
    assert isinstance(plan_minimum(whole, again), Plan)
