"""Who goes when there are too many: what is lost least, and what frees most room."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import llama
from covey.api.inference import DisaggregatedInference
from unit.operator.world import World

COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.fixture
def world() -> World:
    """Four replicas of two pods, all of which serve."""
    return serving(llama(4, 1))


def serving(resource: DisaggregatedInference) -> World:
    world = World.serving(resource)
    world.settle()
    return world


def left(world: World, resource: DisaggregatedInference) -> set[int]:
    """The prefill replicas that are left in unit 0."""
    world.inference = resource
    world.settle()
    return {slot.replica for slot in world.observe().pods if slot.role == "prefill" and slot.unit == 0}


def costs(world: World, names: list[str], *stated: str) -> None:
    for name, cost in zip(names, stated, strict=False):
        world.annotate(name, {COST: cost})


def lie(world: World, names: list[str], block: str, rack: str, host: str) -> None:
    for name in names:
        domains = {"block": block, "rack": rack, "host": host}
        world.annotate(name, {f"topology.covey.dev/{level}": domain for level, domain in domains.items()})


def unready(world: World, name: str) -> None:
    world.change(name, status={"conditions": ()})


def gated(world: World, name: str) -> None:
    world.change(name, spec={"node_name": None, "scheduling_gates": gates(world)}, status={"conditions": ()})


def gates(world: World) -> Any:
    fresh = World.settled(world.inference)
    return next(iter(fresh.pods.values())).spec.scheduling_gates


@pytest.mark.parametrize("nonsense", ["", "cheap", "1.5", "+3", "-", "--3", "99999999999", "²"])
def test_a_cost_that_kubernetes_would_not_take_is_none(world: World, nonsense: str) -> None:
    costs(world, world.names_of("prefill", 0, unit=0), nonsense)
    assert left(world, llama(3, 1)) == {0, 1, 2}


def test_unit_that_waits_whole_when_another_one_lacks_a_pod_goes_first() -> None:
    """It has all its pods and no node; the other one has all nodes but one."""
    world = serving(llama(2, 1, replicas=2))
    for name in [
        name for role in ("prefill", "decode") for number in (0, 1) for name in world.names_of(role, number, unit=1)
    ]:
        gated(world, name)
    for name in world.names_of("decode", 0, unit=0):
        world.delete(name)
    world.inference = llama(2, 1, replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0}


def test_unit_that_serves_below_its_minimum_outlives_one_that_serves_nobody() -> None:
    world = serving(llama(2, 1, replicas=2))
    for name in world.names_of("prefill", 1, unit=0):
        world.delete(name)
    for name in world.names_of("decode", 0, unit=1):
        unready(world, name)
    world.inference = llama(2, 1, replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0}


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("rs"), st.integers(-3, 3)), min_size=5, max_size=5),
    st.integers(1, 4),
)
def test_what_is_left_is_never_cheaper_than_what_went(places: list[tuple[str, str, int]], count: int) -> None:
    world = serving(llama(5, 1))
    for replica, (block, rack, cost) in enumerate(places):
        lie(world, world.names_of("prefill", replica, unit=0), block, rack, f"h{replica}")
        costs(world, world.names_of("prefill", replica, unit=0), str(cost))
    kept = left(world, llama(count, 1))
    assert len(kept) == count
    gone = set(range(5)) - kept
    assert max(places[n][2] for n in gone) <= min(places[n][2] for n in kept)
