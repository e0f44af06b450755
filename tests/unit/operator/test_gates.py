"""A resource whose hierarchy is held by gates, from its creation on, with losses and crashes at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from builders.requests import make_node
from covey.api import core
from covey.backends import Cluster
from covey.backends.kubernetes import Embedded, Flat
from covey.compile.identity import slot_of
from covey.model import podstate
from covey.operator.model.actions import Actions, Ungate
from covey.operator.model.observed import Observed
from covey.operator.plan import Plan
from unit.operator.test_room import GPUS, Ground
from unit.operator.world import Step, World

DIALECTS = {"1.35": Embedded(), **{dialect: Flat(dialect) for dialect in Flat.dialects}}


class Gated(World):
    """A world with nodes of one pod each, and a kube-scheduler that binds whoever is let go, wherever it likes."""

    def __init__(self, dialect: str, nodes: int, *roles: dict[str, Any], **spec: Any) -> None:
        wanted = [each | {"template": template(**GPUS)} for each in roles]
        super().__init__(inference(*wanted, backend="Kubernetes", **spec))
        backend = DIALECTS[dialect]
        every = {kind for each in DIALECTS.values() for kind in each.kinds()}
        kept = frozenset(probe.name for probe in backend.probes())
        self.cluster = Cluster(frozenset(every - set(backend.kinds())), kept)
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.ground = Ground(*map(make_node, self.nodes))
        self.shown: dict[str, core.Pod] = {}
        self.going: set[Any] = set()
        #: The roles whose whole minimum goes with any pod that is let go.
        self.whole = self.inference.spec.roles

    def observe(self) -> Observed:
        """The room sees what the operator does."""
        now = {pod.metadata.uid: pod for pod in self.pods.values()}
        for uid, pod in self.shown.items():
            if uid not in now:
                self.ground.go(pod)
        self.ground.see(*(pod for uid, pod in now.items() if self.shown.get(uid) is not pod))
        self.shown = now
        return replace(super().observe(), room=self.ground.view())

    def steps(self, actions: Actions) -> Iterator[Step]:
        self.going = {slot_of(each.pod.spec.hostname) for each in actions.ungate}
        yield from super().steps(actions)

    def _ungate(self, action: Ungate) -> None:
        name = action.pod.metadata.name
        if self.pods.get(name) is None:
            return
        slot = slot_of(action.pod.spec.hostname)
        assert slot is not None
        for each in self.whole:
            mine = self.complete(slot.unit, each.name, lambda pod: podstate.is_let_go(pod) or is_going(pod, self.going))
            assert mine >= each.min_replicas, f"{slot} goes, but not the minimum of {each.name}"
        self.change(name, spec={"scheduling_gates": None})

    def complete(self, unit: int, name: str, accepted: Any) -> int:
        """Replicas of a role all of whose pods are accepted."""
        size = next(each.size for each in self.inference.spec.roles if each.name == name)
        found: dict[int, int] = {}
        for pod in self.pods.values():
            slot = slot_of(pod.spec.hostname)
            if slot and (slot.unit, slot.role) == (unit, name) and not podstate.is_dead(pod) and accepted(pod):
                found[slot.replica] = found.get(slot.replica, 0) + 1
        return sum(count == size for count in found.values())

    def free(self) -> list[str]:
        taken = {pod.spec.node_name for pod in self.pods.values()}
        return [name for name in self.nodes if name not in taken]

    def schedule(self, random: Random) -> None:
        """kube-scheduler binds one pod after another."""
        waiting = [n for n, pod in self.pods.items() if podstate.is_let_go(pod) and not podstate.is_bound(pod)]
        random.shuffle(waiting)
        for name in waiting:
            free = self.free()
            if free:
                self.change(name, spec={"node_name": random.choice(free)})

    def run(self, random: Random, *, crash: bool = False) -> Plan:
        """A pass, perhaps not to its end."""
        planned = self.plan()
        for step in itertools.takewhile(lambda _: not crash or random.random() < 0.8, self.steps(planned.actions)):
            step()
            self.check()
        self.finish()
        return planned

    def bound(self, unit: int, name: str) -> int:
        return self.complete(unit, name, podstate.is_bound)


def is_going(pod: core.Pod, goes: set[Any]) -> bool:
    return slot_of(pod.spec.hostname) in goes


def settle(world: Gated, random: Random, passes: int = 30) -> Plan:
    for _ in range(passes):
        planned = world.run(random)
        world.schedule(random)
    return planned


def gated(dialect: str, nodes: int, **spec: Any) -> Gated:
    return Gated(dialect, nodes, role("prefill", replicas=3, size=2), role("decode", replicas=3), **spec)


@settings(settings.get_profile("storm"))
@given(st.sampled_from(sorted(DIALECTS)), st.integers(0, 12), st.randoms(use_true_random=False), st.integers(1, 2))
def test_no_part_of_a_gang_goes_whatever_happens(dialect: str, nodes: int, random: Random, units: int) -> None:
    """``Gated._ungate`` looks at every single pod that is let go."""
    world = gated(dialect, nodes, replicas=units)
    for _ in range(12):
        world.run(random, crash=random.random() < 0.3)
        world.schedule(random)
        if world.pods and random.random() < 0.3:
            world.delete(random.choice(sorted(world.pods)))
    settle(world, random)
    # Nothing is lost any more: as many units as there is room for have their minimum.
    whole = sum(world.bound(unit, "prefill") >= 1 and world.bound(unit, "decode") >= 1 for unit in range(units))
    begun = any(map(podstate.is_bound, world.pods.values()))
    # Without terminationDelaySeconds surplus that has its nodes keeps them, also when the minimum loses its own.
    surplus = any(world.bound(unit, "prefill") > 1 or world.bound(unit, "decode") > 1 for unit in range(units))
    assert whole >= 1 or not begun or surplus
    if nodes >= 9 * units:
        assert all((world.bound(u, "prefill"), world.bound(u, "decode")) == (3, 3) for u in range(units))


@pytest.mark.parametrize("dialect", sorted(Flat.dialects))
@pytest.mark.parametrize("lost", ["prefill", "decode"])
def test_what_a_unit_loses_when_its_minimum_was_raised_beyond_the_room_comes_back(dialect: str, lost: str) -> None:
    """The gates waited for room for the whole raised minimum, with the nodes of what was lost free."""
    random = Random(0)

    def roles(minimum: int) -> list[dict[str, Any]]:
        decode = role("decode", replicas=max(minimum, 2), minReplicas=minimum)
        return [role("prefill", size=2), decode]

    world = Gated(dialect, 4, *roles(2))
    settle(world, random)
    for name in world.pods:
        world.ready(name)
    asked = Gated(dialect, 4, *roles(4))
    world.inference, world.whole = asked.inference, world.inference.spec.roles
    settle(world, random)
    assert (world.bound(0, "prefill"), world.bound(0, "decode")) == (1, 2)
    world.vanish(min(name for name, pod in world.pods.items() if f"-{lost}-" in name and podstate.is_bound(pod)))
    settle(world, random)
    assert (world.bound(0, "prefill"), world.bound(0, "decode")) == (1, 2)
