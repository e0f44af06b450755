"""Rollouts that fail: a deadline that stands still while nothing can move, and the revision that is gone back to."""

from __future__ import annotations

from typing import Any

from builders.inferences import template
from covey.api import core
from covey.operator.model.observed import current
from covey.operator.observe.nodes import RolloutClock
from unit.operator.test_rolling import NEW, act, condition, go_on, llama, roll, serve
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


NEWER = template(nodeSelector={"newer": "yes"})
ROLLBACK = {"progressDeadlineSeconds": 60, "onFailure": "Rollback"}


def complete_world() -> World:
    world = World.settled(llama(rollout=ROLLBACK))
    serve(world)
    world.tell()
    return world


def ask(world: World, wanted: dict[str, Any] | None) -> None:
    world.inference = llama(decode={"template": wanted} if wanted else {}, rollout=ROLLBACK)


def selector_in_force(world: World) -> dict[str, str] | None:
    accepted = world.judge().accepted
    assert accepted is not None
    selector: dict[str, str] | None = accepted.revision.roles["decode"].rolled["template"]["spec"].get("nodeSelector")
    return selector


def test_it_goes_back_to_the_newest_revision_that_was_complete_not_to_one_that_never_served() -> None:
    world = complete_world()
    ask(world, NEW)
    act(world, 4)
    world.now += 30
    ask(world, NEWER)
    act(world, 4)
    world.now += 61
    act(world, 4)
    assert world.judge().failed
    assert selector_in_force(world) is None
    go_on(world, 6)
    pods = [pod for found in world.observe().pods.values() if (pod := current(found)) is not None]
    assert {str(pod.spec.node_selector) for pod in pods} == {"None"}


def test_a_revision_that_was_complete_is_known_when_it_does_not_serve_any_more() -> None:
    world = complete_world()
    ask(world, NEW)
    roll(world, {"prefill": 2, "decode": 3})
    act(world)
    complete = world.status["completeRevision"]
    for name in list(world.pods):
        world.change(name, status={"conditions": None})
    world.tell()
    ask(world, NEWER)
    act(world)
    marked = [each for each in world.revisions if each.completed and each.record is not None]
    assert complete in {each.record.revision.hash for each in marked if each.record is not None}
    world.now += 61
    act(world, 2)
    assert selector_in_force(world) == {"new": "yes"}


def test_an_edit_of_a_live_field_does_not_make_it_forgotten() -> None:
    world = complete_world()
    ask(world, NEW)
    act(world)
    world.inference = llama(prefill={"minReplicas": 2}, decode={"template": NEW}, rollout=ROLLBACK)
    act(world, 3)
    ask(world, NEWER)
    act(world, 3)
    assert any(each.completed for each in world.revisions)
    world.status.pop("completeRevision")
    world.now += 61
    act(world, 2)
    assert selector_in_force(world) is None


def test_replicas_of_revisions_without_a_record_are_told_and_not_counted_as_updated() -> None:
    world = complete_world()
    world.revisions = []
    world.status.pop("completeRevision")
    ask(world, NEW)
    act(world, 3)
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
        act(world, 2)
        serve(world)
    assert condition(world, "Progressing")[:2] == ("True", "Complete")


def test_no_record_is_marked_before_another_revision_is_asked_for() -> None:
    world = complete_world()
    act(world)
    assert world.status["completeRevision"]
    assert not world.plan().actions.mark
