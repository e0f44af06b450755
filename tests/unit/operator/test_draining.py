"""Graceful going: who is marked, who is deleted, and when to look again."""

from __future__ import annotations

from typing import Any

from builders.inferences import inference, role, template
from covey.api import constants as names
from unit.operator.world import World


def resource(prefill: int, decode: int, seconds: tuple[int, int] = (30, 30), **spec: Any) -> Any:
    return inference(
        role("prefill", replicas=prefill, size=2, drainSeconds=seconds[0]),
        role("decode", replicas=decode, drainSeconds=seconds[1]),
        **spec,
    )


def served(*arguments: Any, **spec: Any) -> World:
    return World.serving(resource(*arguments, **spec))


def test_half_a_mark_is_completed_with_the_time_of_the_other_half() -> None:
    world = served(2, 1)
    world.inference = resource(1, 1)
    first, *_ = world.steps(world.plan().actions)
    first()
    begun = world.now
    world.now += 20
    world.forget()
    (left,) = world.plan().actions.drain
    assert left.since == begun


def test_a_marked_replica_never_comes_back() -> None:
    world = served(2, 1)
    world.inference = resource(1, 1)
    marked = {item.pod.metadata.name for item in world.carry_out().actions.drain}
    world.inference = resource(2, 1)
    planned = world.carry_out()
    assert {item.slot.replica for item in planned.actions.create} == {2}
    assert not marked & {item.pod.metadata.name for item in planned.actions.delete_pods}
    world.now += 30
    assert {item.pod.metadata.name for item in world.plan().actions.delete_pods} == marked


def test_gate_of_a_replica_opens_when_all_of_its_pods_run() -> None:
    gated = template(readinessGates=[{"conditionType": names.GATE_SERVING}])
    world = World.settled(inference(role("prefill", size=2, template=gated)))
    world.bind_all()
    first, second = world.pods
    world.run(first)
    assert not world.plan().actions.serve
    world.run(second)
    assert {action.pod.metadata.name for action in world.plan().actions.serve} == {first, second}
