"""Failures where no places can be kept: what has failed stays until its time."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference
from covey.api import core
from covey.model import podstate
from unit.backends.volcano.objects import workers
from unit.operator.test_failing import name_of
from unit.operator.test_volcano import VolcanoWorld

BACKOFF = {"backoff": {"baseSeconds": 30, "maxSeconds": 600}}


def world_of(*roles: dict[str, Any]) -> VolcanoWorld:
    world = VolcanoWorld(inference(*roles, backend="Volcano"))
    world.notes = True
    serve(world)
    return world


def serve(world: VolcanoWorld) -> None:
    for _ in range(3):
        world.settle()
        for name, pod in list(world.pods.items()):
            if not core.gates(pod) and not podstate.is_dead(pod):
                world.bind(name)
                world.ready(name)
    world.note()


def fail(world: VolcanoWorld) -> str:
    name = name_of(world, "0-prefill-0-1")
    world.fail(name)
    return name


def test_a_failed_replica_stays_until_its_time_and_goes_whole() -> None:
    world = world_of(workers("prefill", size=2, restart=BACKOFF), workers("decode"))
    first = fail(world)
    serve(world)
    assert first not in world.pods, "the first time at once"
    failed, others = fail(world), set(world.pods)
    serve(world)
    assert others == set(world.pods)
    assert world.plan().again == 30
    world.now += 29
    world.forget()
    assert world.plan().again == 1
    assert not world.plan().actions
    world.now += 1
    serve(world)
    assert failed not in world.pods
    assert podstate.past(world.pods[name_of(world, "0-prefill-0-0")]).failures == 2
    assert not any(podstate.is_dead(pod) for pod in world.pods.values())


@settings(settings.get_profile("storm"))
@given(st.lists(st.integers(1, 6), min_size=4, max_size=8))
def test_an_operator_killed_after_any_write_keeps_its_time(kills: list[int]) -> None:
    world = world_of(workers("prefill", size=2, restart=BACKOFF))
    fail(world)
    serve(world)
    begun = world.now
    fail(world)
    for kill in kills:
        for number, step in enumerate(world.steps(world.plan().actions)):
            if number == kill:
                break
            step()
            world.finish()
        world.forget()
        assert podstate.past(world.pods[name_of(world, "0-prefill-0-0")]).failures == 1
        world.now += 1
    again = world.plan().again
    assert again is not None
    assert world.now + again == begun + 30
    world.now += again
    serve(world)
    assert podstate.past(world.pods[name_of(world, "0-prefill-0-1")]).failures == 2
