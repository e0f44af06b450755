"""Rollouts through the whole plan: pods in, pods out, and what the status says meanwhile."""

from __future__ import annotations

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


def go_on(world: World, passes: int) -> None:
    """So many passes, after each of which everything gets ready."""
    for _ in range(passes):
        act(world)
        serve(world)


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


def test_what_is_of_an_unknown_revision_is_not_replaced_because_of_that(world: World) -> None:
    (stored,) = world.revisions
    world.revisions = [StoredRevision(stored.name, stored.number, None)]
    world.inference = llama(decode={"template": NEW})
    before = dict(world.pods)
    world.settle()
    assert world.pods == before


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
