"""The known traps of the field: cases in which planners that place one child after another fail."""

from __future__ import annotations

import pytest

from builders.requests import TOPOLOGY, make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.admission.round import apply
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Proximity, Refusal
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.sharing import layout
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


def test_a_replacement_without_room_in_its_domain_is_infeasible_with_the_reason() -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8] * 6})
    gang = make_gang(make_role("w", 1, size=3, required="rack"))
    inventory.hold("w-0-0", "b1-r1-n0", make_shape())
    answer = plan_minimum(place(gang, {"w-0-0": "b1-r1-n0"}), inventory)
    assert isinstance(answer, Refusal)
    (reason,) = answer.reasons
    assert (reason.role, reason.scope, reason.level, reason.best_domain) == ("w", "replica", "rack", ("z", "b1", "r1"))
    assert "2 missing pods of replica 0 must join the others in rack z/b1/r1" in reason.message
    assert (reason.resource, reason.short) == ("nvidia.com/gpu", "8")


def test_shapes_that_share_a_host_port_are_exact_too() -> None:
    inventory = make_inventory({"r1": [8, 8, 8]})
    one = make_shape(1, host_ports=(("0.0.0.0", "TCP", 80),))
    two = make_shape(2, host_ports=(("10.0.0.1", "TCP", 80),))
    assert counts(admit(make_gang(make_role("a", 2, shape=one), make_role("b", 1, shape=two)), inventory)) == [2, 1]
    inventory = make_inventory({"r1": [8, 8, 8]})
    assert isinstance(
        plan_minimum(make_gang(make_role("a", 2, shape=one), make_role("b", 2, shape=two)), inventory), Refusal
    )


def test_the_limit_of_pods_counts() -> None:
    inventory = Inventory(make_inventory({}).topologies.values())
    inventory.set_node(make_node("n", pods=3, labels={"zone": "z"}))
    assert isinstance(plan_minimum(make_gang(make_role("w", 4, shape=make_shape(1))), inventory), Refusal)
    assert isinstance(plan_minimum(make_gang(make_role("w", 3, shape=make_shape(1))), inventory), Plan)


def test_several_kinds_of_device() -> None:
    inventory = make_inventory({"r1": [8]})
    inventory.set_node(
        make_node("mig", 0, labels={"zone": "z", "block": "b", "rack": "r1"}, extra={"nvidia.com/mig-1g.5gb": 7})
    )
    slices = make_shape(0, extra={"nvidia.com/mig-1g.5gb": 1})
    gang = admit(make_gang(make_role("big", 1), make_role("small", 7, shape=slices), required="rack"), inventory)
    assert counts(gang) == [1, 7]


def test_a_taint_closes_nodes_unless_it_is_tolerated() -> None:
    inventory = make_inventory({"r1": [8]})
    taint = core.Taint(key="nvidia.com/gpu", effect="NoSchedule")
    inventory.set_node(make_node("t", labels={"zone": "z", "block": "b", "rack": "r1"}, taints=[taint]))
    assert isinstance(plan_minimum(make_gang(make_role("w", 2)), inventory), Refusal)
    tolerant = make_shape(8, tolerations=(core.Toleration(key="nvidia.com/gpu", operator="Exists"),))
    assert counts(admit(make_gang(make_role("w", 2, shape=tolerant)), inventory)) == [2]


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


def test_large_demands_are_shared_out_without_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_COVER_CELLS", 0)
    inventory = make_inventory({"b1/r1": [8, 4, 2], "b1/r2": [8, 8, 1], "b2/r1": [4, 4, 4]})
    rule = Proximity(("a",), "rack", required=True)
    roles = (
        make_role("a", 3, 2, shape=make_shape(2)),
        make_role("b", 2, 1, size=2, shape=make_shape(4), required="rack"),
    )
    gang = admit(
        make_gang(*roles, make_role("c", 3, 1, shape=make_shape(1)), required="block", proximity=(rule,)), inventory
    )
    assert counts(gang) == [3, 2, 3]


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
