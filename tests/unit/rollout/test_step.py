"""Rollouts of one unit, window by window."""

from __future__ import annotations

import pytest

from covey.rollout import RolloutBudget, Stage, next_step
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


def test_a_partition_that_keeps_a_whole_role_keeps_those_that_change_with_it() -> None:
    unit = Unit({"prefill": Role.serving(2, budget=RolloutBudget(partition=2)), "decode": Role.serving(2)})
    unit.edit("b")
    assert shapes(unit) == [{"prefill": {"a": 2}, "decode": {"a": 2}}]


def test_minimum_is_kept_when_more_may_be_unavailable() -> None:
    unit = Unit({"prefill": Role.serving(4, minimum=3, budget=RolloutBudget(surge=0, unavailable=2))})
    unit.begin("b")
    assert unit.roles["prefill"].ready == 3


def test_serving_replicas_stay_when_a_partition_is_raised_for_old_ones_that_do_not() -> None:
    unit = Unit({"prefill": Role.serving(4)})
    for _ in range(3):
        unit.begin("b")
        unit.thrive()
    assert unit.shape() == {"prefill": {"a": 2, "b": 3}}
    unit.set(Stage.STARTING, [("prefill", number) for number in unit.roles["prefill"].state.old])
    unit.roles["prefill"].budget = RolloutBudget(partition=3)
    unit.step()
    assert unit.roles["prefill"].ready == 3


def test_a_role_without_room_for_two_holds_no_growth_of_the_others() -> None:
    """Prefill cannot move, decode is scaled: what is missing comes in the revision that is there in both."""
    unit = Unit({"prefill": Role.serving(2, budget=RolloutBudget(partition=2)), "decode": Role.serving(2)})
    unit.edit("b")
    unit.roles["decode"].wanted = 4
    unit.step()
    assert unit.shape() == {"prefill": {"a": 2}, "decode": {"a": 4}}


def test_a_partition_of_a_role_that_shall_have_none_keeps_nothing() -> None:
    one = RolloutBudget(surge=0, unavailable=1)
    roles = {
        "prefill": Role.serving(1, minimum=0, budget=one),
        "decode": Role.serving(1, minimum=0, budget=RolloutBudget(surge=0, unavailable=1, partition=1)),
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


def test_max_unavailable_when_a_replica_leaves_its_node_takes_nothing_from_the_minimum() -> None:
    unit = Unit({"prefill": Role.serving(2, minimum=2, budget=RolloutBudget(surge=0, unavailable=1))})
    unit.leave("prefill", 0)
    unit.step()
    assert unit.roles["prefill"].ready == 2


def test_what_a_partition_keeps_is_moved_as_it_is() -> None:
    unit = Unit({"prefill": Role.serving(3, budget=RolloutBudget(partition=2))})
    unit.edit("b")
    for left in (None, 0):
        if left is not None:
            unit.leave("prefill", left)
        assert shapes(unit)[-1] == {"prefill": {"a": 2, "b": 1}}
    assert 0 not in unit.roles["prefill"].state.alive
