"""Replicas that leave their nodes: a successor first, then the old one, within the budget of the role."""

from __future__ import annotations

from covey.rollout import Budget
from unit.rollout.acting import Role, Unit


def unit(**roles: Role) -> Unit:
    return Unit(roles)


def leave(found: Unit, role: str, *numbers: int) -> None:
    for number in numbers:
        found.leave(role, number)


def alive(found: Unit, role: str) -> set[int]:
    return set(found.roles[role].state.alive)


def test_max_unavailable_takes_nothing_from_the_minimum() -> None:
    acting = unit(prefill=Role.serving(2, minimum=2, budget=Budget(surge=0, unavailable=1)))
    leave(acting, "prefill", 0)
    acting.step()
    assert acting.roles["prefill"].ready == 2


def test_while_it_is_paused_successors_are_of_the_revision_of_who_leaves() -> None:
    acting = unit(prefill=Role.serving(3))
    acting.edit("b")
    acting.stays = True
    leave(acting, "prefill", 0)
    acting.step()
    assert acting.shape() == {"prefill": {"a": 4}}
    acting.thrive()
    acting.step()
    assert acting.shape() == {"prefill": {"a": 3}}
    assert 0 not in alive(acting, "prefill")


def test_what_a_partition_keeps_is_moved_as_it_is() -> None:
    acting = unit(prefill=Role.serving(3, budget=Budget(partition=2)))
    acting.edit("b")
    for _ in range(4):
        acting.step()
        acting.thrive()
    assert acting.shape() == {"prefill": {"a": 2, "b": 1}}
    leave(acting, "prefill", 0)
    for _ in range(4):
        acting.step()
        acting.thrive()
    assert acting.shape() == {"prefill": {"a": 2, "b": 1}}
    assert 0 not in alive(acting, "prefill")


def test_in_a_rollout_what_leaves_is_replaced_by_the_new_revision() -> None:
    acting = unit(prefill=Role.serving(3))
    acting.edit("b")
    leave(acting, "prefill", 0)
    for _ in range(3):
        acting.step()
        assert acting.roles["prefill"].ready >= 3
        acting.thrive()
        if not acting.state.roles["prefill"].leaving:
            break
    assert set(acting.shape()["prefill"]) == {"a", "b"}, "who leaves goes before the others"
    for _ in range(6):
        acting.step()
        acting.thrive()
    assert acting.is_rolled
