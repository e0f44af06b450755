"""The order of aims: preferred levels, surplus, proximity, fewest domains, least fragmentation, a fixed order."""

from __future__ import annotations

from dataclasses import replace

from builders.requests import make_gang, make_inventory, make_role, make_shape, place
from covey.admission.round import apply
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Plan, Preference, Proximity, Refusal, Spread, Topology
from covey.placement.planner import plan_minimum, plan_surplus
from unit.placement.brute import valid


def minimum(gang: Gang, inventory: Inventory) -> Plan:
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    assert valid(gang, inventory, plan.assignments)
    return plan


def racks(plan: Plan) -> set[str | None]:
    return {assignment.path[2] for assignment in plan.assignments}


def nodes(plan: Plan) -> list[str]:
    return [assignment.node for assignment in plan.assignments]


class TestPreferredLevels:
    def test_the_finest_level_is_reached_when_it_can_be(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8, 8, 8], "b2/r1": [8, 8, 8]})
        plan = minimum(make_gang(make_role("w", 4), required="block", preferred="rack"), inventory)
        assert racks(plan) == {"r2"}
        assert plan.preferred == (Preference("unit", "rack", achieved=True, reached="rack"),)

    def test_else_each_coarser_one_in_turn(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8, 8], "b2/r1": [8, 8, 8]})
        gang = make_gang(make_role("w", 5), required="zone", preferred="rack")
        plan = minimum(gang, inventory)
        assert {a.path[1] for a in plan.assignments} == {"b1"}
        assert plan.preferred == (Preference("unit", "rack", achieved=False, reached="block"),)
        wide = minimum(make_gang(make_role("w", 7), preferred="rack"), inventory)
        assert wide.preferred == (Preference("unit", "rack", achieved=False, reached="zone"),)

    def test_a_roles_preference_is_all_its_minimum_replicas_or_none(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8], "b1/r3": [8, 8]})
        gang = make_gang(make_role("w", 3, size=2, preferred="rack"), required="block")
        assert minimum(gang, inventory).preferred == (Preference("role/w", "rack", achieved=True, reached="rack"),)
        odd = make_inventory({"b1/r1": [8, 8, 8], "b1/r2": [8], "b1/r3": [8, 8]})
        assert minimum(gang, odd).preferred == (Preference("role/w", "rack", achieved=False, reached="block"),)

    def test_a_preference_holds_for_the_minimum_and_never_holds_surplus_back(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8]})
        gang = make_gang(make_role("w", 4, 2), required="block", preferred="rack")
        plan = minimum(gang, inventory)
        assert len(racks(plan)) == 1
        surplus = plan_surplus(apply(plan, gang, inventory), inventory)
        assert len(surplus.assignments) == 2
        assert surplus.preferred == (Preference("unit", "rack", achieved=True, reached="rack"),)

    def test_a_preference_goes_before_surplus(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8], "b2/r2": [8], "b2/r3": [8], "b2/r4": [8]})
        plan = minimum(make_gang(make_role("w", 4, 2), required="block", preferred="rack"), inventory)
        assert {a.path[1] for a in plan.assignments} == {"b1"}

    def test_among_domains_alike_in_preference_the_better_filled_one_is_taken(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8, 8], "b2/r2": [8]})
        plan = minimum(make_gang(make_role("w", 3, 2), required="block", preferred="rack"), inventory)
        assert {a.path[1:3] for a in plan.assignments} == {("b2", "r1")}

    def test_finer_level_of_a_role_comes_first_when_the_unit_s_broader_one_excludes_it(self) -> None:
        inventory = make_inventory({"b1/r1": [8], "b1/r2": [8], "b1/r3": [8], "b1/r4": [8], "b2/r1": [8, 8]})
        gang = make_gang(make_role("a", 1, size=2, preferred="rack"), make_role("b", 2), preferred="block")
        assert minimum(gang, inventory).preferred == (
            Preference("unit", "block", achieved=False, reached="zone"),
            Preference("role/a", "rack", achieved=True, reached="rack"),
        )

    def test_a_preferred_level_broader_than_the_required_one_is_refused(self) -> None:
        answer = plan_minimum(
            make_gang(make_role("w", 1), required="rack", preferred="zone"), make_inventory({"r": [8]})
        )
        assert isinstance(answer, Refusal)
        assert answer.message == "the unit prefers zone, which is broader than rack, which it requires"


