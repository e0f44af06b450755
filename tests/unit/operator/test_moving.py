"""A unit that is moved as a whole, and what serves meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.operator.model import podstate
from unit.operator.answering import refuse
from unit.operator.test_evacuating import act, cordon
from unit.operator.world import World

DEADLINE = 600


def of(world: World, unit: int, role_: str) -> list[str]:
    found = {names.LABEL_UNIT: str(unit), names.LABEL_ROLE: role_}
    return sorted(name for name, pod in world.pods.items() if found.items() <= (pod.metadata.labels or {}).items())


def serve(world: World, unit: int, role_: str, count: int) -> None:
    """So many replicas of a role are Ready."""
    for name in of(world, unit, role_)[:count]:
        if not world.pods[name].spec.node_name:
            world.bind(name, f"{unit}-{name}")
        world.ready(name)


def ready(world: World, unit: int, role_: str) -> int:
    return sum(podstate.is_ready(world.pods[name]) for name in of(world, unit, role_))


def moving(**prefill: Any) -> World:
    """Unit 0 serves with all of its eight prefill replicas; unit 1 has its minimum Ready, and seven that wait."""
    roles = (role("decode"), role("prefill", **{"replicas": 8, "minReplicas": 1, **prefill}))
    rollout = {"progressDeadlineSeconds": DEADLINE}
    world = World.settled(inference(*roles, topology={"required": "block"}, rollout=rollout))
    world.serve(apart=True)
    world.tell()
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    world.now += 60
    act(world, 1)
    for name, pod in world.pods.items():
        if pod.metadata.label(names.LABEL_UNIT) == "1":
            world.change(name, metadata={"creation_timestamp": rfc3339(world.now)})
    serve(world, 1, "decode", 1)
    serve(world, 1, "prefill", 1)
    return world


def again(world: World) -> float:
    found = world.plan().again
    return DEADLINE if found is None else found


def test_what_serves_stays_while_the_other_unit_is_still_coming() -> None:
    world = moving()
    act(world)
    assert ready(world, 0, "prefill") == 8
    # All of it has nodes, and loads.
    for name in of(world, 1, "prefill")[1:]:
        world.bind(name, f"1-{name}")
        told = core.Condition("Ready", "False", last_transition_time=rfc3339(world.now))
        world.change(name, status={"phase": "Running", "conditions": (told,)})
    world.now += DEADLINE - 1
    act(world)
    assert ready(world, 0, "prefill") == 8
    serve(world, 1, "prefill", 8)
    act(world)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, 8)


def test_the_rest_is_given_up_once_it_is_proven_that_it_has_no_places() -> None:
    world = moving()
    refuse(world, unit=1, reason="Denied")
    act(world)
    assert ready(world, 0, "prefill") == 8, "who denies its pins may change his mind"
    refuse(world, unit=1)
    act(world)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, 1)


def test_a_rest_of_which_nobody_has_said_that_there_is_no_room_is_waited_for() -> None:
    world = moving()
    world.now += 3600
    act(world)
    assert ready(world, 0, "prefill") == 8


def test_a_rest_that_never_serves_does_not_keep_the_node_for_ever() -> None:
    world = moving()
    for name in of(world, 1, "prefill")[1:]:
        world.bind(name, f"1-{name}")
        told = core.Condition("Ready", "False", last_transition_time=rfc3339(world.now))
        world.change(name, status={"phase": "Running", "conditions": (told,)})
    world.now += DEADLINE
    act(world)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, 1)


@pytest.mark.parametrize(("missing", "enough"), [(2, 6), ("50%", 4)])
def test_as_many_may_be_missing_as_the_owner_allows(missing: int | str, enough: int) -> None:
    world = moving(update={"maxUnavailable": missing})
    serve(world, 1, "prefill", enough - 1)
    act(world)
    assert ready(world, 0, "prefill") == 8
    serve(world, 1, "prefill", enough)
    act(world)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, enough)


def test_no_more_is_asked_for_than_serves_now() -> None:
    world = moving()
    lost = of(world, 0, "prefill")[4:]
    for name in lost:
        world.change(name, status={"conditions": ()})
    serve(world, 1, "prefill", 3)
    act(world)
    assert ready(world, 0, "prefill") == 4
    serve(world, 1, "prefill", 4)
    act(world)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, 4)


def test_below_the_minimum_it_never_takes_over() -> None:
    world = moving(minReplicas=3)
    serve(world, 1, "prefill", 2)
    refuse(world, unit=1)
    world.now += 3600
    act(world)
    assert ready(world, 0, "prefill") == 8
