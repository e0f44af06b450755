"""The deadline of a rollout stands still while nobody leads, and while something is on its way out."""

from __future__ import annotations

from covey.api import core
from covey.operator.observe.nodes import RolloutClock
from unit.operator.test_rolling import NEW, act, condition, llama, serve
from unit.operator.world import World

KEY = ("default", "llama")
SETTINGS = {"progressDeadlineSeconds": 600, "onFailure": "Rollback"}


def serving(**decode: object) -> World:
    world = World.settled(llama(decode=dict(decode), rollout=SETTINGS))
    serve(world)
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
    act(world, 2)
    return world


def test_an_operator_that_was_away_does_not_fail_a_rollout_in_its_first_pass() -> None:
    world = serving()
    world.inference = llama(decode={"template": NEW}, rollout=SETTINGS)
    act(world)
    world.now += 900
    world.forget()
    assert not world.plan().actions.mark
    assert world.plan().again is not None
    world.now += 599
    assert not world.plan().actions.mark
    world.now += 1
    assert [each.failed for each in world.plan().actions.mark] == [True]


def test_a_replica_that_drains_for_longer_than_the_deadline_fails_nothing() -> None:
    world = draining()
    for _ in range(6):
        world.now += 590
        planned = world.plan()
        assert not any(each.failed for each in planned.actions.mark)
    world.now += 100
    # It is gone: from now on the new revision has its time.
    act(world, 3)
    world.now += 599
    assert not any(each.failed for each in world.plan().actions.mark)
    world.now += 1
    assert any(each.failed for each in world.plan().actions.mark)


def test_a_pod_that_never_goes_stops_the_clock_no_longer_than_its_time() -> None:
    world = draining()
    world.now += 3600 + 60
    world.tell()
    world.now += 600
    assert any(each.failed for each in world.plan().actions.mark)


def test_a_rollout_that_has_failed_stays_so_when_another_operator_takes_over() -> None:
    world = serving()
    world.inference = llama(decode={"template": NEW}, rollout={"progressDeadlineSeconds": 600})
    act(world)
    world.now += 601
    act(world)
    world.forget()
    assert condition(world, "Progressing")[:2] == ("False", "ProgressDeadlineExceeded")


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
