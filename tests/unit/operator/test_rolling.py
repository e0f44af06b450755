"""Rollouts through the whole plan: pods in, pods out, and what the status says meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import llama, template
from covey.api import constants as names
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.operator.model import podstate
from covey.operator.model.observed import StoredRevision, current
from unit.operator.answering import prove, question_of, refuse
from unit.operator.world import World

NEW = template(nodeSelector={"new": "yes"})


def serve(world: World, *prefixes: str) -> None:
    """Waiting pods (of these host names) get nodes and are Ready."""
    for name, pod in list(world.pods.items()):
        hostname = pod.spec.hostname or ""
        if not podstate.is_dead(pod) and (not prefixes or hostname.startswith(prefixes)):
            world.bind(name)
            world.ready(name)


def act(world: World, passes: int = 1) -> None:
    """So many passes; what has to go is gone after each."""
    for _ in range(passes):
        world.carry_out()
        world.tell()
        world.finish()


@pytest.fixture
def world() -> World:
    made = World.settled(llama())
    serve(made)
    made.tell()
    return made


def told(world: World) -> dict[str, set[str]]:
    """Revisions of live pods, by role."""
    found: dict[str, set[str]] = {}
    for pods in world.observe().pods.values():
        if (pod := current(pods)) is not None:
            label = pod.metadata.label(names.LABEL_REVISION) or ""
            found.setdefault(pod.metadata.label(names.LABEL_ROLE) or "", set()).add(label)
    return found


def ready(world: World, name: str) -> int:
    """Replicas all of whose pods are Ready."""
    states = world.plan().states.get(0, {}).get(name, {})
    return sum(state.is_ready for state in states.values())


def condition(world: World, kind: str) -> tuple[str, str, str]:
    found = next(each for each in world.tell()["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def roll(world: World, floors: dict[str, int], most: int = 30) -> int:
    """Pass after pass, everything getting ready, until there is nothing more to do; how many that took."""
    for count in range(most):
        planned = world.plan()
        if not planned.actions and condition(world, "Progressing")[1] == "Complete":
            return count
        for step in list(world.steps(planned.actions)):
            step()
            world.check()
            assert all(ready(world, name) >= floor for name, floor in floors.items())
        world.tell()
        world.finish()
        serve(world)
    raise AssertionError(world.tell()["rollout"])


def go_on(world: World, passes: int) -> None:
    """So many passes, after each of which everything gets ready."""
    for _ in range(passes):
        act(world)
        serve(world)


def test_a_change_of_one_role_replaces_that_role_only(world: World) -> None:
    prefill = {name for name in world.pods if "prefill" in name}
    world.inference = llama(decode={"template": NEW})
    act(world)
    assert world.status["rollout"]["outdated"] == 3
    assert condition(world, "Progressing")[:2] == ("True", "RollingOut")
    assert {slot.replica for slot in world.observe().pods if slot.role == "decode"} == {0, 1, 2, 3}
    roll(world, {"prefill": 2, "decode": 3})
    assert prefill <= world.pods.keys()
    assert len(world.pods) == 7
    assert all(pod.spec.node_selector == {"new": "yes"} for name, pod in world.pods.items() if "decode" in name)
    assert "rollout" not in world.status
    assert [each["updated"] for each in world.status["roles"]] == [2, 3]


def test_two_roles_come_together(world: World) -> None:
    world.inference = llama({"template": NEW}, {"template": NEW})
    act(world)
    (mark,) = {
        each.metadata.label(names.LABEL_TOGETHER)
        for each in world.pods.values()
        if each.metadata.label(names.LABEL_TOGETHER)
    }
    marked = {pod.spec.hostname for pod in world.pods.values() if pod.metadata.label(names.LABEL_TOGETHER) == mark}
    assert marked == {"0-prefill-2-0", "0-prefill-2-1", "0-decode-3-0"}
    assert (world.objects[POD_GROUPS.type, "llama-0-prefill-2"].metadata.labels or {})[names.LABEL_TOGETHER] == mark
    assert world.objects[COMPOSITE_POD_GROUPS.type, "llama-0-prefill"].spec["desiredGroupCount"] == 3
    roll(world, {"prefill": 2, "decode": 3})
    assert all(len(revisions) == 1 for revisions in told(world).values())
    assert names.LABEL_TOGETHER not in (world.objects[POD_GROUPS.type, "llama-0-prefill-2"].metadata.labels or {})


def test_who_waits_for_a_set_that_nobody_asks_for_any_more_is_let_go(world: World) -> None:
    """A member was lost while the set was being placed. Its successor has the mark, the groups soon have it no more."""
    world.inference = llama({"template": NEW}, {"template": NEW})
    act(world)

    def of(prefix: str) -> list[str]:
        return [name for name, pod in world.pods.items() if (pod.spec.hostname or "").startswith(prefix)]

    first, second = of("0-prefill-2")
    world.pin(first)
    world.vanish(*of("0-decode-3"))
    act(world)
    (waiting,) = of("0-decode-3")
    assert world.pods[waiting].metadata.label(names.LABEL_TOGETHER)
    world.pin(second)
    act(world)
    assert world.pods[waiting].metadata.label(names.LABEL_TOGETHER), "the scheduler process is placing them"
    for name in (first, second):
        world.bind(name)
    act(world)
    assert names.LABEL_TOGETHER not in (world.objects[POD_GROUPS.type, "llama-0-prefill-2"].metadata.labels or {})
    assert not {names.LABEL_TOGETHER, names.LABEL_TOGETHER_COUNT} & (world.pods[waiting].metadata.labels or {}).keys()
    assert not podstate.is_admitted(world.pods[waiting])


@pytest.mark.parametrize("change", [{"size": 3}, {"leaderTemplate": NEW}])
def test_size_and_leader_roll_like_any_template(world: World, change: dict[str, Any]) -> None:
    decode = {name for name in world.pods if "decode" in name}
    world.inference = llama(change)
    roll(world, {"prefill": 2, "decode": 3})
    assert decode <= world.pods.keys()
    assert sum("prefill" in name for name in world.pods) == 2 * change.get("size", 2)


def test_a_change_between_one_pod_and_several_is_held_and_named(world: World) -> None:
    before = dict(world.pods)
    world.inference = llama(decode={"size": 2, "replicas": 4})
    go_on(world, 3)
    assert before.keys() <= world.pods.keys()
    assert {slot.index for slot in world.observe().pods if slot.role == "decode"} == {0}
    assert sum("decode" in name for name in world.pods) == 4
    assert world.status["rollout"]["hold"]["gate"] == "Unsupported"
    status, reason, message = condition(world, "Progressing")
    assert (status, reason) == ("False", "Unsupported")
    assert "size of decode changes between 1 and more" in message
    world.inference = llama(decode={"size": 2}, suspend=True)
    world.settle()
    world.inference = llama(decode={"size": 2})
    world.settle()
    assert (COMPOSITE_POD_GROUPS.type, "llama-0-decode") in world.objects
    assert sum("decode" in name for name in world.pods) == 6


def test_a_reversal_keeps_what_still_serves(world: World) -> None:
    before = set(world.pods)
    world.inference = llama({"template": NEW}, {"template": NEW})
    act(world)
    serve(world)
    act(world)
    left = before & {name for name, pod in world.pods.items() if not podstate.is_dead(pod)}
    assert left < before
    world.inference = llama()
    roll(world, {"prefill": 2, "decode": 3})
    assert left <= world.pods.keys()
    assert len(world.revisions) == 2


def test_a_replica_that_is_lost_meanwhile_comes_back_as_it_was(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world)
    (lost,) = [name for name, pod in world.pods.items() if pod.spec.hostname == "0-decode-1-0"]
    revision = world.pods[lost].metadata.label(names.LABEL_REVISION)
    for vanish in (False, True):
        (lost,) = [name for name, pod in world.pods.items() if pod.spec.hostname == "0-decode-1-0"]
        if vanish:
            world.vanish(lost)
        else:
            world.fail(lost)
        act(world)
        (successor,) = [pod for pod in world.pods.values() if pod.spec.hostname == "0-decode-1-0"]
        assert successor.metadata.name != lost
        assert successor.metadata.label(names.LABEL_REVISION) == revision


def test_a_new_unit_is_of_the_new_revision_at_once(world: World) -> None:
    world.inference = llama(decode={"template": NEW}, replicas=2)
    act(world)
    selectors = {str(pod.spec.node_selector) for pod in world.pods.values() if pod.spec.hostname == "1-decode-0-0"}
    assert selectors == {str({"new": "yes"})}


def test_nothing_is_replaced_while_it_is_paused(world: World) -> None:
    world.inference = llama(decode={"template": NEW}, rollout={"paused": True})
    before = dict(world.pods)
    world.settle()
    assert world.pods == before
    assert condition(world, "Paused")[:2] == ("True", "RolloutPaused")
    assert condition(world, "Progressing")[:2] == ("Unknown", "RolloutPaused")
    assert world.status["rollout"]["hold"]["gate"] == "Paused"
    world.inference = llama(decode={"template": NEW})
    roll(world, {"prefill": 2, "decode": 3})
    assert len(told(world)["decode"]) == 1


def test_a_hold_says_what_is_waited_for_and_since_when(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world)
    since = world.now
    for _ in range(3):
        world.now += 5
        act(world)
    hold = world.status["rollout"]["hold"]
    assert hold["gate"] == "Room"
    assert hold["since"] == world.status["rollout"]["hold"]["since"]
    assert since < world.now
    for name in [name for name, pod in world.pods.items() if pod.spec.hostname == "0-decode-3-0"]:
        world.bind(name)
    act(world)
    assert world.status["rollout"]["hold"]["gate"] == "Readiness"
    assert "1 of decode" in condition(world, "Progressing")[2]


def test_without_progress_it_stops_and_goes_on_when_there_is_some(world: World) -> None:
    world.inference = llama(decode={"template": NEW}, rollout={"progressDeadlineSeconds": 60})
    act(world)
    assert world.plan().rolling.again == pytest.approx(60)  # type: ignore[union-attr] # it is there
    act(world)
    world.now += 61
    act(world)
    assert condition(world, "Progressing")[:2] == ("False", "ProgressDeadlineExceeded")
    assert world.status["rollout"]["hold"]["gate"] == "Failed"
    before = set(world.pods)
    act(world)
    assert set(world.pods) == before
    serve(world)
    roll(world, {"prefill": 2, "decode": 3})
    assert len(told(world)["decode"]) == 1


def test_a_failed_rollout_is_taken_back_and_not_tried_again(world: World) -> None:
    old = told(world)["decode"]
    settings = {"progressDeadlineSeconds": 60, "onFailure": "Rollback"}
    world.inference = llama(decode={"template": NEW}, rollout=settings)
    act(world)
    world.now += 61
    act(world)
    assert [stored.failed for stored in sorted(world.revisions, key=lambda each: each.number)] == [False, True]
    go_on(world, 4)
    assert told(world)["decode"] == old
    assert len(world.pods) == 7
    status, reason, message = condition(world, "Progressing")
    assert (status, reason) == ("False", "RolledBack")
    assert "did not get ready in time" in message
    # Whatever is asked for next is tried, and so is the same again after it.
    world.inference = llama(decode={"template": template(nodeSelector={"another": "yes"})}, rollout=settings)
    roll(world, {"prefill": 2, "decode": 3})
    assert not any(stored.failed for stored in world.revisions)
    world.inference = llama(decode={"template": NEW}, rollout=settings)
    roll(world, {"prefill": 2, "decode": 3})
    assert all(pod.spec.node_selector == {"new": "yes"} for name, pod in world.pods.items() if "decode" in name)


def test_a_partition_ends_as_complete(world: World) -> None:
    world.inference = llama(decode={"template": NEW, "update": {"partition": 2}})
    go_on(world, 6)
    target = world.status["rollout"]["toRevision"]
    message = f"partitioned roll out complete: 1 of 3 replicas of decode (partition 2) are of revision {target}"
    assert condition(world, "Progressing") == ("True", "Complete", message)
    assert world.status["rollout"]["hold"]["gate"] == "Partition"
    assert [each["updated"] for each in world.status["roles"]] == [2, 1]


def test_an_old_replica_goes_at_once_where_that_places_its_successor(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world, 2)
    prove(world)
    act(world)
    assert ready(world, "decode") == 2
    # The answer was to another question: it is asked again before another one goes.
    act(world, 3)
    assert ready(world, "decode") == 2
    serve(world)
    go_on(world, 4)
    assert len(told(world)["decode"]) == 1


def test_nothing_goes_for_a_successor_that_has_no_places_whatever_goes(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world, 2)
    refuse(world, message="decode: 7 nodes are out: 7 node selector")
    world.now += 600
    act(world, 4)
    assert ready(world, "decode") == 3
    hold = world.status["rollout"]["hold"]
    places = "1 of decode of the new revision without places"
    assert (hold["gate"], hold["message"]) == ("Room", f"{places}: decode: 7 nodes are out: 7 node selector")


def test_an_answer_counts_only_for_the_pods_that_were_asked_about(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world, 2)
    prove(world)
    victim = question_of(world).predecessors["decode"].serving[0]  # type: ignore[union-attr] # it asks
    lost = next(name for name, pod in world.pods.items() if pod.spec.hostname == f"0-decode-{victim}-0")
    world.vanish(lost)
    act(world, 3)
    assert ready(world, "decode") == 2, "what was lost, and nothing beside it"


def test_the_question_stays_while_those_go_that_were_named_and_no_longer(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world, 2)
    prove(world)
    asked = question_of(world)
    world.carry_out()
    world.tell()
    assert any(pod.metadata.deletion_timestamp for pod in world.pods.values())
    assert question_of(world) == asked, "its places are kept for it"
    world.finish()
    serve(world)
    assert question_of(world) is None


def test_a_scheduler_that_says_nothing_makes_nobody_go(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    for _ in range(5):
        act(world)
        world.now += 60
    assert ready(world, "decode") == 3


def test_what_is_of_an_unknown_revision_is_not_replaced_because_of_that(world: World) -> None:
    (stored,) = world.revisions
    world.revisions = [StoredRevision(stored.name, stored.number, None)]
    world.inference = llama(decode={"template": NEW})
    before = dict(world.pods)
    world.settle()
    assert world.pods == before


def test_a_partition_may_be_lowered_long_after(world: World) -> None:
    settings = {"progressDeadlineSeconds": 60}
    world.inference = llama(decode={"template": NEW, "update": {"partition": 2}}, rollout=settings)
    go_on(world, 6)
    world.now += 3600
    act(world)
    assert condition(world, "Progressing")[:2] == ("True", "Complete")
    world.inference = llama(decode={"template": NEW, "update": {"partition": 1}}, rollout=settings)
    go_on(world, 6)
    assert [each["updated"] for each in world.status["roles"]] == [2, 2]
    world.now += 3600
    world.inference = llama(decode={"template": NEW}, rollout=settings)
    roll(world, {"prefill": 2, "decode": 3})


def test_successors_that_wait_are_not_counted_as_updated(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    act(world, 2)
    assert world.status["roles"][1]["updated"] == 0, "the first waits for its place"
    serve(world)
    act(world)
    assert 1 <= world.status["roles"][1]["updated"] <= 3


def test_a_unit_that_is_scaled_away_in_a_rollout_is_not_told_as_rolled_out() -> None:
    world = World.settled(llama(replicas=2))
    serve(world)
    world.tell()
    world.inference = llama(decode={"template": NEW}, replicas=2)
    act(world)
    serve(world)
    world.inference = llama(decode={"template": NEW}, replicas=1)
    planned = world.plan()
    why = {item.pod.metadata.label(names.LABEL_UNIT): item.why for item in planned.actions.delete_pods}
    assert why["1"] == "scaled down"
    assert "ScaledDown" in {note.reason for note in planned.actions.notes}
