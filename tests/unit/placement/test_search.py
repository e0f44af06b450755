"""Beyond the exact method's budget: placements where they are found, proofs where there are any, else unknown."""

from __future__ import annotations

from builders.requests import make_gang, make_inventory, make_role, make_shape
from covey.admission.round import apply
from covey.placement.model import Gang, Plan, Refusal, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from unit.placement.brute import valid

#: So little work that exact tables give up on anything with several roles.
TIGHT = 300_000


def varied(*numbers: int) -> Gang:
    roles = [
        make_role(f"g{i}", n, size=2, shape=make_shape(1 + i % 4, extra={"cpu": 1000 * (i + 1)}), required="rack")
        for i, n in enumerate(numbers)
    ]
    return make_gang(*roles, required="block")


def test_a_placement_is_found_role_after_role() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4, "b1/r2": [8] * 4, "b2/r1": [8] * 2})
    gang = varied(2, 2, 1, 2, 1)
    answer = plan_minimum(gang, inventory, TIGHT)
    assert isinstance(answer, Plan)
    assert valid(gang, inventory, answer.assignments)
    assert len(answer.assignments) == 16


def test_the_search_leaves_the_inventory_as_it_was() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4})
    before = dict(inventory.trees["dc"].root.free)
    plan_minimum(varied(2, 2, 1), inventory, TIGHT)
    assert inventory.trees["dc"].root.free == before


def test_a_role_that_fits_nowhere_is_a_proof() -> None:
    inventory = make_inventory({"b1/r1": [4, 3], "b1/r2": [3, 3]})
    answer = plan_minimum(varied(1, 1, 1, 1, 1), inventory, TIGHT)
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.INFEASIBLE
    assert {reason.role for reason in answer.reasons} == {"g3"}


def test_what_is_neither_found_nor_refuted_is_unknown_and_never_infeasible() -> None:
    racks = {"b1/r1": [8] * 3 + [5] * 4}
    gang = varied(2, 2, 2, 2, 2)
    assert plan_minimum(gang, make_inventory(racks)).verdict is Verdict.ADMITTED
    answer = plan_minimum(gang, make_inventory(racks), 1)
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.message.startswith("the search limit was met: 5 pod shapes on 7 nodes")


def test_surplus_is_searched_one_replica_at_a_time() -> None:
    roles = [
        make_role(f"g{i}", 3, 1, shape=make_shape(2, extra={"cpu": 1000 * (i + 1)}), required="rack") for i in range(5)
    ]
    gang = make_gang(*roles, required="block")
    inventory = make_inventory({"b1/r1": [8, 8]})
    plan = plan_minimum(gang, inventory, TIGHT)
    assert isinstance(plan, Plan)
    placed = apply(plan, gang, inventory)
    surplus = plan_surplus(placed, inventory, TIGHT)
    assert valid(placed, inventory, surplus.assignments)
    assert len(surplus.assignments) == 3
