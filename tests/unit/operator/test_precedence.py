"""The order in which pods are created, where not all of them can be."""

from __future__ import annotations

from collections.abc import Iterable

from builders.inferences import inference, role
from covey.operator.model.actions import CreatePod, Precedence
from unit.operator.world import World

RUNNING_MINIMUM, MINIMUM, REPLACEMENT, SURPLUS, SURGE = Precedence


def order(items: Iterable[CreatePod]) -> list[tuple[Precedence, str]]:
    """Precedence and replica of each, in order, each replica once."""
    found = ((item.precedence, f"{item.slot.unit}-{item.slot.role}-{item.slot.replica}") for item in items)
    return list(dict.fromkeys(found))


def lose(world: World, *replicas: str) -> None:
    for name, pod in list(world.pods.items()):
        if (pod.spec.hostname or "").rpartition("-")[0] in replicas:
            world.vanish(name)


def test_the_minimum_of_every_unit_comes_before_any_surplus() -> None:
    roles = (role("prefill", replicas=3, minReplicas=1), role("decode", replicas=2, minReplicas=1))
    world = World(inference(*roles, replicas=2))
    assert order(world.plan().actions.create) == [
        (MINIMUM, "0-prefill-0"),
        (MINIMUM, "0-decode-0"),
        (MINIMUM, "1-prefill-0"),
        (MINIMUM, "1-decode-0"),
        (SURPLUS, "0-prefill-1"),
        (SURPLUS, "0-prefill-2"),
        (SURPLUS, "0-decode-1"),
        (SURPLUS, "1-prefill-1"),
        (SURPLUS, "1-prefill-2"),
        (SURPLUS, "1-decode-1"),
    ]


def test_a_minimum_that_runs_comes_before_one_that_has_never_run() -> None:
    world = World.serving(inference(role("prefill"), role("decode")))
    world.inference = inference(role("prefill"), role("decode"), replicas=2)
    lose(world, "0-decode-0")
    assert order(world.plan().actions.create) == [
        (RUNNING_MINIMUM, "0-decode-0"),
        (MINIMUM, "1-prefill-0"),
        (MINIMUM, "1-decode-0"),
    ]


def test_a_lost_replica_beyond_the_minimum_comes_before_growth() -> None:
    world = World.serving(inference(role("prefill", replicas=2, minReplicas=1), role("decode", minReplicas=1)))
    world.inference = inference(role("prefill", replicas=3, minReplicas=1), role("decode", minReplicas=1))
    lose(world, "0-prefill-0")
    assert order(world.plan().actions.create) == [(REPLACEMENT, "0-prefill-0"), (SURPLUS, "0-prefill-2")]


def test_a_surge_comes_last() -> None:
    """As where a full quota lets one pod in: what is lost of a minimum is not to wait for a rollout."""
    roles = (role("prefill", replicas=2, minReplicas=1), role("decode", minReplicas=1))
    world = World.serving(inference(*roles))
    changed = {"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}}
    world.inference = inference({**roles[0], "template": changed}, roles[1])
    lose(world, "0-decode-0")
    created = order(world.plan().actions.create)
    assert created[0] == (RUNNING_MINIMUM, "0-decode-0")
    assert {precedence for precedence, _ in created[1:]} == {SURGE}
