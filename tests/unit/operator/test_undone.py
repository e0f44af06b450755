"""An object that somebody changes whenever it was written: it is told of by name, and writing it again has a bound."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from builders.inferences import llama
from covey.backends import Identity
from covey.kube.resources import POD_DISRUPTION_BUDGETS, SERVICES
from covey.operator.plan import Plan
from unit.operator.world import World

HOUR = 3600.0
FIELD = {"Service": ("publishNotReadyAddresses", False), "PodDisruptionBudget": ("minAvailable", 1)}


def rewritten(kind: str) -> World:
    """A resource that serves, after somebody has begun to rewrite a field of its objects of a kind."""
    world = World.serving(llama(1, 1))
    field, value = FIELD[kind]

    def admit(of: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**spec, field: value} if of == kind else spec

    world.admit = admit
    for key in [*world.objects, *world.shared]:
        edit(world, key, field, value)
    return world


def edit(world: World, key: Identity, field: str, value: object) -> None:
    """Somebody sets a field, where there is one."""
    objects = world.objects if key in world.objects else world.shared
    if field in objects[key].spec:
        objects[key] = msgspec.structs.replace(objects[key], spec={**objects[key].spec, field: value})


def writes(planned: Plan) -> int:
    return len([*itertools.chain(*planned.actions.apply, planned.actions.publish, *planned.actions.ask)])


def pass_time(world: World, seconds: float) -> int:
    """Look at the resource whenever it asks for that, and each minute; returns the number of writes."""
    end, total = world.now + seconds, 0
    while world.now < end:
        planned = world.carry_out()
        world.tell()
        total += writes(planned)
        world.now += max(0.1, min(60.0, planned.again if planned.again is not None else 60.0))
    return total


@pytest.mark.parametrize(
    ("kind", "type_"), [("Service", SERVICES.type), ("PodDisruptionBudget", POD_DISRUPTION_BUDGETS.type)]
)
def test_object_when_a_field_is_rewritten_each_time_is_told_by_name_and_lets_the_resource_be_complete(
    kind: str, type_: str
) -> None:
    world = rewritten(kind)
    world.settle()
    conditions = world.conditions()
    assert conditions["Progressing"]["reason"] == "Complete"
    told = conditions["Degraded"]
    assert (told["status"], told["reason"]) == ("True", "FieldRewritten")
    name = min(key[1] for key in [*world.objects, *world.shared] if key[0] == type_)
    field, value = FIELD[kind]
    assert told["message"].startswith(f"{kind} {name}: spec.{field} is {json.dumps(value)} each")


def test_object_when_a_field_is_rewritten_each_time_is_written_less_and_less() -> None:
    world = rewritten("PodDisruptionBudget")
    first, later = pass_time(world, HOUR), pass_time(world, HOUR)
    assert later <= 6, "every ten minutes"
    assert first <= later + 8
    assert world.conditions()["Degraded"]["reason"] == "FieldRewritten"


def test_object_when_nobody_rewrites_it_any_more_is_as_it_is_wanted_and_told_no_longer() -> None:
    world = rewritten("Service")
    pass_time(world, HOUR)
    world.admit = lambda _, spec: spec
    pass_time(world, HOUR)
    assert not any(owned.spec.get("publishNotReadyAddresses") is False for owned in world.objects.values())
    assert world.conditions()["Degraded"]["status"] == "False"


def test_object_when_it_is_edited_now_and_then_is_brought_back_at_once() -> None:
    world = World.serving(llama(1, 1))
    key = next(key for key, owned in world.objects.items() if owned.spec.get("publishNotReadyAddresses"))
    for _ in range(10):
        edit(world, key, "publishNotReadyAddresses", value=False)
        world.settle()
        assert world.objects[key].spec["publishNotReadyAddresses"] is True
        world.now += 61.0
