"""Replicas that leave their nodes: a successor first, then the old one, within the budget of the role."""

from __future__ import annotations

from dataclasses import replace

from covey.rollout import Budget, Stage
from unit.rollout.acting import Role, Unit


def unit(**roles: Role) -> Unit:
    return Unit(roles)


def leave(found: Unit, role: str, *numbers: int) -> None:
    for number in numbers:
        found.leave(role, number)


def alive(found: Unit, role: str) -> set[int]:
    return set(found.roles[role].state.alive)


def test_a_successor_comes_first_and_then_the_old_one_goes() -> None:
    acting = unit(prefill=Role.serving(4))
    leave(acting, "prefill", 1)
    acting.step()
    assert alive(acting, "prefill") == {0, 1, 2, 3, 4}
    acting.step()
    assert alive(acting, "prefill") == {0, 1, 2, 3, 4}
    acting.set(Stage.SERVING, [("prefill", 4)])
    acting.step()
    assert alive(acting, "prefill") == {0, 2, 3, 4}


def test_two_replicas_on_two_nodes_go_one_after_the_other() -> None:
    acting = unit(prefill=Role.serving(2, minimum=2))
    leave(acting, "prefill", 0, 1)
    seen = []
    for _ in range(4):
        acting.step()
        assert acting.roles["prefill"].ready >= 2
        seen.append(len(acting.state.roles["prefill"].alive))
        acting.thrive()
    assert seen == [3, 3, 2, 2]
    assert alive(acting, "prefill") == {2, 3} or not acting.state.roles["prefill"].leaving


def test_a_wider_surge_moves_more_at_a_time() -> None:
    acting = unit(prefill=Role.serving(4, budget=Budget(surge=3)))
    leave(acting, "prefill", 0, 1, 2)
    acting.step()
    assert len(alive(acting, "prefill")) == 7


def test_roles_do_not_wait_for_each_other() -> None:
    acting = unit(prefill=Role.serving(2), decode=Role.serving(2))
    leave(acting, "prefill", 0)
    leave(acting, "decode", 0)
    acting.step()
    acting.set(Stage.SERVING, [("prefill", 2)])
    acting.step()
    assert alive(acting, "prefill") == {1, 2}
    assert alive(acting, "decode") == {0, 1, 2}


def test_a_node_that_is_not_to_be_empty_any_more() -> None:
    acting = unit(prefill=Role.serving(2))
    leave(acting, "prefill", 0)
    acting.step()
    acting.leave("prefill", 0, leaving=False)
    acting.step()
    assert alive(acting, "prefill") == {0, 1}


def test_without_room_only_those_go_that_may_not_wait() -> None:
    acting = unit(prefill=Role.serving(4, minimum=1, budget=Budget(surge=2)))
    leave(acting, "prefill", 0, 1, 2)
    replicas = acting.roles["prefill"].replicas
    for number in (0, 2):
        replicas[number] = replace(replicas[number], patient=True)
    acting.act_without_room(8)
    assert acting.state.roles["prefill"].leaving.keys() == {0, 2}
    assert acting.roles["prefill"].ready == 3


def test_without_room_it_shrinks_to_the_minimum_and_waits() -> None:
    acting = unit(prefill=Role.serving(4, minimum=2))
    leave(acting, "prefill", 0, 1, 2, 3)
    for _ in range(12):
        acting.act_without_room(1)
        assert acting.roles["prefill"].ready >= 2
    assert acting.roles["prefill"].ready == 2
    assert len(alive(acting, "prefill")) == 5, "successors wait, of which one is the surge"
    acting.roles["prefill"].yields = True
    acting.act_without_room(12)
    assert acting.roles["prefill"].ready == 0
    acting.thrive()
    acting.step()
    assert acting.is_rolled


def test_the_only_replica_stays_without_room_unless_it_may_go() -> None:
    acting = unit(decode=Role.serving(1))
    leave(acting, "decode", 0)
    acting.step()
    acting.clear()
    acting.step()
    assert alive(acting, "decode") == {0, 1}
    acting.roles["decode"].yields = True
    acting.clear()
    acting.step()
    assert alive(acting, "decode") == {1}


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


def test_each_that_leaves_is_succeeded_by_its_own_revision() -> None:
    acting = unit(prefill=Role.serving(2, budget=Budget(surge=2)))
    acting.edit("b")
    for _ in range(2):
        acting.step()
    acting.set(Stage.SERVING, acting.all(Stage.WAITING)[:1])
    acting.roles["prefill"].replicas.pop(1)
    acting.stays = True
    before = acting.shape()
    leave(
        acting, "prefill", *[n for n, each in acting.roles["prefill"].replicas.items() if each.stage is Stage.SERVING]
    )
    for _ in range(6):
        acting.step()
        acting.thrive()
    assert acting.shape()["prefill"].keys() == before["prefill"].keys()


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
