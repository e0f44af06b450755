"""Rollouts that fail: a deadline that stands still while nothing can move, and the revision that is gone back to."""

from __future__ import annotations

from typing import Any

from covey.api import core
from covey.operator.observe.rollout_clock import RolloutClock
from unit.operator.test_rolling import NEW, condition, llama
from unit.operator.world import World

KEY = ("default", "llama")
SETTINGS = {"progressDeadlineSeconds": 600, "onFailure": "Rollback"}


def serving(**decode: object) -> World:
    world = World.settled(llama(decode=dict(decode), rollout=SETTINGS))
    world.serve()
    world.tell()
    return world


def draining() -> World:
    """On a full cluster: the first old replica makes room, and drains for longer than the deadline."""
    decode = {"drainSeconds": 3600, "minReplicas": 1}
    world = serving(**decode)
    for name in world.pods:
        runs = core.Condition("ContainersReady", "True")
        world.change(name, status={"conditions": (core.Condition("Ready", "True"), runs)})
    update = {"maxSurge": 0, "maxUnavailable": 1}
    world.inference = llama(decode={**decode, "template": NEW, "update": update}, rollout=SETTINGS)
    world.act(2)
    return world


def test_a_pod_that_never_goes_stops_the_clock_no_longer_than_its_time() -> None:
    world = draining()
    world.now += 3600 + 60
    world.tell()
    world.now += 600
    assert any(each.failed for each in world.plan().actions.mark)


def test_the_clock_of_a_resource_runs_from_the_end_of_what_was_leaving() -> None:
    clock = RolloutClock()
    clock.begin(100.0)
    assert clock.since(KEY, 150.0) == 100
    clock.note(KEY, 200.0, stands=True)
    assert clock.since(KEY, 300.0) == 300
    clock.note(KEY, 300.0, stands=False)
    assert clock.since(KEY, 400.0) == 300
    clock.begin(500.0)
    assert clock.since(KEY, 600.0) == 500
    clock.forget(KEY)


ROLLBACK = {"progressDeadlineSeconds": 60, "onFailure": "Rollback"}


def complete_world() -> World:
    world = World.settled(llama(rollout=ROLLBACK))
    world.serve()
    world.tell()
    return world


def ask(world: World, wanted: dict[str, Any] | None) -> None:
    world.inference = llama(decode={"template": wanted} if wanted else {}, rollout=ROLLBACK)


def test_replicas_of_revisions_without_a_record_are_told_and_not_counted_as_updated() -> None:
    world = complete_world()
    world.revisions = []
    world.status.pop("completeRevision")
    ask(world, NEW)
    world.act(3)
    status, reason, message = condition(world, "Progressing")
    assert (status, reason) == ("Unknown", "RevisionUnknown")
    assert "3 of decode (" in message
    assert condition(world, "Ready")[:2] == ("False", "RevisionUnknown")
    assert world.status["summary"]["updated"] == "2/5"
    assert "completeRevision" not in world.status
    # Each that is deleted is made anew, of the revision in force.
    for replica in range(3):
        for name in [name for name in world.pods if f"-decode-{replica}-" in name]:
            world.delete(name)
        world.act(2)
        world.serve()
    assert condition(world, "Progressing")[:2] == ("True", "Complete")
