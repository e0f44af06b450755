"""Quotas of a namespace: turns of its resources, the order in which pods are created, and what holds in any history."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role, template
from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.watch import ADDED, DELETED, MODIFIED
from covey.operator.model.actions import Actions, CreatePod, Precedence
from covey.operator.observe.quotas import REST, Quotas
from covey.operator.plan import plan
from covey.operator.quota.charge import charge_of
from covey.operator.quota.fit import Demand, merge_demands
from unit.operator.test_quota import engine, gpus
from unit.operator.world import World

ONE, OTHER, ELSEWHERE = ("ml", "one"), ("ml", "other"), ("web", "one")
CHARGE = charge_of(template())


class Lists:
    """An API server that has these quotas."""

    def __init__(self, *quotas: core.ResourceQuota) -> None:
        self.quotas = quotas
        self.asked = 0

    async def list(self, *_: Any, **__: Any) -> tuple[list[core.ResourceQuota], str]:
        self.asked += 1
        return list(self.quotas), "1"


class Stage:
    def __init__(self, *quotas: core.ResourceQuota) -> None:
        self.server = Lists(*quotas)
        self.now = 1000.0
        self.woken: list[tuple[str, str]] = []
        self.quotas = Quotas(
            cast("Client", self.server), (), lambda key, _: self.woken.append(key), Clock(lambda: self.now)
        )
        for each in quotas:
            self.show(each)

    def show(self, quota: core.ResourceQuota, kind: Any = ADDED) -> None:
        """As the watch does."""
        reflector = self.quotas.reflectors[0]
        before = reflector.store.get(quota.metadata.key)
        objects = reflector._objects
        list(objects.drop(quota) if kind == DELETED else objects.update(quota))
        self.quotas._on_quota(kind, quota, before)


def test_pods_of_a_minimum_that_runs_are_reserved_until_they_are_there() -> None:
    quotas = Stage(gpus(8)).quotas
    quotas.note(ONE, waits=True, first={CHARGE: 2})
    assert quotas.reserved_demand(OTHER) == {CHARGE: 2}
    assert not quotas.reserved_demand(ONE)
    assert not quotas.reserved_demand(ELSEWHERE)
    quotas.note(ONE, waits=False, first=None)
    assert not quotas.reserved_demand(OTHER)
    quotas.note(ONE, waits=True, first={CHARGE: 2})
    quotas.forget(ONE)
    assert not quotas.reserved_demand(OTHER)


def test_after_a_start_every_resource_is_looked_at_once_first() -> None:
    quotas = Stage(gpus(8)).quotas
    keys = [ONE, OTHER, ELSEWHERE]
    quotas.note_look(ONE)
    assert quotas.settles("ml", keys)
    quotas.note_look(OTHER)
    assert not quotas.settles("ml", keys)
    # A resource that comes later does not run yet.
    assert not quotas.settles("ml", [*keys, ("ml", "new")])


def test_room_rests_after_it_has_come_free_but_not_for_ever() -> None:
    stage = Stage(gpus(8, 8))
    stage.quotas.note_look(ONE)
    assert not stage.quotas.rests(ONE)
    stage.show(gpus(8, 4), MODIFIED)
    assert stage.quotas.rests(ONE)
    stage.now += 2 * REST
    assert not stage.quotas.rests(ONE)
    stage.show(gpus(80, 81), MODIFIED)
    for step in range(40):
        stage.show(gpus(80, 80 - step), MODIFIED)
        if not stage.quotas.rests(ONE):
            break
        stage.now += REST / 2
    assert 0 < step < 39


RUNNING_MINIMUM, MINIMUM, REPLACEMENT, SURPLUS, SURGE = Precedence


def order(items: Iterable[CreatePod]) -> list[tuple[Precedence, str]]:
    """Precedence and replica of each, in order, each replica once."""
    found = ((item.precedence, f"{item.slot.unit}-{item.slot.role}-{item.slot.replica}") for item in items)
    return list(dict.fromkeys(found))


def lose(world: World, *replicas: str) -> None:
    for name, each in list(world.pods.items()):
        if (each.spec.hostname or "").rpartition("-")[0] in replicas:
            world.vanish(name)


def test_a_surge_comes_last() -> None:
    """As where a full quota lets one pod in: what is lost of a minimum is not to wait for a rollout."""
    roles = (role("prefill", replicas=2, minReplicas=1), role("decode", minReplicas=1))
    world = World.serving(inference(*roles))
    changed = {"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}}
    world.inference = inference({**roles[0], "template": changed}, roles[1])
    lose(world, "0-decode-0")
    created = order(world.plan().actions.create)
    assert created[0] == (RUNNING_MINIMUM, "0-decode-0")
    assert {precedence for precedence, _ in created[1:]} == {SURGE}


class Namespace:
    """Resources that take turns, as the operator's passes do."""

    def __init__(self, sizes: list[tuple[int, int]], hard: int) -> None:
        self.worlds = [
            World(
                inference(
                    role("prefill", replicas=2, minReplicas=1, **engine(prefill)),
                    role("decode", replicas=2, minReplicas=2, **engine(decode)),
                    name=f"gang-{number}",
                    uid=f"uid-{number}",
                )
            )
            for number, (prefill, decode) in enumerate(sizes)
        ]
        self.sizes = sizes
        self.hard = hard
        self.first: dict[int, Demand] = {}

    def gpus_of(self, number: int) -> int:
        return sum(self._gpus(number, pod.spec.hostname or "") for pod in self.worlds[number].pods.values())

    @property
    def used(self) -> int:
        return sum(map(self.gpus_of, range(len(self.worlds))))

    def _gpus(self, number: int, host: str) -> int:
        return self.sizes[number]["decode" in host]

    def look(self, number: int, cut: int | None = None) -> bool:
        """One pass, cut off after so many writes; whether there was anything to do."""
        world = self.worlds[number]
        reserved = merge_demands(demand for other, demand in self.first.items() if other != number)
        observed = dataclasses.replace(world.observe(), quotas=(gpus(self.hard, self.used),), reserved=reserved)
        found = plan(world.judge(), observed, world.status)
        before = self.used
        for step in itertools.islice(world.steps(found.actions), cut):
            step()
            assert self.used <= max(self.hard, before), "a pod is created that the API server refuses"
        self.first.pop(number, None)
        if found.fitting.reserve:
            self.first[number] = found.fitting.reserve
        world.finish()
        return bool(found.actions) and found.actions != Actions()

    def bind(self, number: int) -> None:
        """Its gang is placed once its minimum is there."""
        world = self.worlds[number]
        if self.is_whole(number):
            world.serve()

    def lose(self, number: int, which: int) -> None:
        names = sorted(self.worlds[number].pods)
        if names:
            self.worlds[number].vanish(names[which % len(names)])

    def is_whole(self, number: int) -> bool:
        hosts = [pod.spec.hostname or "" for pod in self.worlds[number].pods.values()]
        return sum("prefill" in host for host in hosts) >= 1 and sum("decode" in host for host in hosts) >= 2

    def runs(self, number: int) -> bool:
        return any(pod.spec.node_name for pod in self.worlds[number].pods.values())


