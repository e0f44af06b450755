"""Roles that an autoscaler sets the number of replicas of, through the whole plan."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import inferences
from builders.inferences import inference, labels, role, role_names
from covey.api.inference import MOST_PODS, DisaggregatedInference
from covey.compile.identity import scaler_name
from unit.operator.world import World

EXTERNAL = {"scaling": {"mode": "External"}}


def llama(replicas: int = 2, prefill: dict[str, Any] | None = None, **spec: Any) -> DisaggregatedInference:
    """Units whose prefill replicas an autoscaler sets."""
    scaled = {"replicas": 3, "size": 1, **EXTERNAL, **(prefill or {})}
    return inferences.llama(scaled, {"replicas": 1, "size": 2}, replicas=replicas, **spec)


def settled(resource: DisaggregatedInference) -> World:
    world = World(resource)
    settle(world)
    return world


def settle(world: World) -> None:
    world.settle()
    world.tell()
    world.settle()


def counts(world: World, role_name: str = "prefill") -> dict[int, int]:
    """Replicas of a role by unit."""
    places = world.observe().pods
    return dict(sorted(Counter(s.unit for s in places if s.role == role_name and s.index == 0).items()))


def condition(world: World, name: str = "llama-prefill") -> dict[str, Any]:
    (found,) = world.scalers[name].status["conditions"]
    return dict(found)


def test_below_the_minimum_it_is_clamped_and_says_so() -> None:
    world = settled(llama())
    world.scale("llama-prefill", 1)
    settle(world)
    assert counts(world) == {0: 1, 1: 1}
    told = condition(world)
    assert (told["status"], told["reason"]) == ("True", "TooFewReplicas")
    limited = next(each for each in world.status["conditions"] if each["type"] == "ScalingLimited")
    assert (limited["reason"], limited["message"]) == ("TooFewReplicas", f"prefill: {told['message']}")
    assert told["message"] == (
        "1 replica is fewer than the 2 of minReplicas of the role times 2 units: it has 2 meanwhile"
    )
    world.scale("llama-prefill", 2)
    settle(world)
    assert condition(world)["status"] == "False"
    assert "ScalingLimited" not in {each["type"] for each in world.status["conditions"]}


@pytest.mark.parametrize(
    ("bounds", "asked", "total", "reason"),
    [
        ({"min": 4}, 2, 4, "TooFewReplicas"),
        ({"max": 5}, 9, 5, "TooManyReplicas"),
        ({"max": 1}, 9, 2, "TooManyReplicas"),
        ({"min": 4, "max": 5}, 5, 5, "DesiredWithinRange"),
    ],
)
def test_the_bounds_of_the_spec(bounds: dict[str, int], asked: int, total: int, reason: str) -> None:
    world = settled(llama(prefill={"scaling": {"mode": "External", **bounds}}))
    world.scale("llama-prefill", asked)
    settle(world)
    assert sum(counts(world).values()) == total
    assert condition(world)["reason"] == reason


def test_a_resource_does_not_get_more_pods_than_it_may_have() -> None:
    resource = inference(role("prefill", size=999, **EXTERNAL), role("decode", size=500), replicas=2)
    world = World(resource)
    for step in world.steps(world.plan().actions):
        if world.scalers:
            break
        step()
    world.scale("llama-prefill", MOST_PODS)
    planned = world.plan()
    assert sum(1 for _ in planned.intent.layout.slots()) <= MOST_PODS
    assert sum(len(roles["prefill"]) for roles in planned.intent.layout.units.values()) == 2 + (MOST_PODS - 2998) // 999


@given(st.lists(st.tuples(labels, role_names), min_size=2, max_size=8, unique=True))
def test_two_roles_never_share_a_name(pairs: list[tuple[str, str]]) -> None:
    found = {scaler_name(name, role_name) for name, role_name in pairs}
    assert len(found) == len(pairs)


@settings(settings.get_profile("storm"))
@given(
    st.lists(
        st.tuples(st.sampled_from(["scale", "units", "lose", "crash", "serve", "delete"]), st.integers(0, 9)),
        max_size=12,
    )
)
def test_whatever_happens_there_are_as_many_as_are_asked_for(happened: list[tuple[str, int]]) -> None:
    world = settled(llama())
    asked, units = 6, 2
    for kind, number in happened:
        names = sorted(world.pods)
        match kind:
            case "scale":
                asked = number
                world.scale("llama-prefill", asked)
            case "units":
                units = number % 4
                world.inference = llama(replicas=units)
            case "lose" if names:
                world.fail(names[number % len(names)])
            case "delete" if names:
                world.delete(names[number % len(names)])
            case "serve":
                for name in names:
                    world.bind(name)
                    world.ready(name)
            case "crash":
                world.crash(number)
    settle(world)
    found = counts(world)
    assert world.scalers["llama-prefill"].replicas == asked
    assert len(found) == (units if max(asked, units) else 0)
    assert sum(found.values()) == (max(asked, units) if units else 0)
    assert max(found.values(), default=0) - min(found.values(), default=0) <= 1
    standing = [pod for pod in world.pods.values() if pod.metadata.label("covey.dev/unit-leader")]
    assert len(standing) == units
