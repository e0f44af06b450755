"""``terminationDelaySeconds`` counts against the minimum that was met last."""

from __future__ import annotations

from typing import Any

from builders import inferences
from builders.inferences import template
from covey.api.inference import DisaggregatedInference
from covey.operator.model.node_drain import Notice
from unit.operator.answering import refuse
from unit.operator.test_loss import act, bound, condition, of_unit
from unit.operator.world import World

DELAY = {"terminationDelaySeconds": 60}


def llama(decode: dict[str, Any] | None = None, **prefill: Any) -> DisaggregatedInference:
    """Three prefill replicas of one pod, and a delay until what is below its minimum goes."""
    fields = {"replicas": 3, "size": 1, **prefill}
    more = {"disruption": found} if (found := fields.pop("disruption", None)) else {}
    return inferences.llama(fields, {"replicas": 1, **(decode or {})}, gang=DELAY, **more)


def serving(wanted: DisaggregatedInference, *, but: str = "-") -> World:
    world = World.settled(wanted)
    for name in list(world.pods):
        if but not in name or but == "-":
            world.bind(name, f"node-of-{name}")
            world.ready(name)
    world.tell()
    return world


def wait(world: World) -> None:
    for _ in range(6):
        act(world)
        world.now += 40


def test_a_minimum_that_is_raised_takes_nothing_down() -> None:
    world = serving(llama(minReplicas=1), but="prefill-2")
    before = bound(world)
    world.inference = llama(minReplicas=3)
    wait(world)
    assert bound(world) == before
    assert condition(world, "MinimumMet") == ("False", "BelowMinimum")
    assert condition(world, "Escalating") is None
    assert of_unit(world)["metMinimum"] == [{"name": "prefill", "replicas": 1}, {"name": "decode", "replicas": 1}]
    # What is lost of the minimum before is a loss, from then on.
    for name in [name for name in world.pods if "-decode-" in name]:
        world.vanish(name)
    act(world)
    lost_at = of_unit(world)["belowMinimumSince"]
    assert condition(world, "Escalating") == ("True", "TerminationDelay")
    assert bound(world)
    wait(world)
    assert not bound(world), lost_at


def test_the_raised_minimum_counts_once_it_was_met() -> None:
    world = serving(llama(minReplicas=1))
    world.inference = llama(minReplicas=3)
    act(world)
    assert of_unit(world)["metMinimum"][0] == {"name": "prefill", "replicas": 3}
    world.vanish(next(name for name in world.pods if "prefill-1" in name))
    wait(world)
    assert not bound(world)


def test_a_rollout_that_may_go_below_the_minimum_is_no_loss() -> None:
    update = {"maxSurge": 0, "maxUnavailable": 2}
    world = serving(llama(minReplicas=3, update=update))
    world.inference = llama(minReplicas=3, update=update, template=template(nodeSelector={"new": "yes"}))
    wait(world)
    assert len([name for name in bound(world) if "prefill" in name]) == 1
    assert of_unit(world)["metMinimum"][0] == {"name": "prefill", "replicas": 1}


def test_what_an_evacuation_may_take_is_no_loss() -> None:
    world = serving(llama(minReplicas=3, disruption={"allowBelowMinimum": True}))
    leaving = next(name for name in world.pods if "prefill" in name)
    world.notices[world.pods[leaving].spec.node_name or ""] = Notice("cordoned")
    wait(world)
    assert of_unit(world)["metMinimum"][0] == {"name": "prefill", "replicas": 2}
    refuse(world)
    wait(world)
    assert leaving not in bound(world), "its successor waits for its room"
    world.notices.clear()
    wait(world)
    assert len(bound(world)) == 3
    assert condition(world, "Escalating") is None
