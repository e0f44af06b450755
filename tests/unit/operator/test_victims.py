"""Who goes when there are too many: what is lost least, and what frees most room."""

from __future__ import annotations

from collections.abc import Callable
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


def pods(world: World, replica: int, role_name: str = "prefill", unit: int = 0) -> list[str]:
    prefix = f"{unit}-{role_name}-{replica}-"
    return sorted(name for name, pod in world.pods.items() if (pod.spec.hostname or "").startswith(prefix))


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


def unbound(world: World, name: str) -> None:
    world.change(name, spec={"node_name": None}, status={"conditions": ()})


def gated(world: World, name: str) -> None:
    world.change(name, spec={"node_name": None, "scheduling_gates": gates(world)}, status={"conditions": ()})


def gates(world: World) -> Any:
    fresh = World.settled(world.inference)
    return next(iter(fresh.pods.values())).spec.scheduling_gates


def test_the_highest_number_goes_where_nothing_tells_them_apart(world: World) -> None:
    assert left(world, llama(3, 1)) == {0, 1, 2}


@pytest.mark.parametrize(("worse", "better"), [(unbound, unready), (gated, unready), (gated, unbound)])
def test_who_has_come_less_far_goes_first_whatever_it_costs(
    world: World, worse: Callable[[World, str], None], better: Callable[[World, str], None]
) -> None:
    better(world, pods(world, 3)[0])
    better(world, pods(world, 3)[1])
    # One pod is enough: a replica is whole or nothing.
    worse(world, pods(world, 0)[0])
    costs(world, pods(world, 0), "1000", "1000")
    assert left(world, llama(3, 1)) == {1, 2, 3}


def test_the_lowest_sum_of_deletion_costs_goes_first(world: World) -> None:
    costs(world, pods(world, 1), "-5")
    costs(world, pods(world, 2), "-10", "7")
    costs(world, pods(world, 3), "100", "-101")
    assert left(world, llama(3, 1)) == {0, 2, 3}
    assert left(world, llama(2, 1)) == {0, 3}


@pytest.mark.parametrize("nonsense", ["", "cheap", "1.5", "+3", "-", "--3", "99999999999", "²"])
def test_a_cost_that_kubernetes_would_not_take_is_none(world: World, nonsense: str) -> None:
    costs(world, pods(world, 0), nonsense)
    assert left(world, llama(3, 1)) == {0, 1, 2}


def test_a_replica_that_is_alone_in_its_rack_goes_first(world: World) -> None:
    for replica, rack in ((0, "r1"), (1, "r2"), (2, "r1"), (3, "r1")):
        lie(world, pods(world, replica), "b1", rack, f"h{replica}")
    assert left(world, llama(3, 1)) == {0, 2, 3}


def test_pods_of_other_roles_keep_a_rack_from_being_free(world: World) -> None:
    for replica, rack in ((0, "r1"), (1, "r2"), (2, "r1"), (3, "r1")):
        lie(world, pods(world, replica), "b1", rack, f"h{replica}")
    lie(world, pods(world, 0, "decode"), "b1", "r2", "h9")
    assert left(world, llama(3, 1)) == {0, 2, 3}
    world = serving(llama(4, 1))
    for replica, rack in ((0, "r1"), (1, "r2"), (2, "r3"), (3, "r1")):
        lie(world, pods(world, replica), "b1", rack, f"h{replica}")
    lie(world, pods(world, 0, "decode"), "b1", "r2", "h9")
    assert left(world, llama(3, 1)) == {0, 1, 3}


def test_those_who_go_together_come_from_one_rack(world: World) -> None:
    for replica, rack in ((0, "r1"), (1, "r2"), (2, "r1"), (3, "r2")):
        lie(world, pods(world, replica), "b1", rack, f"h{replica}")
    assert left(world, llama(2, 1)) == {0, 2}


def test_racks_of_one_name_in_two_blocks_are_two(world: World) -> None:
    for replica, (block, rack) in enumerate((("b1", "r1"), ("b1", "r1"), ("b2", "r1"), ("b1", "r2"))):
        lie(world, pods(world, replica), block, rack, f"h{replica}")
    lie(world, pods(world, 0, "decode"), "b1", "r2", "h9")
    assert left(world, llama(3, 1)) == {0, 1, 3}


def test_units_are_compared_the_same_way() -> None:
    resource = llama(1, 1, replicas=4)
    world = serving(resource)
    unready(world, pods(world, 0, unit=1)[0])
    costs(world, pods(world, 0, unit=1), "50")
    costs(world, pods(world, 0, unit=2), "5")
    costs(world, pods(world, 0, "decode", unit=2), "-7")

    def units(count: int) -> set[int]:
        world.inference = llama(1, 1, replicas=count)
        world.settle()
        return {slot.unit for slot in world.observe().pods}

    assert units(3) == {0, 2, 3}
    assert units(2) == {0, 3}
    assert units(1) == {0}


def test_unit_that_waits_whole_when_another_one_lacks_a_pod_goes_first() -> None:
    """It has all its pods and no node; the other one has all nodes but one."""
    world = serving(llama(2, 1, replicas=2))
    for name in [
        name for role in ("prefill", "decode") for number in (0, 1) for name in pods(world, number, role, unit=1)
    ]:
        gated(world, name)
    for name in pods(world, 0, "decode"):
        world.delete(name)
    world.inference = llama(2, 1, replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0}


def test_unit_that_serves_below_its_minimum_outlives_one_that_serves_nobody() -> None:
    world = serving(llama(2, 1, replicas=2))
    for name in pods(world, 1):
        world.delete(name)
    for name in pods(world, 0, "decode", unit=1):
        unready(world, name)
    world.inference = llama(2, 1, replicas=1)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0}


def test_the_unit_that_frees_a_block_goes_first() -> None:
    world = serving(llama(1, 1, replicas=3))
    for unit, block in ((0, "b1"), (1, "b2"), (2, "b1")):
        for name in (*pods(world, 0, unit=unit), *pods(world, 0, "decode", unit=unit)):
            lie(world, [name], block, f"r{unit}", f"h-{name}")
    world.inference = llama(1, 1, replicas=2)
    world.settle()
    assert {slot.unit for slot in world.observe().pods} == {0, 2}


def test_who_is_going_already_is_not_counted_twice(world: World) -> None:
    world.inference = llama(3, 1)
    steps = list(world.steps(world.plan().actions))
    for step in steps:
        step()
    # Its pods terminate for a long time; nobody else goes meanwhile.
    again = world.plan()
    assert not again.actions.delete_pods
    world.inference = llama(2, 1)
    going = {item.pod.spec.hostname for item in world.plan().actions.delete_pods}
    assert going == {"0-prefill-2-0", "0-prefill-2-1"}


def test_all_victims_go_whole_and_at_once(world: World) -> None:
    world.inference = llama(1, 1)
    assert {item.pod.metadata.name for item in world.plan().actions.delete_pods} == {
        name for replica in (1, 2, 3) for name in pods(world, replica)
    }


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("rs"), st.integers(-3, 3)), min_size=5, max_size=5),
    st.integers(1, 4),
)
def test_what_is_left_is_never_cheaper_than_what_went(places: list[tuple[str, str, int]], count: int) -> None:
    world = serving(llama(5, 1))
    for replica, (block, rack, cost) in enumerate(places):
        lie(world, pods(world, replica), block, rack, f"h{replica}")
        costs(world, pods(world, replica), str(cost))
    kept = left(world, llama(count, 1))
    assert len(kept) == count
    gone = set(range(5)) - kept
    assert max(places[n][2] for n in gone) <= min(places[n][2] for n in kept)
