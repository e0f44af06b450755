"""Why replicas cannot leave their nodes, as the condition ``EvacuationBlocked`` says it."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.operator.model.node_drain import Notice
from unit.operator.answering import refuse
from unit.operator.world import World

NEW = template(nodeSelector={"new": "yes"})


def edit(world: World, decode: dict[str, Any], **spec: Any) -> None:
    """Two roles; of decode this is said."""
    decode = {"replicas": 3, **decode}
    world.inference = inference(role("decode", **decode), role("prefill", replicas=2, minReplicas=2), **spec)


def serving(decode: dict[str, Any], **spec: Any) -> World:
    """Each replica serves on a node of its own: decode-0, prefill-1, and so on."""
    world = World(inference(role("prefill")))
    edit(world, decode, **spec)
    world.settle()
    world.serve(apart=True)
    world.tell()
    return world


def cordon(world: World, *nodes: str) -> None:
    world.notices |= {node: Notice("cordoned") for node in nodes}


def act(world: World, passes: int = 3) -> None:
    """So many passes; what has to go is gone after each."""
    for _ in range(passes):
        world.carry_out()
        world.tell()
        world.finish()


def blocked(world: World) -> tuple[str, str]:
    """Reason and message; empty where nothing is blocked."""
    found = {each["type"]: each for each in world.tell()["conditions"] if each["status"] == "True"}
    told = found.get(names.EVACUATION_BLOCKED, {})
    return told.get("reason", ""), told.get("message", "")


def serving_of(world: World, name: str) -> int:
    return sum(state.is_ready for state in world.plan().states[0][name].values())


def cordon_now(world: World, *nodes: str) -> None:
    """Nobody has asked for these nodes to be empty at once."""
    world.notices |= {node: Notice("cordoned", since=world.now, waits=True) for node in nodes}


def test_what_serves_waits_for_the_cordon_to_last() -> None:
    world = serving({"replicas": 3, "minReplicas": 1})
    cordon_now(world, "decode-0")
    act(world)
    assert len(world.pods) == 6, "its successor is built at once"
    refuse(world)
    world.now += 40
    act(world)
    assert serving_of(world, "decode") == 3
    assert blocked(world) == ("", "")
    told = world.conditions()["Evacuating"]
    assert told["message"] == "1 replica of decode leaves node decode-0: cordoned, without a successor after 60 s"
    again = world.plan().again
    assert again is not None
    assert again <= 20
    world.now += 20
    act(world)
    assert serving_of(world, "decode") == 3, "now it may go, which is another question"
    refuse(world)
    act(world)
    assert serving_of(world, "decode") == 2


def test_at_the_minimum_it_is_blocked_as_soon_as_it_is_known_that_there_is_no_room() -> None:
    world = serving({"replicas": 1, "minReplicas": 1})
    cordon_now(world, "decode-0")
    act(world)
    refuse(world)
    world.now += 31
    act(world)
    assert blocked(world)[0] == "NoRoom"


def test_a_cordon_that_was_taken_back_has_cost_nothing() -> None:
    world = serving({"replicas": 3, "minReplicas": 1})
    before = set(world.pods)
    cordon_now(world, "decode-0", "decode-1")
    act(world)
    refuse(world)
    world.now += 50
    act(world)
    world.notices.clear()
    act(world)
    assert set(world.pods) == before


PAUSED = {"template": NEW, "minReplicas": 3}


def test_in_a_paused_rollout_a_successor_that_waits_is_waited_for() -> None:
    world = serving({"minReplicas": 3})
    edit(world, PAUSED, rollout={"paused": True})
    cordon(world, "decode-0")
    act(world)
    assert len(world.pods) == 6, "it has a successor"
    assert blocked(world) == ("", ""), "for which nobody has said that there is no room"


def test_in_a_paused_rollout_it_is_room_that_is_missing() -> None:
    world = serving({"minReplicas": 3})
    edit(world, PAUSED, rollout={"paused": True})
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoRoom"
    assert message == (
        "1 replica of decode cannot leave node decode-0: cordoned: there is no room for a successor, and decode has 3 of "
        "at least 3 replicas: uncordon the node, or add or free nodes, lower minReplicas, or set "
        "spec.disruption.allowBelowMinimum"
    )


@pytest.mark.parametrize(
    ("minimum", "yields", "left"), [(2, False, 2), (3, True, 2)], ids=["above the minimum", "allowed below it"]
)
def test_in_a_paused_rollout_without_room_the_old_one_goes_first(minimum: int, yields: bool, left: int) -> None:  # noqa: FBT001 - a parameter
    world = serving({"minReplicas": minimum})
    spec = {"rollout": {"paused": True}, "disruption": {"allowBelowMinimum": yields}}
    edit(world, {"template": NEW, "minReplicas": minimum}, **spec)
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    act(world, 1)
    assert serving_of(world, "decode") == left


def test_without_a_surge_nobody_knows_of_room() -> None:
    world = serving({"minReplicas": 3, "update": {"maxSurge": 0}})
    cordon(world, "decode-0")
    act(world)
    reason, message = blocked(world)
    assert reason == "NoSurge"
    assert "decode has 3 of at least 3 replicas, and update.maxSurge allows no successor beside them" in message


def test_that_another_role_has_no_room_is_not_why_this_one_has_no_surge() -> None:
    world = serving({"minReplicas": 3, "update": {"maxSurge": 0}})
    cordon(world, "decode-0", "prefill-0")
    act(world)
    refuse(world)
    assert blocked(world)[0] == "NoSurge"
    world.notices.pop("decode-0")
    assert blocked(world)[0] == "NoRoom"


NO_BUDGET = "there is no room for a successor, and maxUnavailable allows no more to be missing: uncordon"


@pytest.mark.parametrize(
    ("minimum", "update", "words"),
    [(1, {}, [NO_BUDGET]), (2, {"maxUnavailable": 3}, ["decode has 2 of at least 2 replicas", "lower minReplicas"])],
    ids=["the budget", "the minimum, where it forbids more"],
)
def test_what_forbids_the_second_one_to_go_without_a_surge_is_named(
    minimum: int, update: dict[str, int], words: list[str]
) -> None:
    """It waits for the room of the first."""
    world = serving({"minReplicas": minimum, "update": {"maxSurge": 0, **update}})
    cordon(world, "decode-0", "decode-1")
    act(world)
    assert serving_of(world, "decode") == 2
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoRoom"
    assert all(each in message for each in words)


def test_where_the_budget_forbids_what_the_minimum_may_the_budget_is_named() -> None:
    update = {"maxUnavailable": 0}
    world = serving({"minReplicas": 3, "update": update}, disruption={"allowBelowMinimum": True})
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoRoom"
    assert "maxUnavailable allows no more to be missing" in message
    assert "allowBelowMinimum" not in message


def test_a_unit_that_is_moved_as_a_whole_has_its_minimum_meanwhile() -> None:
    world = serving({"replicas": 1, "minReplicas": 1}, topology={"required": "block"})
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    act(world, 1)
    assert {pod.metadata.label(names.LABEL_UNIT) for pod in world.pods.values()} == {"0", "1"}
    found = world.conditions()
    assert found["Evacuating"]["reason"] == "UnitMoving"
    assert (found["MinimumMet"]["status"], found["MinimumMet"]["message"]) == (
        "True",
        "1/1 units have the places of their minimum",
    )
