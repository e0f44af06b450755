"""Rollouts of one unit, window by window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from covey.rollout import Budget, Stage, next_step
from unit.rollout.acting import Role, Unit

NO_SURGE = Budget(surge=0, unavailable=1)


def shapes(unit: Unit, most: int = 40) -> list[dict[str, dict[str, int]]]:
    """What there is after each plan, everything having got ready between them."""
    found = []
    for _ in range(most):
        unit.step()
        if found and unit.shape() == found[-1]:
            return found
        found.append(unit.shape())
        unit.thrive()
    raise AssertionError(found)


def test_one_role_is_replaced_one_by_one_and_the_other_is_left_alone() -> None:
    unit = Unit({"prefill": Role.serving(2), "decode": Role.serving(3)})
    unit.edit("b", "decode")
    before = dict(unit.roles["prefill"].replicas)
    assert [each["decode"] for each in shapes(unit)] == [{"a": 3, "b": 1}, {"a": 2, "b": 2}, {"a": 1, "b": 3}, {"b": 3}]
    assert unit.roles["prefill"].replicas == before


def test_roles_that_change_together_arrive_together() -> None:
    unit = Unit({"prefill": Role.serving(4), "decode": Role.serving(2)})
    planned = unit.begin("b")
    assert unit.shape() == {"prefill": {"a": 4, "b": 1}, "decode": {"a": 2, "b": 1}}
    assert planned.together == {("prefill", 4), ("decode", 2)}
    unit.thrive()
    assert not unit.step().together
    assert shapes(unit)[-1] == {"prefill": {"b": 4}, "decode": {"b": 2}}


def test_nothing_goes_before_the_new_serve() -> None:
    unit = Unit({"prefill": Role.serving(2), "decode": Role.serving(2)})
    unit.edit("b")
    for _ in range(5):
        unit.step()
        assert unit.shape() == {"prefill": {"a": 2, "b": 1}, "decode": {"a": 2, "b": 1}}
    # One of the two alone does not serve anybody.
    unit.set(Stage.SERVING, [("prefill", 2)])
    unit.step()
    assert unit.shape()["decode"] == {"a": 2, "b": 1}
    assert unit.shape()["prefill"]["a"] >= 1


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.STARTING])
def test_a_revision_that_never_serves_takes_the_place_of_nobody_that_is_lost(stage: Stage) -> None:
    unit = Unit({"prefill": Role.serving(4)})
    unit.begin("b")
    for lost in range(4):
        unit.set(stage, [("prefill", lost)])
        unit.step()
        assert unit.shape() == {"prefill": {"a": 4, "b": 1}}
    unit.thrive()
    assert shapes(unit)[-1] == {"prefill": {"b": 4}}


def test_what_does_not_serve_goes_first_once_the_new_revision_does() -> None:
    unit = Unit({"prefill": Role.serving(8)})
    unit.set(Stage.STARTING, [("prefill", n) for n in (0, 2, 4, 6)])
    unit.begin("b")
    assert unit.shape() == {"prefill": {"a": 8, "b": 1}}
    unit.set(Stage.SERVING, [("prefill", 8)])
    unit.step()
    assert set(unit.roles["prefill"].state.old) == {1, 3, 5, 7}
    assert unit.shape() == {"prefill": {"a": 4, "b": 5}}


def test_without_surge_it_goes_down_and_up_again_in_lockstep() -> None:
    unit = Unit({"prefill": Role.serving(4, budget=NO_SURGE), "decode": Role.serving(4, budget=NO_SURGE)})
    unit.edit("b")
    found = shapes(unit)
    assert found[0] == {"prefill": {"a": 3, "b": 1}, "decode": {"a": 3, "b": 1}}
    assert all(sum(each.values()) <= 4 for shape in found for each in shape.values())
    assert found[-1] == {"prefill": {"b": 4}, "decode": {"b": 4}}


def test_a_single_replica_without_surge_is_replaced() -> None:
    unit = Unit({"prefill": Role.serving(1, budget=NO_SURGE), "decode": Role.serving(4)})
    unit.edit("b")
    assert shapes(unit)[-1] == {"prefill": {"b": 1}, "decode": {"b": 4}}


def test_a_single_replica_with_surge_is_never_missing() -> None:
    unit = Unit({"prefill": Role.serving(1, budget=Budget(1, 1)), "decode": Role.serving(4)})
    unit.begin("b")
    assert unit.shape()["prefill"] == {"a": 1, "b": 1}


def test_a_reversal_brings_back_no_more_than_is_missing() -> None:
    unit = Unit({"prefill": Role.serving(4), "decode": Role.serving(4)})
    unit.edit("b")
    for _ in range(2):
        unit.step()
        unit.thrive()
    unit.step()
    before = {
        name: {n for n, each in role.replicas.items() if each.revision.hash == "a" and each.stage is Stage.SERVING}
        for name, role in unit.roles.items()
    }
    unit.edit("a")
    for _ in range(10):
        unit.step()
        assert all(before[name] <= unit.roles[name].state.new.keys() for name in before)
        unit.thrive()
    assert unit.is_rolled


def test_an_edit_during_a_rollout_gives_up_what_never_served_first() -> None:
    unit = Unit({"prefill": Role.serving(2), "decode": Role.serving(2)})
    unit.begin("b")
    unit.begin("c")
    assert unit.shape() == {"prefill": {"a": 2, "c": 1}, "decode": {"a": 2, "c": 1}}


def test_a_partition_keeps_so_many_of_the_lowest_numbers() -> None:
    unit = Unit({"prefill": Role.serving(4, budget=Budget(partition=2)), "decode": Role.serving(2)})
    unit.edit("b")
    assert shapes(unit)[-1] == {"prefill": {"a": 2, "b": 2}, "decode": {"a": 1, "b": 1}}
    assert set(unit.roles["prefill"].state.old) == {0, 1}
    for role in unit.roles.values():
        role.budget = Budget()
    assert shapes(unit)[-1] == {"prefill": {"b": 4}, "decode": {"b": 2}}


def test_a_partition_that_keeps_a_whole_role_keeps_those_that_change_with_it() -> None:
    unit = Unit({"prefill": Role.serving(2, budget=Budget(partition=2)), "decode": Role.serving(2)})
    unit.edit("b")
    assert shapes(unit) == [{"prefill": {"a": 2}, "decode": {"a": 2}}]


def test_minimum_is_kept_when_more_may_be_unavailable() -> None:
    unit = Unit({"prefill": Role.serving(4, minimum=3, budget=Budget(surge=0, unavailable=2))})
    unit.begin("b")
    assert unit.roles["prefill"].ready == 3


def test_serving_replicas_stay_when_a_partition_is_raised_for_old_ones_that_do_not() -> None:
    unit = Unit({"prefill": Role.serving(4)})
    for _ in range(3):
        unit.begin("b")
        unit.thrive()
    assert unit.shape() == {"prefill": {"a": 2, "b": 3}}
    unit.set(Stage.STARTING, [("prefill", number) for number in unit.roles["prefill"].state.old])
    unit.roles["prefill"].budget = Budget(partition=3)
    unit.step()
    assert unit.roles["prefill"].ready == 3


def test_what_stays_is_neither_replaced_nor_given_back() -> None:
    unit = Unit({"prefill": Role.serving(3), "decode": Role.serving(3)})
    unit.begin("b")
    unit.thrive()
    unit.stays = True
    before = unit.shape()
    assert shapes(unit) == [before]
    unit.roles["prefill"].wanted = 5
    unit.step()
    assert unit.shape() == {"prefill": {"a": 4, "b": 1}, "decode": {"a": 3, "b": 1}}
    unit.stays = False
    assert shapes(unit)[-1] == {"prefill": {"b": 5}, "decode": {"b": 3}}


def test_scaling_counts_at_every_step() -> None:
    unit = Unit({"prefill": Role.serving(4), "decode": Role.serving(4)})
    unit.begin("b")
    unit.thrive()
    unit.roles["prefill"].wanted = 6
    unit.roles["decode"].wanted = 2
    unit.step()
    prefill, decode = unit.roles["prefill"], unit.roles["decode"]
    assert prefill.count("a") + prefill.count("b") >= 6
    assert decode.ready >= 2
    assert shapes(unit)[-1] == {"prefill": {"b": 6}, "decode": {"b": 2}}


def test_a_role_without_room_for_two_holds_no_growth_of_the_others() -> None:
    """Prefill cannot move, decode is scaled: what is missing comes in the revision that is there in both."""
    unit = Unit({"prefill": Role.serving(2, budget=Budget(partition=2)), "decode": Role.serving(2)})
    unit.edit("b")
    unit.roles["decode"].wanted = 4
    unit.step()
    assert unit.shape() == {"prefill": {"a": 2}, "decode": {"a": 4}}


def test_a_successor_that_waits_takes_nothing_that_is_not_cleared_for_it() -> None:
    unit = Unit({"prefill": Role.serving(3), "decode": Role.serving(2)})
    unit.begin("b")
    for _ in range(4):
        unit.step()
    assert unit.shape() == {"prefill": {"a": 3, "b": 1}, "decode": {"a": 2, "b": 1}}


def test_what_is_cleared_goes_in_one_step_and_nothing_else_of_the_role() -> None:
    unit = Unit({"prefill": Role.serving(4, budget=Budget(surge=2)), "decode": Role.serving(2)})
    unit.begin("b")
    unit.roles["prefill"].replicas[3] = replace(unit.roles["prefill"].replicas[3], stage=Stage.STARTING)
    unit.cleared = {"prefill": frozenset({0, 2}), "decode": frozenset({0})}
    unit.step()
    assert {n for n, each in unit.roles["prefill"].replicas.items() if each.stage is Stage.GOING} == {0, 2}
    assert {n for n, each in unit.roles["decode"].replicas.items() if each.stage is Stage.GOING} == {0}


def test_what_is_cleared_never_takes_a_role_below_its_minimum() -> None:
    unit = Unit({"prefill": Role.serving(3, minimum=2)})
    unit.begin("b")
    unit.cleared = {"prefill": frozenset({0, 1, 2})}
    unit.step()
    assert unit.roles["prefill"].ready == 2


def test_a_stated_budget_holds_without_room_too() -> None:
    unit = Unit({"prefill": Role.serving(3, budget=Budget(1, 0))})
    unit.begin("b")
    for _ in range(4):
        unit.clear()
        unit.step()
        unit.gone()
    assert unit.roles["prefill"].ready == 3


def test_what_has_never_run_takes_a_new_revision_where_it_is() -> None:
    unit = Unit({"prefill": Role(2), "decode": Role(2)})
    unit.step()
    unit.begin("b")
    assert unit.shape() == {"prefill": {"b": 2}, "decode": {"b": 2}}
    assert set(unit.roles["prefill"].replicas) == {0, 1}


def test_free_numbers_are_taken_lowest_first_and_kept_in_the_end() -> None:
    unit = Unit({"prefill": Role.serving(2)})
    unit.edit("b")
    shapes(unit)
    assert set(unit.roles["prefill"].replicas) == {2, 3}
    unit.edit("c")
    shapes(unit)
    assert set(unit.roles["prefill"].replicas) == {0, 1}


def test_a_number_is_not_taken_while_its_pods_are_going() -> None:
    unit = Unit({"prefill": Role.serving(2)})
    unit.begin("b")
    unit.set(Stage.SERVING, [("prefill", 2)])
    unit.step()
    assert unit.roles["prefill"].replicas[1].stage is Stage.GOING
    assert set(unit.roles["prefill"].state.alive) == {0, 2, 3}


def test_a_partition_of_a_role_that_shall_have_none_keeps_nothing() -> None:
    one = Budget(surge=0, unavailable=1)
    roles = {
        "prefill": Role.serving(1, minimum=0, budget=one),
        "decode": Role.serving(1, minimum=0, budget=Budget(surge=0, unavailable=1, partition=1)),
        "router": Role.serving(1, budget=one),
    }
    unit = Unit(roles)
    unit.edit("b")
    roles["decode"].wanted = 0
    planned = unit.step()
    assert next_step(unit.state).roles == planned.roles


def test_what_a_partition_holds_gives_its_surge_back_at_once() -> None:
    unit = Unit({"prefill": Role.serving(2, budget=Budget(partition=1))})
    unit.begin("b")
    unit.roles["prefill"].wanted = 1
    planned = unit.step()
    assert next_step(unit.state).roles == planned.roles
