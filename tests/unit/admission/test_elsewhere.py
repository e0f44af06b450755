"""Another domain for a unit whose surplus is stuck in its own."""

from __future__ import annotations

from dataclasses import replace

from builders.requests import make_gang, make_inventory, make_role, make_shape
from covey.admission.elsewhere import plan_elsewhere, tell_elsewhere
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan
from covey.placement.question.demands import place


def running(inventory: Inventory, gang: Gang, **nodes: str) -> Gang:
    """The gang with pods on nodes, where they hold what they ask for."""
    found = place(gang, {key.replace("_", "-"): node for key, node in nodes.items()})
    for pod in (pod for role in found.roles for each in role.replicas for pod in each.pods):
        if pod.node is not None:
            inventory.hold(pod.key, pod.node, pod.shape, pod.meta)
    return found


def test_a_unit_when_another_domain_would_hold_all_of_it_is_told_which_and_what_to_do() -> None:
    inventory = make_inventory({"r1": [8, 0], "r2": [8] * 3, "r3": [8]})
    gang = running(inventory, make_gang(make_role("w", 3, 1), required="rack", name="llm"), w_0_0="b-r1-n0")
    assert tell_elsewhere(gang, inventory) == (
        "rack z/b/r2 would hold all of the unit, which does not move by itself:"
        " covey plan --cluster --defrag --for ns/llm has the moves"
    )


def test_a_unit_when_no_other_domain_holds_all_of_it_or_it_may_go_anywhere_is_told_nothing() -> None:
    inventory = make_inventory({"r1": [8, 0], "r2": [8] * 2, "r3": [4] * 6})
    gang = running(inventory, make_gang(make_role("w", 3, 1), required="rack"), w_0_0="b-r1-n0")
    assert tell_elsewhere(gang, inventory) == ""
    assert tell_elsewhere(replace(gang, required=None), inventory) == ""
    assert tell_elsewhere(make_gang(make_role("w", 3, 1), required="rack"), inventory) == "", "it lies nowhere yet"


def test_a_role_when_it_need_not_follow_its_unit_stays_where_it_is() -> None:
    inventory = make_inventory({"r1": [8, 4], "r2": [8] * 2})
    router = make_role("router", 1, shape=make_shape(4), follow_unit=False)
    gang = running(
        inventory, make_gang(make_role("w", 2, 1), router, required="rack"), w_0_0="b-r1-n0", router_0_0="b-r1-n1"
    )
    plan = plan_elsewhere(gang, inventory)
    assert isinstance(plan, Plan)
    assert {each.pod: each.node for each in plan.assignments} == {
        "moved/w-0-0": "b-r2-n0",
        "moved/w-1-0": "b-r2-n1",
    }
