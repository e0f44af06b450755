"""A unit that is moved as a whole, and what serves meanwhile."""

from __future__ import annotations

from typing import Any

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.model import podstate
from unit.operator.answering import refuse
from unit.operator.test_evacuating import cordon
from unit.operator.world import World

DEADLINE = 600


def serve(world: World, unit: int, role_: str, count: int) -> None:
    """So many replicas of a role are Ready."""
    for name in world.names_of(role_, unit=unit)[:count]:
        if not world.pods[name].spec.node_name:
            world.bind(name, f"{unit}-{name}")
        world.ready(name)


def ready(world: World, unit: int, role_: str) -> int:
    return sum(podstate.is_ready(world.pods[name]) for name in world.names_of(role_, unit=unit))


def moving(**prefill: Any) -> World:
    """Unit 0 serves with all of its eight prefill replicas; unit 1 has its minimum Ready, and seven that wait."""
    roles = (role("decode"), role("prefill", **{"replicas": 8, "minReplicas": 1, **prefill}))
    rollout = {"progressDeadlineSeconds": DEADLINE}
    world = World.settled(inference(*roles, topology={"required": "block"}, rollout=rollout))
    world.serve(apart=True)
    world.tell()
    cordon(world, "decode-0")
    world.act(3)
    refuse(world)
    world.now += 60
    world.act()
    for name, pod in world.pods.items():
        if pod.metadata.label(names.LABEL_UNIT) == "1":
            world.change(name, metadata={"creation_timestamp": rfc3339(world.now)})
    serve(world, 1, "decode", 1)
    serve(world, 1, "prefill", 1)
    return world


def test_a_rest_of_which_nobody_has_said_that_there_is_no_room_is_waited_for() -> None:
    world = moving()
    world.now += 3600
    world.act(3)
    assert ready(world, 0, "prefill") == 8


def test_a_rest_that_never_serves_does_not_keep_the_node_for_ever() -> None:
    world = moving()
    for name in world.names_of("prefill", unit=1)[1:]:
        world.bind(name, f"1-{name}")
        told = core.Condition("Ready", "False", last_transition_time=rfc3339(world.now))
        world.change(name, status={"phase": "Running", "conditions": (told,)})
    world.now += DEADLINE
    world.act(3)
    assert (ready(world, 0, "prefill"), ready(world, 1, "prefill")) == (0, 1)
