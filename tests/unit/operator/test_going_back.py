"""The revision that a failed rollout goes back to: one that was once complete."""

from __future__ import annotations

from typing import Any

from builders.inferences import template
from covey.operator.model.observed import current
from unit.operator.test_rolling import NEW, act, condition, go_on, llama, roll, serve
from unit.operator.world import World

NEWER = template(nodeSelector={"newer": "yes"})
NEWEST = template(nodeSelector={"newest": "yes"})
SETTINGS = {"progressDeadlineSeconds": 60, "onFailure": "Rollback"}


def complete_world() -> World:
    world = World.settled(llama(rollout=SETTINGS))
    serve(world)
    world.tell()
    return world


def ask(world: World, wanted: dict[str, Any] | None) -> None:
    world.inference = llama(decode={"template": wanted} if wanted else {}, rollout=SETTINGS)


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
    world.inference = llama(prefill={"minReplicas": 2}, decode={"template": NEW}, rollout=SETTINGS)
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
