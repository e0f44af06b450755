"""Minimums that were raised: what a unit has lost comes back before they are met."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from unit.operator.world import World


def resource(minimum: int, replicas: int = 3, **spec: Any) -> DisaggregatedInference:
    decode = role("decode", replicas=replicas, minReplicas=minimum)
    return inference(role("prefill"), decode, **spec)


def raised(minimum: int = 3, **spec: Any) -> World:
    """A resource of one prefill and two decode replicas that serve; then the minimum of decode is raised, and nothing comes."""
    world = World.serving(resource(1, replicas=2, **spec))
    world.inference = resource(minimum, **spec)
    world.settle()
    return world


def minimums(world: World, role_name: str = "decode") -> tuple[int, str | None]:
    """The minimum that a role's group has, and the one that it notes as met."""
    for owned in world.objects.values():
        labels = owned.metadata.labels or {}
        policy = owned.spec.get("schedulingPolicy")
        if policy and labels.get(names.LABEL_ROLE) == role_name and names.LABEL_REPLICA not in labels:
            gang = policy.get("gang", {"minCount": 0})
            return next(iter(gang.values())), owned.metadata.annotation(names.ANNOTATION_MET_MINIMUM)
    raise LookupError(role_name)


def lose(world: World, *hosts: str) -> None:
    for host in hosts:
        world.vanish(world.name_at(host))
    world.settle()


def test_minimum_when_it_is_raised_is_asked_for_and_the_met_one_noted() -> None:
    assert minimums(raised()) == (3, "2")


@pytest.mark.parametrize("lost", [("0-decode-0-0",), ("0-prefill-0-0",), ("0-decode-0-0", "0-prefill-0-0")])
def test_minimum_when_it_is_raised_and_something_is_lost_is_the_met_one_until_that_is_back(
    lost: tuple[str, ...],
) -> None:
    world = raised()
    lose(world, *lost)
    assert minimums(world) == (2, None)
    world.forget()
    world.settle()
    assert minimums(world) == (2, None)
    world.serve(*lost)
    world.settle()
    assert minimums(world) == (3, "2")


def test_minimum_when_it_is_raised_after_a_loss_is_the_met_one_until_that_is_back() -> None:
    world = World.serving(resource(2, replicas=2))
    lose(world, "0-decode-0-0")
    world.inference = resource(3)
    world.settle()
    assert minimums(world) == (2, None)
    world.serve("0-decode-0")
    world.settle()
    assert minimums(world) == (3, "2")


def test_minimum_when_it_is_met_is_noted_no_more_and_is_that_of_the_next_loss() -> None:
    world = raised()
    world.serve()
    world.settle()
    assert minimums(world) == (3, None)
    lose(world, "0-decode-0-0")
    assert minimums(world) == (3, None)


def test_minimum_when_it_is_raised_and_a_further_replica_came_keeps_that_too() -> None:
    world = World.serving(resource(1, replicas=2))
    world.inference = resource(5, replicas=5)
    world.settle()
    world.serve("0-decode-2")
    world.settle()
    assert minimums(world) == (5, "3")
    lose(world, "0-decode-0-0")
    assert minimums(world) == (3, None)


def test_minimum_when_it_is_raised_of_a_unit_without_places_is_whole() -> None:
    world = World.settled(resource(2, replicas=2))
    world.inference = resource(3)
    world.settle()
    assert minimums(world) == (3, None)
    world = raised()
    lose(world, "0-prefill-0-0", "0-decode-0-0", "0-decode-1-0")
    assert minimums(world) == (3, None)


def test_minimum_when_it_is_lowered_again_is_what_is_asked_for() -> None:
    world = raised()
    lose(world, "0-decode-0-0")
    world.inference = resource(1)
    world.settle()
    assert minimums(world) == (1, None)


def test_role_when_it_joins_the_gang_and_something_is_lost_stays_outside_until_that_is_back() -> None:
    def with_router(minimum: int) -> DisaggregatedInference:
        return inference(role("decode", replicas=2, minReplicas=2), role("router", minReplicas=minimum))

    def roles_of_gang() -> list[Any]:
        roots = [owned for (kind, _), owned in world.objects.items() if kind.startswith("CompositePodGroup")]
        return [root.spec["schedulingPolicy"]["gang"]["minGroupCount"] for root in roots]

    world = World.settled(with_router(0))
    world.serve("0-decode")
    world.inference = with_router(1)
    world.settle()
    assert (minimums(world, "router"), roles_of_gang()) == ((1, "0"), [2])
    lose(world, "0-decode-0-0")
    assert (minimums(world, "router"), roles_of_gang()) == ((0, None), [1])
    world.serve("0-decode")
    world.settle()
    assert (minimums(world, "router"), roles_of_gang()) == ((1, "0"), [2])


def test_pods_when_a_minimum_is_raised_or_kept_stay() -> None:
    world = raised()
    before = set(world.pods)
    lose(world, "0-decode-0-0")
    assert len(before - set(world.pods)) == 1
