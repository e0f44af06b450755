"""Rollouts of one unit, window by window."""

from __future__ import annotations

from dataclasses import replace

import pytest

from covey.rollout import Budget, Stage, next_step
from unit.rollout.acting import Role, Unit


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


def test_an_edit_during_a_rollout_gives_up_what_never_served_first() -> None:
    unit = Unit({"prefill": Role.serving(2), "decode": Role.serving(2)})
    unit.begin("b")
    unit.begin("c")
    assert unit.shape() == {"prefill": {"a": 2, "c": 1}, "decode": {"a": 2, "c": 1}}
