"""Quotas of a namespace: turns of its resources, the order in which pods are created, and what holds in any history."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.watch import ADDED, MODIFIED
from covey.operator.model.actions import Actions
from covey.operator.observe.resource_quotas import REST, NamespaceQuotas
from covey.operator.plan import plan
from covey.operator.process.features import FEATURES
from covey.operator.resource_quota.balance import Demand, merge_demands
from unit.operator.test_quota import engine, gpus
from unit.operator.world import World

ONE = ("ml", "one")


class Stage:
    """What the operator knows of quotas, shown by hand."""

    def __init__(self, *quotas: core.ResourceQuota) -> None:
        self.now = 1000.0
        nobody = cast("Client", None)  # nothing is asked
        self.quotas = NamespaceQuotas(nobody, (), lambda *_: None, Clock(lambda: self.now))
        for each in quotas:
            self.show(each)

    def show(self, quota: core.ResourceQuota, kind: Any = ADDED) -> None:
        """As the watch does."""
        self.quotas.reflectors[0]._take(kind, quota)


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
        found = plan(world.judge(), observed, world.status, features=FEATURES)
        before = self.used
        for step in itertools.islice(world.steps(found.actions), cut):
            step()
            assert self.used <= max(self.hard, before), "a pod is created that the API server refuses"
        self.first.pop(number, None)
        if found.unplaceable.reserve:
            self.first[number] = found.unplaceable.reserve
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
