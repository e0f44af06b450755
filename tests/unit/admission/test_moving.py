"""Would a unit fit if it did not have to stay where it is?"""

from __future__ import annotations

from typing import Any

from builders.gangs import IN_ONE_RACK, at, gang_of, nodes_in
from builders.holds import hold_all
from builders.members import pod
from covey.admission.growth import smallest_move
from covey.admission.taken_room import counted_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal
from covey.placement.planner import plan_minimum

NODES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


def asked(inventory: Inventory, *pods: core.Pod, **more: Any) -> tuple[Gang, set[str]]:
    """A unit whose rack has a node that a stranger takes, and those of its pods that have nodes."""
    hold_all(inventory, [pod("stranger", node="a2", gpus=8)], counted_shape)
    return gang_of(inventory, *pods, **more), {each.metadata.uid for each in pods if each.spec.node_name}


def test_the_role_that_lacks_replicas_is_enough() -> None:
    """Two replicas of prefill that must lie together: the one that is left stands where there is no second place."""
    near = {"proximity": [{"roles": ["prefill"], "level": "rack", "mode": "Required"}]}
    inventory = nodes_in({**NODES, "c1": "c"})
    pods = [at("prefill", 0, "a1"), at("prefill", 1, None), at("decode", 0, "c1")]
    gang, bound = asked(inventory, *pods, minimums={"prefill": 2}, schedulingConstraints=near)
    assert isinstance(plan_minimum(gang, inventory), Refusal)
    assert smallest_move(gang, inventory, bound) == "Role"
    assert isinstance(plan_minimum(gang, inventory), Refusal)


def test_room_for_a_plan_is_what_makes_it_movable() -> None:
    inventory = nodes_in(NODES)
    gang, bound = asked(inventory, at("prefill", 0, "a1"), at("decode", 0, None), **IN_ONE_RACK)
    assert smallest_move(gang, inventory, bound) == "Unit"
    inventory = nodes_in(NODES)
    whole, _ = asked(inventory, at("prefill", 0, None), at("decode", 0, None), **IN_ONE_RACK)
    assert isinstance(plan_minimum(whole, inventory), Plan)
