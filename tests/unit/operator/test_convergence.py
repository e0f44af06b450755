"""Whatever happens, and wherever the operator is killed: it ends with exactly what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inferences
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.compile import compile_inference, pod_budget, type_of
from covey.model import podstate
from covey.operator.model.place import current
from unit.operator.budgets import budgets_of
from unit.operator.world import World

Event = tuple[str, int]

_PODS: dict[str, Callable[[World, str], None]] = {
    "bind": World.bind,
    "fail": World.fail,
    "delete": World.delete,
    "vanish": World.vanish,
    "address": lambda world, name: world.label(name, {"covey.dev/address": None}),
    "relabel": lambda world, name: world.label(name, {"covey.dev/replica": "0"}),
    "unprotected": lambda world, name: world.label(name, {names.LABEL_GANG: None}),
}
_SPEC = ("units", "replicas", "minimum", "suspend")
event = st.tuples(
    st.sampled_from([*_PODS, *_SPEC, "serve", "release", "group", "finish", "crash", "act", "restart", "former"]),
    st.integers(0, 40),
)


@given(inferences(max_units=2, max_replicas=3, max_size=3), st.lists(event, max_size=14))
def test_converges_after_any_events(resource: DisaggregatedInference, happened: list[Event]) -> None:
    world = World(resource)
    for event in happened:
        happen(world, event)
    planned = world.settle()
    assert not world.plan().actions
    assert_is_wanted(world)
    assert planned.intent.layout.units.keys() == {slot.unit for slot in world.observe().pods} or not world.pods


@given(inferences(max_units=2, max_replicas=2, max_size=3), st.data())
def test_a_crash_after_any_write_makes_no_double(resource: DisaggregatedInference, data: st.DataObject) -> None:
    """Creation, then the loss of a replica; killed after some write of each plan, again and again."""
    world = World(resource)
    for _ in range(6):
        world.crash(data.draw(st.integers(0, 12)))
    world.settle()
    world.serve()
    healthy = dict(world.pods)
    if healthy:
        lost = data.draw(st.sampled_from(sorted(healthy)))
        replica = replica_of(world, lost)
        world.fail(lost)
        for _ in range(3):
            world.crash(data.draw(st.integers(0, 8)))
        world.settle()
        # Nothing outside the replica was replaced; the label of its unit's leader may have moved there.
        kept = {name: pod.metadata.uid for name, pod in healthy.items() if name not in replica}
        assert kept.items() <= {name: pod.metadata.uid for name, pod in world.pods.items()}.items()
        assert not replica & world.pods.keys()
    assert_is_wanted(world)


@given(inferences(max_units=2), st.integers(0, 3), st.integers(0, 3))
def test_growth_leaves_healthy_pods_alone(resource: DisaggregatedInference, units: int, replicas: int) -> None:
    world = World.serving(resource)
    before = dict(world.pods)
    rescale(world, lambda spec: grow(spec, units, replicas))
    planned = world.plan()
    assert not planned.actions.delete_pods
    assert not planned.actions.relabel
    world.settle()
    assert before.items() <= world.pods.items()
    assert_is_wanted(world)


def happen(world: World, event: Event) -> None:
    kind, number = event
    pods = sorted(world.pods)
    if kind in _PODS and pods:
        _PODS[kind](world, pods[number % len(pods)])
    elif kind == "release":
        pinned = [name for name in pods if not podstate.is_bound(world.pods[name])]
        if pinned:
            world.pin(pinned[number % len(pinned)])
            world.release(pinned[number % len(pinned)])
    elif kind == "serve":
        world.serve()
    elif kind == "group" and world.objects:
        world.objects.pop(sorted(world.objects)[number % len(world.objects)])
    elif kind == "finish":
        world.finish()
    elif kind == "crash":
        world.crash(number)
    elif kind == "act":
        world.carry_out()
    elif kind == "restart":
        world.forget()
    elif kind == "former":
        world.come_from_former_release(is_alone=bool(number % 2))
    elif kind in _SPEC:
        rescale(world, lambda spec: resize(spec, kind, number))


def rescale(world: World, change: Callable[[dict[str, Any]], None]) -> None:
    stored = world.inference.as_object()
    change(stored["spec"])
    world.inference = DisaggregatedInference.model_validate(stored)


def grow(spec: dict[str, Any], units: int, replicas: int) -> None:
    spec["replicas"] += units
    for role in spec["roles"]:
        role["replicas"] += replicas


def resize(spec: dict[str, Any], kind: str, number: int) -> None:
    if kind == "units":
        spec["replicas"] = number % 3
    elif kind == "suspend":
        spec["suspend"] = bool(number % 2)
    elif kind == "minimum":
        role = spec["roles"][number // 2 % len(spec["roles"])]
        role["minReplicas"] = min(number % 2, role["replicas"])
    else:
        role = spec["roles"][number % len(spec["roles"])]
        role["replicas"] = max(number % 4, role["minReplicas"])


def replica_of(world: World, name: str) -> set[str]:
    """The pods that go with a lost one: its whole replica."""
    slot = next(slot for slot, pods in world.observe().pods.items() if name in {pod.metadata.name for pod in pods})
    return {
        pod.metadata.name
        for other, pods in world.observe().pods.items()
        for pod in pods
        if (other.unit, other.role, other.replica) == (slot.unit, slot.role, slot.replica)
    }


def assert_is_wanted(world: World) -> None:
    """One live pod for each place, no other pod, and the objects of the tree."""
    observed = world.observe()
    planned = world.plan()
    tree = compile_inference(world.judge().inference, layout=planned.intent.layout)
    assert not observed.strays
    assert set(observed.pods) == set(tree.slots)
    for slot, pods in observed.pods.items():
        assert len(pods) == 1, slot
        assert current(pods) is pods[0]
        assert podstate.is_addressed(pods[0])
        assert tree.pods.labels(slot).items() <= (pods[0].metadata.labels or {}).items()
        protected = [pod_budget.NAME] if tree.pods.protection(slot) else []
        assert budgets_of(pods[0], world.objects, world.shared) == protected
    bodies = (*(body for level in tree.levels for body in level.objects), *tree.published)
    stored = {*observed.objects, *(observed.shared if pod_budget.needs_budget(world.inference.spec) else ())}
    assert stored == {(type_of(body), body["metadata"]["name"]) for body in bodies}
    spec = world.inference.spec
    for roles in planned.intent.layout.units.values():
        assert {name: len(numbers) for name, numbers in roles.items()} == {
            role.name: role.replicas for role in spec.roles
        }
    assert len(planned.intent.layout.units) == (0 if spec.suspend else spec.replicas)
