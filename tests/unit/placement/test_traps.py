"""The known traps of the field: cases in which planners that place one child after another fail."""

from __future__ import annotations

import pytest

from builders.requests import TOPOLOGY, make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.admission.round import apply
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Proximity, Refusal
from covey.placement.planner import plan_minimum, plan_surplus
from unit.placement.brute import valid


def admit(gang: Gang, inventory: Inventory) -> Gang:
    """Place minimum and surplus, checking both."""
    for plan in (plan_minimum, plan_surplus):
        answer = plan(gang, inventory)
        assert isinstance(answer, Plan)
        assert valid(gang, inventory, answer.assignments)
        gang = apply(answer, gang, inventory)
    return gang


def counts(gang: Gang) -> list[int]:
    return [sum(replica.placed for replica in role.replicas) for role in gang.roles]


def test_a_placed_partner_outside_the_unit_bars_only_those_that_must_be_near_it() -> None:
    """Found by random instances: the domain of a rule's placed member must not close the rest of the cluster."""
    inventory = make_inventory({"b1/r1": [8], "b2/r1": [8, 8]})
    inventory.hold("c-0-0", "b1-r1-n0", make_shape())
    rule = Proximity(("b", "c"), "block", required=True)
    roles = (make_role("a", 1, 0), make_role("b", 1, 0), make_role("c", 1, follow_unit=False))
    gang = place(make_gang(*roles, required="block", proximity=(rule,)), {"c-0-0": "b1-r1-n0"})
    assert counts(admit(gang, inventory)) == [1, 0, 1]


def test_a_finer_rule_does_not_waive_a_coarser_level() -> None:
    """Found by random instances: a replica kept in one rack by a rule must still lie in a block when that is required."""
    inventory = Inventory(make_inventory({}).topologies.values())
    inventory.set_node(make_node("bare", labels={"zone": "z", "rack": "r1"}))
    inventory.set_node(make_node("far", 0, labels={"zone": "z", "block": "b1", "rack": "r1"}))
    rule = Proximity(("a", "b"), "rack", required=True)
    gang = make_gang(make_role("a", 1, required="block"), make_role("b", 1, 0), required="zone", proximity=(rule,))
    assert isinstance(plan_minimum(gang, inventory), Refusal)


@pytest.mark.parametrize("level", ["host", "rack"])
def test_a_node_without_the_level_of_a_proximity_is_none_for_its_one_replica(level: str) -> None:
    """The replica's own level is finer, and the node has that one."""
    rule = Proximity(("a",), "block", required=True)
    gang = make_gang(make_role("a", 1, shape=make_shape(1), required=level), proximity=(rule,))
    inventory = Inventory([TOPOLOGY])
    inventory.set_node(make_node("bare", 1, labels={"rack": "r1"}))
    assert isinstance(plan_minimum(gang, inventory), Refusal)
    inventory.set_node(make_node("inside", 1, labels={"block": "b1", "rack": "r1"}))
    answer = plan_minimum(gang, inventory)
    assert isinstance(answer, Plan)
    assert [each.node for each in answer.assignments] == ["inside"]
