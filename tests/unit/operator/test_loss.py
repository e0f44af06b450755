"""Units below their minimum: told live, since when, and what of them is given up."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, llama, role, template
from covey.api import constants as names
from covey.api import core
from covey.kube.resources import COMPOSITE_POD_GROUPS
from covey.model import podstate
from covey.operator.plan import Plan
from unit.operator.world import World


def serving(**spec: Any) -> World:
    """A resource that serves; its status says so."""
    world = World.serving(llama(decode=2, **spec))
    world.tell()
    assert condition(world, "MinimumMet") == ("True", "MinimumMet")
    return world


def condition(world: World, kind: str) -> tuple[str, str] | None:
    found = [each for each in world.status["conditions"] if each["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else None


def of_unit(world: World, unit: int = 0) -> dict[str, Any]:
    return next(each for each in world.status["unitStatuses"] if each["unit"] == unit)


def lose(world: World, role_name: str) -> None:
    """Every pod of a role is gone; successors wait."""
    for name, pod in list(world.pods.items()):
        if pod.metadata.label(names.LABEL_ROLE) == role_name:
            world.vanish(name)
    act(world)


def act(world: World, passes: int = 1) -> Plan:
    """So many passes: what is planned is done, told, and what terminates is gone."""
    for _ in range(passes):
        planned = world.plan()
        world.tell()
        for step in world.steps(planned.actions):
            step()
        age(world)
        world.finish()
    return planned


def age(world: World) -> None:
    """Pods that were made now have been made now."""
    for name, pod in world.pods.items():
        if pod.metadata.creation_timestamp.startswith("2026") and not podstate.is_bound(pod):
            world.change(name, metadata={"creation_timestamp": core.rfc3339(world.now)})


def movable(world: World, what: str) -> None:
    """What the scheduler process says of a root that it has refused."""
    key = (COMPOSITE_POD_GROUPS.type, "llama-0")
    said = (
        core.Condition(names.ADMITTED, "False", "Infeasible"),
        *((core.Condition(names.MOVABLE, "True", what),) if what else ()),
    )
    world.objects[key] = msgspec.structs.replace(world.objects[key], status=core.GroupStatus(conditions=said))


def bound(world: World) -> set[str]:
    return {name for name, pod in world.pods.items() if podstate.is_bound(pod) and not podstate.is_dead(pod)}


def test_a_pod_that_waits_for_others_to_start_has_its_place() -> None:
    world = World.settled(
        inference(role("prefill", replicas=1, size=1), role("decode", replicas=1, size=2, startup="LeaderReady"))
    )
    for name in list(world.pods):
        world.pin(name)
    world.tell()
    assert condition(world, "MinimumMet") == ("False", "Waiting")
    for name, pod in list(world.pods.items()):
        if pod.metadata.label(names.LABEL_INDEX) == "1":
            gates = (core.SchedulingGate(names.GATE_START),)
            world.change(name, spec={"scheduling_gates": gates})
        else:
            world.bind(name)
    world.tell()
    assert condition(world, "MinimumMet") == ("True", "MinimumMet")


def test_a_unit_that_is_lost_in_the_second_in_which_it_was_made() -> None:
    """What the API server calls created at 12:00:00 may be older than a loss at 12:00:00.9."""
    world = serving(gang={"terminationDelaySeconds": 15})
    for name in list(world.pods):
        world.change(name, metadata={"creation_timestamp": core.rfc3339(world.now)})
    world.now += 0.9
    lose(world, "decode")
    assert bound(world)
    world.now += 16
    act(world)
    assert not bound(world)


@pytest.mark.parametrize("killed_after", range(8))
def test_the_operator_dies_while_it_takes_a_unit_down(killed_after: int) -> None:
    world = serving(gang={"terminationDelaySeconds": 100})
    lose(world, "decode")
    world.now += 100
    for number, step in enumerate(world.steps(world.plan().actions)):
        if number == killed_after:
            break
        step()
    age(world)
    world.finish()
    world.forget()
    act(world, 4)
    assert not bound(world)
    assert len(world.pods) == 6
    world.bind_all()
    world.now += 500
    assert not world.plan().actions.delete_pods


def preempt(world: World, role_name: str) -> str:
    """kube-scheduler evicts a pod of a role; it says so, and asks for the deletion. Returns the pod's name."""
    name = min(
        name
        for name, pod in world.pods.items()
        if pod.metadata.label(names.LABEL_ROLE) == role_name and not podstate.is_dead(pod)
    )
    at = core.rfc3339(world.now)
    said = core.Condition("DisruptionTarget", "True", "PreemptionByScheduler", last_transition_time=at)
    world.change(name, metadata={"deletion_timestamp": at}, status={"conditions": (said,)})
    return name


