"""The order of aims: preferred levels, surplus, proximity, fewest domains, least fragmentation, a fixed order."""

from __future__ import annotations

from builders.requests import make_gang, make_inventory, make_role, make_shape, place
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, PreferenceOutcome, Refusal, RolesTogether
from covey.placement.planner import plan_minimum, plan_surplus


def minimum(gang: Gang, inventory: Inventory) -> Plan:
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    return plan


def racks(plan: Plan) -> set[str | None]:
    return {assignment.path[2] for assignment in plan.assignments}


class TestPreferredLevels:
    def test_among_domains_alike_in_preference_the_better_filled_one_is_taken(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8, 8], "b2/r2": [8]})
        plan = minimum(make_gang(make_role("w", 3, 2), required="block", preferred="rack"), inventory)
        assert {a.path[1:3] for a in plan.assignments} == {("b2", "r1")}

    def test_finer_level_of_a_role_comes_first_when_the_unit_s_broader_one_excludes_it(self) -> None:
        inventory = make_inventory({"b1/r1": [8], "b1/r2": [8], "b1/r3": [8], "b1/r4": [8], "b2/r1": [8, 8]})
        gang = make_gang(make_role("a", 1, size=2, preferred="rack"), make_role("b", 2), preferred="block")
        assert minimum(gang, inventory).preferred == (
            PreferenceOutcome("unit", "block", achieved=False, reached="zone"),
            PreferenceOutcome("role/a", "rack", achieved=True, reached="rack"),
        )

    def test_a_preferred_level_broader_than_the_required_one_is_refused(self) -> None:
        answer = plan_minimum(
            make_gang(make_role("w", 1), required="rack", preferred="zone"), make_inventory({"r": [8]})
        )
        assert isinstance(answer, Refusal)
        assert answer.message == "the unit prefers zone, which is broader than rack, which it requires"


class TestProximityAndSpread:
    def test_surplus_goes_before_preferred_proximity(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8], "b2/r2": [8], "b2/r3": [8]})
        rule = RolesTogether(("a", "b"), "rack")
        gang = make_gang(make_role("a", 1), make_role("b", 2, 1), required="block", proximity=(rule,))
        assert {a.path[1] for a in minimum(gang, inventory).assignments} == {"b2"}


class TestPacking:
    def test_ranks_are_contiguous_in_a_domain(self) -> None:
        inventory = make_inventory({"r1": [8] * 3, "r2": [8] * 3})
        plan = minimum(make_gang(make_role("w", 1, size=6), required="block"), inventory)
        order = [int(a.pod.rsplit("-", 1)[1]) for a in sorted(plan.assignments, key=lambda a: a.node)]
        assert order == list(range(6))

    def test_growth_prefers_domains_in_use(self) -> None:
        inventory = make_inventory({"r1": [8] * 4, "r2": [8] * 2})
        gang = place(make_gang(make_role("w", 2, 1), required="block"), {"w-0-0": "b-r1-n0"})
        inventory.hold("w-0-0", "b-r1-n0", make_shape())
        surplus = plan_surplus(gang, inventory)
        assert racks(surplus) == {"r1"}