steps = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 2), st.none() | st.integers(0, 20)),
    st.tuples(st.just("bind"), st.integers(0, 2), st.none()),
    st.tuples(st.just("lose"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("quota"), st.integers(0, 30), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=3, max_size=3),
    st.integers(0, 30),
    st.lists(steps, max_size=25),
)
def test_every_gang_has_its_minimum_or_nothing_in_the_end(
    sizes: list[tuple[int, int]], hard: int, events: list[tuple[str, Any, Any]]
) -> None:
    namespace = Namespace(sizes, hard)
    for event, value, more in events:
        match event:
            case "look":
                namespace.look(value, more)
            case "bind":
                namespace.bind(value)
            case "lose":
                namespace.lose(value, more)
            case "quota":
                namespace.hard = value
            case _:
                namespace.first.clear()
    for _ in range(12):
        # All of them are looked at each time.
        acted = [namespace.look(number) for number in range(3)]
        if not any(acted):
            break
    else:
        raise AssertionError("it does not come to rest")
    left = namespace.hard - namespace.used
    for number, (prefill, decode) in enumerate(sizes):
        if namespace.is_whole(number) or namespace.runs(number):
            continue
        assert not namespace.worlds[number].pods, "a part of a minimum is held"
        # Unless something that runs has to have it, what fits is there.
        assert prefill + 2 * decode > left or namespace.first