def gang_of_two(*, ready: bool, **spec: Any) -> World:
    world = World.settled(inference(role("prefill", replicas=1, size=2), role("decode", replicas=1), **spec))
    for name in list(world.pods):
        world.bind(name)
        if ready:
            world.ready(name)
    world.tell()
    world.now += 60
    return world


@pytest.mark.parametrize("ready", [True, False])
def test_a_unit_that_was_preempted_goes_whole_and_says_so(ready: bool) -> None:  # noqa: FBT001 - a table
    world = gang_of_two(ready=ready)
    before = bound(world)
    victim = preempt(world, "decode")
    first = world.plan()
    world.tell()
    assert condition(world, "Escalating") == ("True", "Preempted")
    assert of_unit(world)["escalation"] == {"step": "Preemption", "at": core.rfc3339(world.now)}
    assert "Escalating" in {note.reason for note in first.actions.notes}
    world.vanish(victim)
    world.now += 5
    act(world)
    assert bound(world) == before - {victim}  # the successor may have room
    assert world.plan().again is None
    movable(world, "")
    # What was announced is done, whoever has seen the eviction.
    going = world.plan().actions.delete_pods
    assert {item.pod.metadata.name for item in going} == before - {victim}


def test_what_came_after_a_preemption_stays() -> None:
    """The victim may take its time to end, and the unit may have its places again by then."""
    world = gang_of_two(ready=True)
    victim = preempt(world, "decode")
    for name in bound(world) - {victim}:
        world.vanish(name)
    world.now += 5
    for _ in range(3):
        planned = world.plan()
        world.tell()
        for step in world.steps(planned.actions):
            step()
        age(world)
    for name in list(world.pods):
        if name != victim and "-prefill-" in name:
            world.bind(name)
    assert not world.plan().actions.delete_pods
    assert condition(world, "Escalating") in (None, ("False", "MinimumMet"))


def test_only_the_roles_that_lack_replicas() -> None:
    world = World.serving(inference(role("prefill", replicas=2, min_replicas=2, size=2), role("decode", replicas=2)))
    world.tell()
    for name in [name for name in world.pods if "-prefill-0-" in name]:
        world.vanish(name)
    act(world)
    movable(world, "Role")
    # One replica of prefill answers still.
    act(world)
    assert condition(world, "Escalating") is None
    for name in [name for name in bound(world) if "-prefill-1-" in name]:
        world.change(name, status={"conditions": (core.Condition("Ready", "False"),)})
    act(world)
    assert condition(world, "Escalating") == ("True", "RoleMoves")
    world.now += 60
    act(world)
    assert {world.pods[name].metadata.label(names.LABEL_ROLE) for name in bound(world)} == {"decode"}


def test_a_rollout_that_may_go_below_the_minimum_is_no_loss() -> None:
    fields = {"replicas": 3, "minReplicas": 3, "size": 1, "update": {"maxSurge": 0, "maxUnavailable": 2}}
    delay = {"gang": {"terminationDelaySeconds": 60}}
    world = World.serving(llama(fields, 1, **delay))
    world.tell()
    world.inference = llama({**fields, "template": template(nodeSelector={"new": "yes"})}, 1, **delay)
    for _ in range(6):
        act(world)
        world.now += 40
    assert len([name for name in bound(world) if "prefill" in name]) == 1
    assert of_unit(world)["metMinimum"][0] == {"name": "prefill", "replicas": 1}


@given(
    delay=st.one_of(st.none(), st.integers(0, 90)),
    verdicts=st.lists(st.sampled_from(["", "Role", "Unit"]), min_size=6, max_size=6),
    waits=st.lists(st.integers(0, 60), min_size=6, max_size=6),
    restarts=st.sets(st.integers(0, 5)),
)
def test_nothing_goes_before_its_time(
    delay: int | None, verdicts: list[str], waits: list[int], restarts: set[int]
) -> None:
    """What goes was announced with its time, the time is over, and without a delay nothing that serves goes."""
    world = serving(**({} if delay is None else {"gang": {"terminationDelaySeconds": delay}}))
    begun = world.now
    for name in [name for name in world.pods if "-decode-" in name]:
        world.vanish(name)
    for number, (verdict, wait) in enumerate(zip(verdicts, waits, strict=True)):
        movable(world, verdict)
        if number in restarts:
            world.forget()
        announced = of_unit(world).get("escalation")
        planned = world.plan()
        if any("given up" in item.why for item in planned.actions.delete_pods):
            assert announced is not None
            assert world.now >= (core.seconds(announced["at"]) or 0.0)
            assert world.now >= begun + (min(60, delay) if delay is not None else 60)
            assert delay is not None or verdict == announced["step"]
        act(world)
        world.now += wait
