"""Replicas that serve nobody, and whether they keep anybody from draining their nodes."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import CONTAINER, inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from unit.operator.answering import refuse
from unit.operator.budgets import budgets_of
from unit.operator.test_evacuating import act, blocked, cordon
from unit.operator.world import World

DEADLINE = 600
_CONTAINER = CONTAINER["name"]


def say(world: World, name: str, *, ready: bool) -> None:
    """The kubelet says from now on whether a pod is Ready."""
    told = core.Condition("Ready", str(ready), last_transition_time=rfc3339(world.now))
    world.change(name, status={"phase": "Running", "conditions": (told,)})


def crash(world: World, name: str) -> None:
    """The kubelet starts a container of a pod ever more seldom."""
    say(world, name, ready=False)
    state = core.ContainerState(core.Waiting("CrashLoopBackOff"))
    world.say(name, core.ContainerStatus(_CONTAINER, restart_count=7, state=state))


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


def of(world: World, role_: str) -> list[str]:
    return sorted(name for name, pod in world.pods.items() if pod.metadata.label(names.LABEL_ROLE) == role_)


def kept(world: World, role_: str) -> list[bool]:
    """Whether the eviction API refuses each pod of a role that runs, in their order."""
    pods = (world.pods[name] for name in of(world, role_))
    return [bool(budgets_of(pod, world.objects, world.shared)) for pod in pods if pod.spec.node_name]


def told(world: World) -> tuple[str, str]:
    """Reason and message of the condition Evacuating; empty where nothing leaves."""
    found = {each["type"]: each for each in world.tell()["conditions"] if each["status"] == "True"}
    return tuple(found.get(names.EVACUATING, {}).get(each, "") for each in ("reason", "message"))  # type: ignore[return-value] # two


def test_a_replica_that_crashes_again_and_again_may_be_evicted_with_all_its_pods() -> None:
    world = running("prefill")
    _, second = of(world, "decode")
    crash(world, second)
    cordon(world, "decode-0")
    act(world)
    assert kept(world, "decode") == [False, False]
    assert kept(world, "prefill") == [True, True]
    reason, message = told(world)
    assert reason == "ServesNobody"
    assert message == "1 replica of decode on node decode-0: cordoned serves nobody, and its pods may be evicted"


def test_without_room_it_does_not_block_either() -> None:
    world = running("prefill")
    crash(world, of(world, "decode")[0])
    cordon(world, "decode-0")
    act(world)
    refuse(world)
    world.now += 120
    act(world)
    assert blocked(world) == ("", "")
    assert kept(world, "decode") == [False, False]


def test_a_gang_that_loads_is_kept_until_nothing_of_it_has_moved_for_the_deadline() -> None:
    world = running("prefill")
    world.now += DEADLINE - 1
    cordon(world, "decode-0")
    act(world)
    assert kept(world, "decode") == [True, True]
    again = world.plan().again
    assert again is not None
    assert again <= 1, "it is looked at again when the time is over"
    world.now += 1
    act(world)
    assert kept(world, "decode") == [False, False]


def test_its_successor_that_does_not_serve_either_changes_nothing() -> None:
    world = running("prefill")
    old = of(world, "decode")
    crash(world, old[0])
    cordon(world, "decode-0")
    act(world)
    for name in set(of(world, "decode")) - set(old):
        world.bind(name, "fresh")
        crash(world, name)
    world.now += 7200
    act(world)
    assert set(old) < set(of(world, "decode"))
    assert not any(budgets_of(world.pods[name], world.objects, world.shared) for name in old)
    assert all(
        budgets_of(world.pods[name], world.objects, world.shared) for name in set(of(world, "decode")) - set(old)
    )


def test_what_gets_ready_again_is_kept_again() -> None:
    world = running("prefill")
    first, second = of(world, "decode")
    crash(world, second)
    cordon(world, "decode-0")
    act(world)
    # The container runs for a while, as it has before; the other one has not begun to serve.
    world.say(second, core.ContainerStatus(_CONTAINER, restart_count=8))
    act(world)
    assert kept(world, "decode") == [False, False]
    say(world, first, ready=True)
    say(world, second, ready=True)
    act(world)
    assert kept(world, "decode") == [True, True]
    assert told(world)[0] == "NodeLeaving"


def test_a_node_that_stays_makes_its_pods_kept_again() -> None:
    world = running("prefill")
    crash(world, of(world, "decode")[0])
    cordon(world, "decode-0")
    act(world)
    assert kept(world, "decode") == [False, False]
    world.notices.clear()
    act(world)
    assert kept(world, "decode") == [True, True]
    assert not world.plan().actions.protect, "one who puts it and one who takes it do not fight"


@pytest.mark.parametrize("evicted", [0, 1])
def test_what_is_evicted_of_it_leaves_the_rest_evictable(evicted: int) -> None:
    world = running("prefill")
    names_ = of(world, "decode")
    crash(world, names_[0])
    cordon(world, "decode-0")
    act(world)
    world.delete(names_[evicted])
    act(world)
    left = world.pods.get(names_[1 - evicted])
    assert left is None or not budgets_of(left, world.objects, world.shared)


def test_what_crashes_on_a_node_that_stays_is_kept() -> None:
    world = running("prefill")
    crash(world, of(world, "decode")[0])
    world.now += 7200
    act(world)
    assert kept(world, "decode") == [True, True]


def test_a_replica_that_serves_is_told_beside_one_that_does_not() -> None:
    world = running("prefill")
    crash(world, of(world, "decode")[0])
    cordon(world, "decode-0", "prefill-0")
    act(world)
    reason, message = told(world)
    assert reason == "NodeLeaving"
    first, second = message.split("; ")
    assert first == "1 replica of prefill leaves node prefill-0: cordoned"
    assert second == "1 replica of decode on node decode-0: cordoned serves nobody, and its pods may be evicted"
