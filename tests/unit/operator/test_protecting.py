"""Pods go from the budget of a former release to that of their namespace, and never have both."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.compile import network
from unit.operator.budgets import budgets_of
from unit.operator.world import World

FORMER = "llama-gang"


def wanted(**router: Any) -> DisaggregatedInference:
    return inference(role("prefill", size=2), role("decode"), role("router", **{"minReplicas": 0, **router}))


@pytest.fixture
def world() -> World:
    """A resource that serves."""
    return World.serving(wanted())


def budgets(world: World) -> dict[str, int]:
    """How many pods each budget selects."""
    found = [name for pod in world.pods.values() for name in budgets_of(pod, world.objects, world.shared)]
    return {name: found.count(name) for name in found}


def stored(world: World) -> set[str]:
    return {name for kind, name in (*world.objects, *world.shared) if kind.startswith(network.KIND)}


def test_an_upgrade_goes_from_one_budget_to_the_other_step_by_step(world: World) -> None:
    world.come_from_former_release()
    assert budgets(world) == {FORMER: 3}
    # The namespace's budget is made; nothing else changes before it is seen.
    first = world.carry_out().actions
    assert not first.protect
    assert stored(world) == {FORMER, network.NAME}
    # The former one leaves alone who has the label; nobody gets the label before that is seen.
    assert not world.carry_out().actions.protect
    assert budgets(world) == {FORMER: 3}
    assert len(world.carry_out().actions.protect) == 3
    assert budgets(world) == {network.NAME: 3}
    # It goes once every pod is seen with the label.
    world.carry_out()
    assert stored(world) == {network.NAME}
    assert not world.carry_out().actions


def test_the_former_budget_stays_while_one_pod_is_its_own(world: World) -> None:
    world.come_from_former_release()
    world.carry_out()
    world.carry_out()
    first, *_ = world.plan().actions.protect
    world.label(first.pod.metadata.name, first.labels)
    world.check()
    assert budgets(world) == {FORMER: 2, network.NAME: 1}
    planned = world.plan().actions
    assert len(planned.protect) == 2
    assert not planned.delete_objects


def test_without_the_budget_of_the_namespace_pods_keep_the_former_one(world: World) -> None:
    """The API server refuses it, or somebody else has its name."""
    world.come_from_former_release()
    for _ in range(3):
        world.carry_out()
        world.shared.clear()
    assert budgets(world) == {FORMER: 3}


def test_a_pod_that_is_made_meanwhile_has_one_budget(world: World) -> None:
    world.come_from_former_release()
    lost = next(name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_ROLE) == "decode")
    world.vanish(lost)
    assert len(world.carry_out().actions.create) == 1
    assert budgets(world) == {FORMER: 3}
    world.settle()
    assert budgets(world) == {network.NAME: 3}


def test_a_former_release_that_has_been_back_is_made_good(world: World) -> None:
    """It has made its budget over pods that have the label already."""
    labelled = dict(world.pods)
    world.come_from_former_release()
    world.pods = labelled
    world.carry_out()
    world.check()
    world.settle()
    assert stored(world) == {network.NAME}


@pytest.mark.parametrize("is_former", [False, True])
def test_the_label_follows_the_minimum(world: World, *, is_former: bool) -> None:
    if is_former:
        world.come_from_former_release()
    world.settle()
    world.inference = wanted(minReplicas=1)
    world.settle()
    assert budgets(world) == {network.NAME: 4}
    world.inference = wanted()
    world.settle()
    assert budgets(world) == {network.NAME: 3}
    assert not [pod for pod in world.pods.values() if pod.metadata.deletion_timestamp]


def test_what_is_suspended_has_neither(world: World) -> None:
    world.come_from_former_release()
    world.inference = inference(role("decode"), suspend=True)
    actions = world.carry_out().actions
    assert FORMER not in stored(world)
    assert not any(body["kind"] == network.KIND for level in actions.apply for body in level)