class TestProximityAndSpread:
    def test_preferred_proximity_is_met_when_it_costs_no_surplus(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8, 8]})
        rule = Proximity(("a", "b"), "rack")
        gang = make_gang(make_role("a", 1), make_role("b", 2), make_role("c", 2), required="block", proximity=(rule,))
        plan = minimum(gang, inventory)
        assert {a.path[2] for a in plan.assignments if a.pod[0] in "ab"} == {"r2"}
        assert plan.preferred == (Preference("proximity/0", "rack", achieved=True, reached="rack"),)
        wide = make_gang(make_role("a", 2), make_role("b", 3), proximity=(rule,))
        assert minimum(wide, inventory).preferred == (
            Preference("proximity/0", "rack", achieved=False, reached="block"),
        )

    def test_surplus_goes_before_preferred_proximity(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8], "b2/r2": [8], "b2/r3": [8]})
        rule = Proximity(("a", "b"), "rack")
        gang = make_gang(make_role("a", 1), make_role("b", 2, 1), required="block", proximity=(rule,))
        assert {a.path[1] for a in minimum(gang, inventory).assignments} == {"b2"}

    def test_required_spread_closes_full_domains(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8, 8, 8, 8]})
        spread = Spread("block", required=True, occupied={("z", "b1"): 1})
        plan = minimum(make_gang(make_role("w", 2), required="rack", spread=spread), inventory)
        assert {a.path[1] for a in plan.assignments} == {"b2"}
        full = replace(spread, occupied={("z", "b1"): 1, ("z", "b2"): 1})
        assert isinstance(plan_minimum(make_gang(make_role("w", 2), spread=full), inventory), Refusal)
        two = replace(full, max_per_domain=2)
        assert isinstance(plan_minimum(make_gang(make_role("w", 2), spread=two), inventory), Plan)

    def test_preferred_spread_gives_way(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8] * 4})
        spread = Spread("block", occupied={("z", "b1"): 1})
        plan = minimum(make_gang(make_role("w", 2), spread=spread), inventory)
        assert {a.path[1] for a in plan.assignments} == {"b2"}
        assert plan.preferred == (Preference("spread", "block", achieved=True, reached="block"),)
        crowded = minimum(make_gang(make_role("w", 5), spread=spread), inventory)
        assert crowded.preferred == (Preference("spread", "block", achieved=False, reached=None),)


