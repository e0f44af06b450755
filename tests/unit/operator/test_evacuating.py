"""Why replicas cannot leave their nodes, as the condition ``EvacuationBlocked`` says it."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.operator.model.node_drain import Notice
from unit.operator.answering import refuse
from unit.operator.budgets import budgets_of
from unit.operator.world import World

NEW = template(nodeSelector={"new": "yes"})


def edit(world: World, decode: dict[str, Any], **spec: Any) -> None:
    """Two roles; of decode this is said."""
    decode = {"replicas": 3, **decode}
    world.inference = inference(role("decode", **decode), role("prefill", replicas=2, minReplicas=2), **spec)


def serving(decode: dict[str, Any], **spec: Any) -> World:
    """Each replica serves on a node of its own: decode-0, prefill-1, and so on."""
    world = World(inference(role("prefill")))
    edit(world, decode, **spec)
    world.settle()
    world.serve(apart=True)
    world.tell()
    return world


def cordon(world: World, *nodes: str) -> None:
    world.notices |= {node: Notice("cordoned") for node in nodes}


def blocked(world: World) -> tuple[str, str]:
    """Reason and message; empty where nothing is blocked."""
    found = {each["type"]: each for each in world.tell()["conditions"] if each["status"] == "True"}
    told = found.get(names.EVACUATION_BLOCKED, {})
    return told.get("reason", ""), told.get("message", "")


def serving_of(world: World, name: str) -> int:
    return sum(state.is_ready for state in world.plan().intent.states[0][name].values())


PAUSED = {"template": NEW, "minReplicas": 3}


def test_in_a_paused_rollout_it_is_room_that_is_missing() -> None:
    world = serving({"minReplicas": 3})
    edit(world, PAUSED, rollout={"paused": True})
    cordon(world, "decode-0")
    world.act(3)
    assert blocked(world) == ("", ""), "nobody has said that there is no room for its successor"
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoNodes"
    assert message == (
        "1 replica of decode cannot leave node decode-0: cordoned: there is no capacity for a successor (no node is left), and decode has 3 of "
        "at least 3 replicas: uncordon the node, or add or free nodes, lower minReplicas, or set "
        "spec.disruption.allowBelowMinimum"
    )


def test_without_a_surge_nobody_knows_of_room_whatever_is_said_of_another_role() -> None:
    world = serving({"minReplicas": 3, "update": {"maxSurge": 0}})
    cordon(world, "decode-0", "prefill-0")
    world.act(3)
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoSurge"
    assert "decode has 3 of at least 3 replicas, and update.maxSurge allows no successor beside them" in message
    world.notices.pop("decode-0")
    assert blocked(world)[0] == "NoNodes"


NO_BUDGET = (
    "there is no capacity for a successor (no node is left), and maxUnavailable allows no more to be missing: uncordon"
)


@pytest.mark.parametrize(
    ("minimum", "update", "words"),
    [(1, {}, [NO_BUDGET]), (2, {"maxUnavailable": 3}, ["decode has 2 of at least 2 replicas", "lower minReplicas"])],
    ids=["the budget", "the minimum, where it forbids more"],
)
def test_what_forbids_the_second_one_to_go_without_a_surge_is_named(
    minimum: int, update: dict[str, int], words: list[str]
) -> None:
    """It waits for the room of the first."""
    world = serving({"minReplicas": minimum, "update": {"maxSurge": 0, **update}})
    cordon(world, "decode-0", "decode-1")
    world.act(3)
    assert serving_of(world, "decode") == 2
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoNodes"
    assert all(each in message for each in words)


def test_where_the_budget_forbids_what_the_minimum_may_the_budget_is_named() -> None:
    update = {"maxUnavailable": 0}
    world = serving({"minReplicas": 3, "update": update}, disruption={"allowBelowMinimum": True})
    cordon(world, "decode-0")
    world.act(3)
    refuse(world)
    reason, message = blocked(world)
    assert reason == "NoNodes"
    assert "maxUnavailable allows no more to be missing" in message
    assert "allowBelowMinimum" not in message


DEADLINE = 600


def say(world: World, name: str, *, ready: bool) -> None:
    """The kubelet says from now on whether a pod is Ready."""
    told = core.Condition("Ready", str(ready), last_transition_time=rfc3339(world.now))
    world.change(name, status={"phase": "Running", "conditions": (told,)})


def running(*names_: str, **spec: Any) -> World:
    """Each replica has begun on a node of its own: decode-0, prefill-1, and so on; these roles serve."""
    fields = {"rollout": {"progressDeadlineSeconds": DEADLINE}, **spec}
    world = World.settled(inference(role("decode", size=2), role("prefill", replicas=2, minReplicas=1), **fields))
    for name, pod in list(world.pods.items()):
        found = pod.metadata.label(names.LABEL_ROLE)
        world.bind(name, f"{found}-{pod.metadata.label(names.LABEL_REPLICA)}")
        say(world, name, ready=found in names_)
    world.tell()
    return world


def kept(world: World, role_: str) -> list[bool]:
    """Whether the eviction API refuses each pod of a role that runs, in their order."""
    pods = (world.pods[name] for name in world.names_of(role_))
    return [bool(budgets_of(pod, world.objects, world.shared)) for pod in pods if pod.spec.node_name]


def test_a_gang_that_loads_is_kept_until_nothing_of_it_has_moved_for_the_deadline() -> None:
    world = running("prefill")
    world.now += DEADLINE - 1
    cordon(world, "decode-0")
    world.act(3)
    assert kept(world, "decode") == [True, True]
    again = world.plan().again
    assert again is not None
    assert again <= 1, "it is looked at again when the time is over"
    world.now += 1
    world.act(3)
    assert kept(world, "decode") == [False, False]
