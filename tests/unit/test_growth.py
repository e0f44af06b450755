"""Work grows with the number of objects, not with its square: what takes twenty thousand pods has one loop to itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import pytest

from builders.inferences import inference, role
from builders.members import member
from builders.requests import make_node
from builders.steps import count_steps
from covey.admission.charges import charges
from covey.operator.plan import plan
from covey.operator.process.features import FEATURES
from covey.operator.routing.exclusive import PairingCandidate, order_turns
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from unit.admission.test_charges import made_of
from unit.admission.test_stock import ours, stock
from unit.operator.test_capacity import REQUESTS, Asking, gang, refused
from unit.operator.test_elastic_asks import asking, topology
from unit.operator.test_exclusive import NEW, OLD, PAIRINGS
from unit.operator.test_native import Native
from unit.operator.world import World

Work = Callable[[], Any]
ROLES: Final = (role("prefill", replicas=2, size=2), role("decode", replicas=2, size=2))


def one_pass(world: World) -> Work:
    """What a pass finds out and decides, and what the status then says."""

    def work() -> None:
        verdict, observed = world.judge(), dataclasses.replace(world.observe())
        planned = plan(verdict, observed, world.status, features=FEATURES)
        units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
        compute(verdict, observed, planned, units, world.status, "2026-01-01T00:00:00Z")

    return work


def asked_for(world: Asking) -> Work:
    world.autoscaler = REQUESTS
    return world.plan


def many_units(count: int) -> Work:
    return one_pass(World.settled(inference(*ROLES, replicas=count)))


def many_native_units(count: int) -> Work:
    world = Native(*ROLES, replicas=count)
    world.settle()
    return one_pass(world)


def many_replicas(count: int) -> Work:
    return one_pass(World.settled(inference(role("decode", replicas=count))))


def many_units_that_lack_a_pod(count: int) -> Work:
    world = World.serving(inference(*ROLES, replicas=count))
    for unit in range(count):
        del world.pods[min(name for name in world.pods if name.startswith(f"{world.inference.metadata.name}-{unit}-"))]
    return one_pass(world)


def parts_to_ask_for(count: int) -> Work:
    return asked_for(refused(gang("decode", count, topology={"required": "rack"}), capacity=None))


def pods_in_one_level_to_ask_for(count: int) -> Work:
    return asked_for(refused(gang("decode", count), capacity=None, topology={"required": "rack"}))


def domains_that_may_come(count: int) -> Work:
    racks = (f"r{number}" for number in range(count))
    return asking(gang("decode", 4), elastic=topology(*racks, nodes=8 * count)).plan


def pods_of_an_exclusive_switch(count: int) -> Work:
    candidates = [
        PairingCandidate(serves, revision, revision.endswith("1"), ready=True, pod=member(serves, number, gpus=1))
        for serves, revision in (*OLD, *NEW)
        for number in range(count)
    ]
    return lambda: order_turns(candidates, PAIRINGS["new"], PAIRINGS)


def replicas_with_held_room(count: int) -> Work:
    unit, ground = made_of([[("lost", True), ("bound", True)]] * count)
    return lambda: charges(unit, ground)


def pods_to_house(count: int) -> Work:
    found = stock(*(make_node(f"n{number}") for number in range(count)))
    for number in range(count + count // 2):
        found.set_pod(ours(f"p{number}", gpus=8))
    return lambda: found.settle(0.0)


@pytest.mark.parametrize(
    "grown",
    [
        many_units,
        many_native_units,
        many_replicas,
        many_units_that_lack_a_pod,
        parts_to_ask_for,
        pods_in_one_level_to_ask_for,
        domains_that_may_come,
        pods_of_an_exclusive_switch,
        replicas_with_held_room,
        pods_to_house,
    ],
)
def test_work_grows_in_proportion_when_there_are_more(grown: Callable[[int], Work]) -> None:
    grown(2)()  # what is remembered for good is found out now
    few, many = count_steps(grown(10)), count_steps(grown(40))
    assert many <= 6 * few, f"{few} steps for 10, {many} for 40"
