"""The barrier against a second reading of its rules, through random histories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders.members import group, member, role_groups, root_key, unit
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.scheduler.barrier import Call, releasable

ROOT_KEY = root_key("root")


@dataclass(frozen=True)
class Shape:
    name: str
    replicas: int
    minimum: int
    size: int


def call(pod: core.Pod, turn: int = 0, node: str = "n1", root: Key = ROOT_KEY) -> Call:
    return Call(pod.metadata.uid, "ns", pod.metadata.name, node, root, turn, 0.0)


def calls(*pods: core.Pod) -> Mapping[str, Call]:
    return {pod.metadata.uid: call(pod) for pod in pods}


def tree(*shapes: Shape, pods: list[core.Pod]) -> Unit:
    root = group("root", composite=True, minimum=sum(shape.minimum > 0 for shape in shapes), desired=len(shapes))
    groups = [
        each
        for shape in shapes
        for each in role_groups(shape.name, replicas=shape.replicas, minimum=shape.minimum, size=shape.size)
    ]
    return unit(root, groups, pods)


PREFILL, DECODE = Shape("prefill", 2, 1, 2), Shape("decode", 2, 1, 1)


def test_a_gone_group_or_role_holds() -> None:
    root = group("root", composite=True, minimum=2)
    pods = [member("decode", 0, pin="n1")]
    found = unit(root, role_groups("decode", replicas=1, minimum=1, size=1), pods)
    assert releasable(found, calls(*pods)) == []


def test_a_minimum_that_counts_on_a_torn_set_is_held() -> None:
    together = {"scheduling.covey.dev/together": "r2"}
    pods = [
        member("prefill", 0, pin="n1", labels=together),
        member("decode", 0, pin="n1"),
        member("decode", 1, pin="n1", labels=together),
    ]
    found = tree(Shape("prefill", 1, 1, 1), Shape("decode", 2, 1, 1), pods=pods)
    assert releasable(found, calls(pods[0], pods[1])) == []
    assert len(releasable(found, calls(*pods))) == 3


def test_groups_that_say_the_same_role_do_not_stand_for_each_other() -> None:
    root = group("root", composite=True, minimum=2)
    same = {"covey.dev/role": "decode"}
    groups = [
        group(name, parent="root", minimum=minimum, labels=same) for name, minimum in (("root-a", 2), ("root-b", 1))
    ]
    pods = [member("a", 0, pin="n1"), member("b", 0, pin="n1"), member("b", 1, pin="n1")]
    found = unit(root, groups, pods)
    assert releasable(found, calls(*pods)) == []
    assert len(releasable(unit(root, groups, [*pods, last := member("a", 1, pin="n1")]), calls(*pods, last))) == 4


shapes = st.lists(
    st.builds(
        lambda number, size, replicas, minimum: (number, size, replicas, min(minimum, replicas)),
        st.integers(0, 9),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=3,
)


class History(RuleBasedStateMachine):
    """Pods arrive, leave, are deleted and created again, and get bound; the barrier and both processes restart."""

    @initialize(found=shapes)
    def begin(self, found: list[tuple[int, int, int, int]]) -> None:
        self.shapes = [
            Shape(f"r{position}", replicas, minimum if position else max(1, minimum), size)
            for position, (_, size, replicas, minimum) in enumerate(found)
        ]
        self.places = [
            (shape, replica, index)
            for shape in self.shapes
            for replica in range(shape.replicas)
            for index in range(shape.size)
        ]
        self.incarnation = dict.fromkeys(range(len(self.places)), 0)
        self.bound: set[int] = set()
        self.gone: set[int] = set()
        self.calls: dict[int, int] = {}
        self.going: set[int] = set()

    def pod(self, place: int) -> core.Pod:
        shape, replica, index = self.places[place]
        uid = f"{place}-{self.incarnation[place]}"
        node = "n1" if place in self.bound else None
        return member(shape.name, replica, index, size=shape.size, pin="n1", node=node, uid=uid, name=f"p{uid}")

    def pick(self, number: int) -> int:
        return number % len(self.places)

    @rule(number=st.integers(0, 99))
    def arrive(self, number: int) -> None:
        place = self.pick(number)
        if place not in self.bound | self.gone:
            self.calls[place] = self.incarnation[place]
            self.settle()

    @rule(number=st.integers(0, 99))
    def hang_up(self, number: int) -> None:
        self.calls.pop(self.pick(number), None)

    @rule(number=st.integers(0, 99))
    def delete(self, number: int) -> None:
        place = self.pick(number)
        self.gone.add(place)
        self.bound.discard(place)
        self.going.discard(place)
        self.calls.pop(place, None)

    @rule(number=st.integers(0, 99))
    def create_again(self, number: int) -> None:
        place = self.pick(number)
        if place in self.gone:
            self.gone.discard(place)
            self.incarnation[place] += 1

    @rule()
    def everybody_restarts(self) -> None:
        self.calls.clear()
        self.going.clear()

    @precondition(lambda self: self.going)
    @rule(number=st.integers(0, 99))
    def bind_one(self, number: int) -> None:
        place = sorted(self.going)[number % len(self.going)]
        self.going.discard(place)
        self.calls.pop(place, None)
        self.bound.add(place)
        self.settle()

    def settle(self) -> None:
        """Ask the barrier, and hold its answer against the rules read a second time."""
        pods = {place: self.pod(place) for place in range(len(self.places)) if place not in self.gone}
        held = {
            pods[place].metadata.uid: call(pods[place])
            for place, incarnation in self.calls.items()
            if incarnation == self.incarnation[place]
        }
        found = tree(*self.shapes, pods=list(pods.values()))
        answer = {pod.metadata.uid for pod in releasable(found, held)}
        places = {place for place, pod in pods.items() if pod.metadata.uid in answer}
        assert places == self.expected()
        self.going |= places

    def expected(self) -> set[int]:
        here = self.bound | set(self.calls)
        whole: dict[str, list[set[int]]] = {shape.name: [] for shape in self.shapes}
        for shape in self.shapes:
            for replica in range(shape.replicas):
                mine = {n for n, (s, r, _) in enumerate(self.places) if s is shape and r == replica}
                if mine <= here:
                    whole[shape.name].append(mine)
        if any(len(whole[shape.name]) < shape.minimum for shape in self.shapes):
            return set()
        return {place for sets in whole.values() for mine in sets for place in mine} - self.bound

    @invariant()
    def nobody_goes_alone(self) -> None:
        if not hasattr(self, "places"):
            return
        for place in self.going:
            assert place not in self.gone


TestHistory = History.TestCase
