"""A watch that does not show deletions yet makes no pass delete what is to stay."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.operator.plan import Plan
from unit.operator.answering import refuse
from unit.operator.test_evacuating import act, cordon
from unit.operator.world import World


def look(world: World) -> Plan:
    """A pass; the pods that it deletes are shown on by the watch."""
    planned = world.plan()
    world.condemned |= {item.pod.metadata.uid for item in planned.actions.delete_pods}
    return planned


def units_of(planned: Plan) -> set[str | None]:
    return {item.pod.metadata.label(names.LABEL_UNIT) for item in planned.actions.delete_pods}


def moving(decode: dict[str, Any], prefill: dict[str, Any]) -> World:
    """A unit that is being moved as a whole, whose successor has its minimum Ready."""
    world = World(inference(role("prefill")))
    world.inference = inference(role("decode", **decode), role("prefill", **prefill), topology={"required": "block"})
    world.settle()
    world.serve(apart=True)
    world.tell()
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    world.now += 60
    act(world, 1)
    minimum = {"decode": decode["minReplicas"], "prefill": prefill["minReplicas"]}
    for name, pod in list(world.pods.items()):
        number = int(pod.metadata.label(names.LABEL_REPLICA) or 0)
        if pod.metadata.label(names.LABEL_UNIT) == "1" and number < minimum[pod.metadata.label(names.LABEL_ROLE) or ""]:
            world.bind(name, f"other-{name}")
            world.ready(name)
    if prefill["replicas"] > minimum["prefill"]:
        # There is no room for more of it.
        refuse(world, unit=1)
    return world


@pytest.mark.parametrize("prefill", [1, 2], ids=["at its minimum", "with surplus"])
def test_a_unit_that_was_moved_is_not_deleted_together_with_its_successor(prefill: int) -> None:
    world = moving({"replicas": 1, "minReplicas": 1}, {"replicas": prefill, "minReplicas": 1})
    assert units_of(look(world)) == {"0"}
    assert not look(world).actions.delete_pods
    assert not look(world).actions.delete_pods


def test_the_last_unit_stays_though_it_is_not_ready_for_a_moment() -> None:
    world = World.serving(inference(role("prefill"), role("decode"), replicas=2))
    world.tell()
    world.inference = inference(role("prefill"), role("decode"), replicas=1)
    assert units_of(look(world)) == {"1"}
    unready = next(name for name in world.pods if name.startswith("llama-0-prefill"))
    world.change(unready, status={"conditions": (core.Condition("Ready", "False"),)})
    assert not look(world).actions.delete_pods
