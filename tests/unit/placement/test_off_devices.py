"""Pods without devices go to nodes without devices first, unless that costs a preference or they would have no place."""

from __future__ import annotations

from builders.requests import make_gang, make_inventory, make_node, make_role, make_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, RolesTogether
from covey.placement.planner import plan_minimum, plan_surplus

ROUTER = make_shape(0, extra={"cpu": 30_000})


def cpu_node(number: int, rack: str) -> core.Node:
    labels = {"zone": "z", "block": "b", "rack": rack}
    return make_node(f"cpu-{number}", 0, labels=labels, extra={"cpu": "32"})


def beside(cpu_nodes: int, *, rack: str = "cpu") -> Inventory:
    """Two nodes with devices in one rack, each of which takes two routers, and some without, each of which takes one."""
    inventory = make_inventory({"b/r1": [8, 8]})
    for number in range(cpu_nodes):
        inventory.set_node(cpu_node(number, rack))
    return inventory


def places(gang: Gang, inventory: Inventory) -> set[str]:
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    return {assignment.node for assignment in plan.assignments}


def test_a_gang_without_devices_when_fewer_nodes_with_devices_would_do_goes_to_the_others() -> None:
    gang = make_gang(make_role("router", 2, shape=ROUTER))
    assert places(gang, beside(2)) == {"cpu-0", "cpu-1"}


def test_a_gang_without_devices_when_the_other_nodes_are_too_few_goes_wherever_it_fits() -> None:
    assert len(places(make_gang(make_role("router", 5, shape=ROUTER)), beside(1))) == 3
    assert places(make_gang(make_role("router", 1, shape=ROUTER)), beside(0)) == {"b-r1-n0"}


def test_a_gang_without_devices_when_it_would_lose_a_preferred_level_keeps_that() -> None:
    inventory = beside(1, rack="cpu-a")
    inventory.set_node(cpu_node(1, "cpu-b"))
    gang = make_gang(make_role("router", 2, shape=ROUTER), preferred="rack")
    assert places(gang, inventory) == {"b-r1-n0"}


def test_a_role_without_devices_when_it_need_not_follow_its_unit_goes_to_nodes_without_devices() -> None:
    roles = make_role("decode", 1), make_role("router", 1, shape=ROUTER, follow_unit=False)
    assert places(make_gang(*roles), beside(1)) == {"b-r1-n0", "cpu-0"}


def test_a_role_without_devices_when_its_unit_has_no_required_level_goes_to_nodes_without_devices() -> None:
    """A router beside engines, as most people write it: nothing asks for it to be near them."""
    roles = make_role("decode", 1), make_role("router", 1, shape=ROUTER)
    assert places(make_gang(*roles), beside(1)) == {"b-r1-n0", "cpu-0"}


def test_a_role_without_devices_when_it_follows_its_unit_lies_near_it() -> None:
    roles = make_role("decode", 1), make_role("router", 1, shape=ROUTER)
    near = RolesTogether(("decode", "router"), "rack")
    for wish in ({"required": "rack"}, {"preferred": "rack"}, {"proximity": (near,)}):
        assert places(make_gang(*roles, **wish), beside(1)) == {"b-r1-n0"}


def test_surplus_without_devices_goes_to_nodes_without_devices_as_far_as_all_of_it_fits() -> None:
    for replicas, off in ((2, True), (4, False)):
        plan = plan_surplus(make_gang(make_role("router", replicas, 0, shape=ROUTER)), beside(2))
        assert len(plan.assignments) == replicas
        assert all(each.node.startswith("cpu") for each in plan.assignments) is off