class TestPacking:
    def test_fewest_domains(self) -> None:
        inventory = make_inventory({"r1": [8], "r2": [8] * 3, "r3": [8] * 2})
        assert racks(minimum(make_gang(make_role("w", 3), required="block"), inventory)) == {"r2"}

    def test_coarse_domains_before_fine_ones(self) -> None:
        inventory = make_inventory({"b1/r1": [8], "b1/r2": [8], "b1/r3": [8], "b2/r1": [8, 8], "b3/r1": [8]})
        plan = minimum(make_gang(make_role("w", 3)), inventory)
        assert {a.path[1] for a in plan.assignments} == {"b1"}

    def test_wholly_free_domains_are_spared(self) -> None:
        inventory = make_inventory({"b1/r1": [8, 8], "b1/r2": [8, 8, 2], "b2/r1": [8, 8]})
        assert {a.path[1:3] for a in minimum(make_gang(make_role("w", 2), required="rack"), inventory).assignments} == {
            ("b1", "r2")
        }

    def test_the_tightest_fit_wins(self) -> None:
        inventory = make_inventory({"r1": [8, 8, 8, 2], "r2": [8, 8, 2], "r3": [8, 8, 8, 8, 2]})
        assert racks(minimum(make_gang(make_role("w", 2), required="rack"), inventory)) == {"r2"}

    def test_small_pods_go_to_broken_nodes_and_fill_them(self) -> None:
        inventory = make_inventory({"r1": [8, 3, 5, 1]})
        plan = minimum(make_gang(make_role("w", 1, size=4, shape=make_shape(1)), required="rack"), inventory)
        assert sorted(nodes(plan)) == ["b-r1-n1"] * 3 + ["b-r1-n3"]

    def test_ranks_are_contiguous_in_a_domain(self) -> None:
        inventory = make_inventory({"r1": [8] * 3, "r2": [8] * 3})
        plan = minimum(make_gang(make_role("w", 1, size=6), required="block"), inventory)
        order = [int(a.pod.rsplit("-", 1)[1]) for a in sorted(plan.assignments, key=lambda a: a.node)]
        assert order == list(range(6))

    def test_nodes_are_ordered_as_people_count(self) -> None:
        inventory = make_inventory({"r1": [8] * 12})
        plan = minimum(make_gang(make_role("w", 1, size=12), required="rack"), inventory)
        assert nodes(plan) == [f"b-r1-n{index}" for index in range(12)]

    def test_growth_prefers_domains_in_use(self) -> None:
        inventory = make_inventory({"r1": [8] * 4, "r2": [8] * 2})
        gang = place(make_gang(make_role("w", 2, 1), required="block"), {"w-0-0": "b-r1-n0"})
        inventory.hold("w-0-0", "b-r1-n0", make_shape())
        surplus = plan_surplus(gang, inventory)
        assert racks(surplus) == {"r1"}


class TestSurplus:
    def test_ties_go_to_the_role_declared_first(self) -> None:
        inventory = make_inventory({"r1": [8] * 3})
        gang = make_gang(make_role("b", 2, 1), make_role("a", 2, 1))
        placed = apply(minimum(gang, inventory), gang, inventory)
        assert {a.pod for a in plan_surplus(placed, inventory).assignments} == {"b-1-0"}

    def test_the_lowest_replicas_are_the_minimum(self) -> None:
        plan = minimum(make_gang(make_role("w", 5, 2)), make_inventory({"r1": [8] * 5}))
        assert {a.pod for a in plan.assignments} == {"w-0-0", "w-1-0"}
        assert [(r.replica, r.minimum) for r in plan.replicas] == [(0, True), (1, True)]


class TestTogether:
    def test_a_set_that_the_minimum_needs_is_placed_with_it(self) -> None:
        marks = {0: "v1"}
        gang = make_gang(make_role("a", 1, 1, marks=marks), make_role("b", 1, 0, marks=marks))
        plan = minimum(gang, make_inventory({"r1": [8] * 2}))
        assert {a.pod for a in plan.assignments} == {"a-0-0", "b-0-0"}
        assert isinstance(plan_minimum(gang, make_inventory({"r1": [8]})), Refusal)


def test_placement_names_the_domain_of_every_level_that_holds_all() -> None:
    plan = minimum(make_gang(make_role("w", 3), required="block"), make_inventory({"r1": [8, 8], "r2": [8]}))
    assert [(domain.level, domain.path) for domain in plan.placement] == [("zone", ("z",)), ("block", ("z", "b"))]


def test_without_levels_the_cluster_is_one_domain() -> None:
    inventory = make_inventory({"r1": [8], "r2": [8]})
    plan = minimum(make_gang(make_role("w", 2), topology=""), inventory)
    assert plan.placement == ()
    assert sorted(nodes(plan)) == ["b-r1-n0", "b-r2-n0"]


def test_a_topology_that_ends_with_the_rack() -> None:
    topology = Topology("dc", (Level("rack", ("rack",)),))
    inventory = make_inventory({"r1": [8], "r2": [8, 8]}, topology)
    plan = minimum(make_gang(make_role("w", 2), required="rack"), inventory)
    assert {a.path for a in plan.assignments} == {("r2",)}
