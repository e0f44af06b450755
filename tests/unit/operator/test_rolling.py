"""Rollouts through the whole plan: pods in, pods out, and what the status says meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from builders.inferences import llama, template
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.model import podstate
from unit.operator.answering import prove, question_of, refuse
from unit.operator.world import World

NEW = template(nodeSelector={"new": "yes"})


@pytest.fixture
def world() -> World:
    made = World.settled(llama())
    made.serve()
    made.tell()
    return made


def ready(world: World, name: str) -> int:
    """Replicas all of whose pods are Ready."""
    states = world.plan().intent.states.get(0, {}).get(name, {})
    return sum(state.is_ready for state in states.values())


def condition(world: World, kind: str) -> tuple[str, str, str]:
    found = next(each for each in world.tell()["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def go_on(world: World, passes: int) -> None:
    """So many passes, after each of which everything gets ready."""
    for _ in range(passes):
        world.act()
        world.serve()


def test_who_waits_for_a_set_that_nobody_asks_for_any_more_is_let_go(world: World) -> None:
    """A member was lost while the set was being placed. Its successor has the mark, the groups soon have it no more."""
    world.inference = llama({"template": NEW}, {"template": NEW})
    world.act()

    def of(prefix: str) -> list[str]:
        return [name for name, pod in world.pods.items() if (pod.spec.hostname or "").startswith(prefix)]

    first, second = of("0-prefill-2")
    world.pin(first)
    world.vanish(*of("0-decode-3"))
    world.act()
    (waiting,) = of("0-decode-3")
    assert world.pods[waiting].metadata.label(names.LABEL_TOGETHER)
    world.pin(second)
    world.act()
    assert world.pods[waiting].metadata.label(names.LABEL_TOGETHER), "the scheduler process is placing them"
    for name in (first, second):
        world.bind(name)
    world.act()
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


def test_an_answer_counts_only_for_the_pods_that_were_asked_about(world: World) -> None:
    world.inference = llama(decode={"template": NEW})
    world.act(2)
    prove(world)
    victim = question_of(world).predecessors["decode"].serving[0]  # type: ignore[union-attr] # it asks
    lost = next(name for name, pod in world.pods.items() if pod.spec.hostname == f"0-decode-{victim}-0")
    world.vanish(lost)
    world.act(3)
    assert ready(world, "decode") == 2, "what was lost, and nothing beside it"


def test_an_answer_when_kube_scheduler_has_refused_the_successor_meanwhile_counts_no_more() -> None:
    """One of its pods was pinned since: what the scheduler process found before is not what it lacks."""
    world = World.serving(llama(decode={"size": 2, "replicas": 3}))
    world.inference = llama(decode={"size": 2, "replicas": 3, "template": NEW, "leaderTemplate": NEW})
    world.act(2)
    prove(world)
    first, _ = (name for name, pod in world.pods.items() if podstate.is_gated(pod))
    words = "0/9 nodes are available: 9 node(s) had volume node affinity conflict"
    refused = core.Condition("PodScheduled", "False", "Unschedulable", words)
    world.change(first, spec={"scheduling_gates": None}, status={"conditions": (refused,)})
    world.act()
    assert ready(world, "decode") == 3
    assert words in world.status["rollout"]["hold"]["message"]


def test_updated_when_a_surge_has_no_nodes_counts_what_has_them(world: World) -> None:
    """Successors beside what is wanted are no replicas of the new revision before they have their places."""
    world.inference = llama({"template": NEW}, {"template": NEW})
    world.act(2)
    refuse(world)
    assert sum(map(podstate.is_gated, world.pods.values())) == 3, "a successor of each role waits"
    assert world.tell()["summary"]["updated"] == "0/5"
    for name, pod in list(world.pods.items()):
        if podstate.is_gated(pod):
            world.bind(name)
    assert world.tell()["summary"]["updated"] == "2/5"


def test_surplus_when_the_pin_of_it_is_denied_says_so(world: World) -> None:
    """Nothing is rolled, and capacity is not what it lacks."""
    world.inference = llama(decode={"replicas": 4})
    world.act()
    key = (COMPOSITE_POD_GROUPS.type, "llama-0")
    words = "the API server denied the pin of pod x: policy nodes says no"
    refused = core.Condition(names.SURPLUS_ADMITTED, "False", names.REASON_DENIED, words)
    status = world.objects[key].status
    conditions = (*(status.conditions or ()), refused)
    world.objects[key] = msgspec.structs.replace(
        world.objects[key], status=msgspec.structs.replace(status, conditions=conditions)
    )
    _, reason, message = condition(world, "Ready")
    assert reason != names.REASON_INFEASIBLE
    assert words in message
