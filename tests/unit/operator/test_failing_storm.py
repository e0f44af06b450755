"""Whatever fails, with whatever policies, and wherever the operator is killed: in the end all of it runs again."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.model import podstate
from covey.operator.model.place import current
from unit.operator.world import World

POLICIES = (None, "RecreateReplica", "RecreateReplicaAfterStart", "RecreateUnit", "None")
EVENTS = (
    "serve",
    "fail",
    "refuse",
    "crash",
    "delete",
    "vanish",
    "finish",
    "wait",
    "note",
    "act",
    "kill",
    "restart",
    "late",
)


@st.composite
def roles(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for name in ("prefill", "decode"):
        restart: dict[str, Any] = {"policy": draw(st.sampled_from(POLICIES))}
        if draw(st.booleans()):
            restart["backoff"] = {"baseSeconds": draw(st.integers(0, 60)), "maxSeconds": draw(st.integers(60, 900))}
        replicas = draw(st.integers(1, 2))
        more = {"startDeadlineSeconds": 50} if draw(st.booleans()) else {}
        sizes = {"replicas": replicas, "minReplicas": draw(st.integers(0, replicas)), "size": draw(st.integers(1, 2))}
        found.append(role(name, restart=restart, **sizes, **more))
    return found


@settings(settings.get_profile("storm"))
@given(roles(), st.integers(1, 2), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 40)), max_size=25))
def test_in_the_end_everything_runs(wanted: list[dict[str, Any]], units: int, happened: list[tuple[str, int]]) -> None:
    world = World.settled(inference(*wanted, replicas=units), notes=True)
    for event, number in happened:
        happen(world, event, number)
        assert_no_double(world)
    heal(world)
    planned = world.plan()
    assert not planned.actions
    assert not planned.actions.annotate
    places = world.observe().pods
    assert all(len(pods) == 1 and podstate.is_ready(pods[0]) for pods in places.values())
    assert len(places) == units * sum(each["replicas"] * each["size"] for each in wanted)


def happen(world: World, event: str, number: int) -> None:
    bound = sorted(name for name, pod in world.pods.items() if podstate.is_bound(pod) and not podstate.is_dead(pod))
    name = bound[number % len(bound)] if bound else None
    match event:
        case "serve":
            serve(world)
        case "finish":
            world.finish()
        case "wait":
            world.now += 10.0 * number
        case "note":
            world.note()
        case "act":
            world.settle(passes=20)
        case "restart":
            world.forget()
        case "kill":
            world.crash(number % 12)
        case _ if name is not None:
            hurt(world, event, name, number)


def hurt(world: World, event: str, name: str, number: int) -> None:
    match event:
        case "fail":
            world.fail(name)
        case "refuse":
            world.change(name, status={"phase": "Failed", "reason": "OutOfcpu"})
        case "crash":
            found = (core.ContainerStatus(name="engine", restart_count=1 + number % 3),)
            world.change(name, status={"container_statuses": found})
        case "delete":
            world.delete(name)
        case "vanish":
            world.vanish(name)
        case "late":
            scheduled = core.Condition("PodScheduled", "True", last_transition_time=rfc3339(world.now - 100))
            world.change(name, status={"phase": "Running", "conditions": (scheduled,)})


def serve(world: World) -> None:
    """The scheduler places all, the kubelets start those whom no start gate holds."""
    world.place()
    for name, pod in list(world.pods.items()):
        if not podstate.is_dead(pod) and names.GATE_START not in core.gates(pod):
            world.bind(name)
            world.ready(name)


def heal(world: World) -> None:
    """Nothing fails any more, and time passes."""
    for _ in range(8):
        world.settle(passes=20)
        serve(world)
        world.note()
        world.now += 1000


def assert_no_double(world: World) -> None:
    for slot, pods in world.observe().pods.items():
        addressed = [pod for pod in pods if podstate.is_addressed(pod)]
        assert len(addressed) <= 1, slot
        assert current(pods) is None or len([pod for pod in pods if not podstate.is_dead(pod)]) <= 2
