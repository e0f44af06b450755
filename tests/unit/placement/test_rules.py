"""Spread, sets and wishes: each counts for whom it is meant, and none may spoil the minimum."""

from __future__ import annotations

from typing import Any

import pytest

from builders.requests import make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.placement.model import Gang, Plan, Refusal, Spread, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from rounds import apply


def test_a_role_that_does_not_follow_lets_the_unit_into_no_crowded_domain() -> None:
    """The router lies in a rack that has its share of units; that makes the rack no rack of this unit."""
    inventory = make_inventory({"r1": [8, 8], "r2": [8]})
    router = make_role("router", 1, shape=make_shape(1), follow_unit=False)
    spread = Spread("rack", required=True, occupied={("z", "b", "r1"): 1})
    gang = place(make_gang(router, make_role("w", 1), spread=spread), {"router-0-0": "b-r1-n0"})
    inventory.hold("router-0-0", "b-r1-n0", make_shape(1))
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    assert [each.node for each in plan.assignments] == ["b-r2-n0"]
    inventory.hold("other", "b-r2-n0", make_shape(8))
    assert isinstance(plan_minimum(gang, inventory), Refusal)


def test_a_level_no_finer_than_the_units_adds_nothing() -> None:
    """A node that has a rack but no zone will do, also where a role that does not follow is planned with the unit."""
    inventory = make_inventory({})
    inventory.set_node(make_node("n", 8, labels={"block": "b", "rack": "r"}))
    router = make_role("router", 1, shape=make_shape(1), follow_unit=False)
    for roles in ((), (router,)):
        gang = make_gang(make_role("w", 1, shape=make_shape(1), required="zone"), *roles, required="rack")
        assert plan_minimum(gang, inventory).verdict is Verdict.ADMITTED


def sets() -> Gang:
    """Replica 1 of a comes with b or not at all; d has surplus of single replicas."""
    return make_gang(
        make_role("a", 2, 1, marks={1: "new"}),
        make_role("b", 1, 0, shape=make_shape(4), marks={0: "new"}),
        make_role("d", 3, 0, shape=make_shape(4)),
        required="block",
    )


def test_the_minimum_goes_where_the_sets_have_room() -> None:
    """In b1 most replicas fit, but the set does not; counted one by one b1 would be the better filled block."""
    inventory = make_inventory({"b1/r1": [8, 4, 4, 4, 4], "b2/r1": [8, 8, 4, 4]})
    gang = sets()
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    assert {each.path[1] for each in plan.assignments} == {"b2"}
    grown = plan_surplus(apply(plan, gang, inventory), inventory)
    assert {each.pod for each in grown.assignments} == {"a-1-0", "b-0-0", "d-0-0"}


def test_preferences_of_like_roles_do_not_make_them_unlike_for_the_verdict() -> None:
    """Five roles that differ in their wishes alone are one class as long as only the verdict is asked for."""
    wishes = (None, "host", "rack", "block", "zone")
    roles = [make_role(f"r{n}", 2, preferred=wish) for n, wish in enumerate(wishes)]
    answer = plan_minimum(make_gang(*roles), make_inventory({"r1": [8] * 6, "r2": [8] * 6}), limit=LITTLE)
    assert answer.verdict is Verdict.ADMITTED
    assert plan_minimum(make_gang(*roles), make_inventory({"r1": [8] * 9}), limit=LITTLE).verdict is Verdict.INFEASIBLE


#: Work that is enough for a single class.
LITTLE = 100_000
#: Racks, and replicas, size and GPUs of each role; found at random: the wish needs more work than the verdict.
HARD = [
    ({"r0": [3, 3, 7], "r1": [7, 5, 5]}, [(1, 1, 1), (1, 2, 2), (1, 1, 3), (3, 1, 5), (1, 1, 7)]),
    ({"r0": [5, 7, 5, 6, 5], "r1": [3, 8]}, [(1, 2, 1), (2, 1, 2), (3, 1, 3), (2, 1, 5), (2, 1, 7)]),
    ({"r0": [8, 5, 5, 8, 3], "r1": [7, 5, 7, 5]}, [(1, 2, 1), (3, 2, 2), (2, 2, 3), (1, 1, 5), (3, 1, 7)]),
]


@pytest.mark.parametrize(("racks", "sizes"), HARD)
@pytest.mark.parametrize("wish", ["unit", "role", "spread"])
def test_a_wish_that_cannot_be_decided_costs_the_verdict_nothing(
    racks: dict[str, list[int]], sizes: list[tuple[int, int, int]], wish: str
) -> None:
    """Whatever the limit: what is admitted without a wish is admitted with it."""

    def verdict(limit: int, **wished: Any) -> Verdict:
        own = wished.pop("role", {})
        roles = [
            make_role(f"r{n}", count, size=size, shape=make_shape(gpus), required="rack", **own)
            for n, (count, size, gpus) in enumerate(sizes)
        ]
        return plan_minimum(make_gang(*roles, required="zone", **wished), make_inventory(racks), limit=limit).verdict

    wished: dict[str, Any] = {
        "unit": {"preferred": "block"},
        "role": {"role": {"preferred": "host"}},
        "spread": {"spread": Spread("rack", occupied={("z", "b", "r0"): 1})},
    }[wish]
    found = {
        limit: (verdict(limit), verdict(limit, **wished)) for limit in (10_000, 100_000, 300_000, 1_000_000, 10_000_000)
    }
    assert Verdict.ADMITTED in {plain for plain, _ in found.values()}
    assert all(soft is plain for plain, soft in found.values() if plain is Verdict.ADMITTED), found
