"""The picker against the rule, written out plainly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.admission.order import PATIENCE, ActiveQueue, Order
from covey.admission.priority import priority_of
from covey.admission.victims import root_priority
from covey.api import core
from covey.api.constants import INFERENCE_API, LABEL_INFERENCE


@dataclass(frozen=True)
class Asker:
    """One that wants a place, or is about to want one for its minimum (``coming``)."""

    name: str
    priority: int
    age: int
    surplus: bool = False
    coming: bool = False
    resource: str = "gpu"
    lane: int = 0

    @property
    def order(self) -> Order:
        """As gangs are ordered."""
        return (-self.priority, f"{self.age:03}", "ns", self.name, 0, self.name)


def by_the_rule(askers: list[Asker]) -> str | None:
    """Priority; in each all minimums by age, then surplus, unless a minimum at least as urgent is about to come."""
    coming = [(each.priority, each.resource) for each in askers if each.coming]
    may = [
        each
        for each in askers
        if not each.coming
        and not (
            each.surplus and any(priority >= each.priority and each.resource == short for priority, short in coming)
        )
    ]
    return min(may, key=lambda each: (each.lane, each.order[0], each.surplus, each.order)).name if may else None


ASKERS = st.lists(
    st.builds(
        Asker,
        name=st.sampled_from([f"g{number}" for number in range(12)]),
        priority=st.integers(0, 2),
        age=st.integers(0, 3),
        surplus=st.booleans(),
        coming=st.booleans(),
        resource=st.sampled_from(["gpu", "cpu"]),
    ),
    max_size=12,
    unique_by=lambda each: each.name,
)


def put(line: ActiveQueue[str], each: Asker) -> None:
    if each.coming:
        line.expect(each.name, each.priority, 10.0, [each.resource])
    else:
        line.add(each.name, each.order, surplus=each.surplus, since=5.0, takes=[each.resource])


@given(ASKERS)
def test_the_next_one_is_always_whom_the_rule_names(askers: list[Asker]) -> None:
    line: ActiveQueue[str] = ActiveQueue()
    for each in askers:
        put(line, each)
    left = list(askers)
    while True:
        chosen = line.next(5.0)
        assert chosen == by_the_rule(left)
        if chosen is None:
            break
        line.drop(chosen)
        left = [each for each in left if each.name != chosen]


LANED = st.lists(
    st.builds(
        Asker,
        name=st.sampled_from([f"g{number}" for number in range(12)]),
        priority=st.integers(0, 2),
        age=st.integers(0, 3),
        surplus=st.booleans(),
        lane=st.integers(0, 3),
    ),
    max_size=12,
    unique_by=lambda each: each.name,
)


@given(LANED, st.data())
def test_lanes_come_before_priority_and_may_change_at_any_time(askers: list[Asker], data: st.DataObject) -> None:
    line: ActiveQueue[str] = ActiveQueue()
    known = {each.name: each for each in askers}
    for each in askers:
        put(line, each)
    while True:
        chosen = line.next(5.0, lambda name: (known[name].lane, Fraction(0)))
        assert chosen == by_the_rule(list(known.values()))
        if chosen is None:
            break
        line.drop(chosen)
        del known[chosen]
        if known and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(sorted(known)))
            lane = data.draw(st.integers(0, 3))
            if lane < known[name].lane:
                line.renew()
            known[name] = replace(known[name], lane=lane)


def test_surplus_waits_no_longer_than_its_patience_for_an_endless_stream_of_minimums() -> None:
    line: ActiveQueue[str] = ActiveQueue()
    line.add("more", (0, "", "", "more", 0, ""), surplus=True, since=1.0, takes=["gpu"])
    for number in range(3):
        line.expect(f"new-{number}", 0, 3.0 + number, ["gpu"])
    assert line.next(2.9) is None
    assert line.next(1.0 + PATIENCE) == "more"


def test_surplus_when_it_takes_nothing_from_minimums_to_come_does_not_wait_for_them() -> None:
    line: ActiveQueue[str] = ActiveQueue()
    for age, pods in enumerate((6, 3, 2)):
        line.add(f"more-{age}", (0, str(age), "", "", 0, ""), surplus=True, since=1.0, takes=["gpu"], pods=pods)
    line.expect("new", 0, 3.0, ["gpu"])
    line.expect("unknown", 0, 3.0, [])
    asked: list[tuple[list[str], int]] = []

    def spare(names: Collection[str], most: int) -> int:
        asked.append((list(names), most))
        return min(left, most)

    line.spare = spare
    left = 6
    assert line.next(2.0) == "more-0"
    left = 3
    assert line.next(2.0) == "more-1", "what is too much for the first is enough for the next"
    left = 0
    assert line.next(2.0) is None
    assert asked == [(["new"], 6)] * 3, "once for each question, and of those that are waited for alone"


def named(name: str, value: int, *, default: bool = False) -> core.PriorityClass:
    return core.PriorityClass(core.Meta(name=name), value, default)


CLASSES = {each.metadata.name: each for each in (named("online", 1000), named("batch", -5))}
USUAL = {**CLASSES, "usual": named("usual", 10, default=True)}


@pytest.mark.parametrize(
    ("written", "name", "classes", "expected"),
    [
        (2_000_000_000, None, CLASSES, 0),
        (2_000_000_000, "online", CLASSES, 1000),
        (2_000_000_000, None, USUAL, 10),
        (7, "online", CLASSES, 7),
        (-9, None, CLASSES, -9),
        (None, "online", CLASSES, 1000),
        (None, "batch", USUAL, -5),
        (None, None, USUAL, 10),
        (None, None, {}, 0),
        (None, "system-node-critical", {}, 2_000_001_000),
        (None, "gone", CLASSES, None),
        (5, "gone", CLASSES, None),
    ],
)
def test_what_is_written_only_lowers_the_priority_of_the_class(
    written: int | None, name: str | None, classes: dict[str, core.PriorityClass], expected: int | None
) -> None:
    assert priority_of(written, name, classes) == expected


USUAL: Final = {"usual": named("usual", 500, default=True)}


@pytest.mark.parametrize(
    ("is_of_operator", "name", "classes", "priorities", "expected"),
    [
        (True, "online", {"online": named("online", 100)}, [7], 100),
        (True, "gone", {}, [100, 7], 7),
        (True, "gone", {}, [], None),
        (True, None, {}, [100, 7], 7),
        (True, None, {}, [], 0),
        (True, None, USUAL, [7], 500),
        (False, "online", {"online": named("online", 100)}, [7], 7),
        (False, "gone", {}, [7], 7),
        (False, None, {}, [7], 0),
        (False, None, USUAL, [700], 500),
    ],
)
def test_priority_when_a_class_is_gone_is_that_of_the_pods(
    name: str | None,
    classes: dict[str, core.PriorityClass],
    priorities: list[int],
    expected: int | None,
    *,
    is_of_operator: bool,
) -> None:
    owner = core.OwnerReference(api_version=INFERENCE_API, kind="DisaggregatedInference", controller=True)
    owners = (owner,) if is_of_operator else ()
    metadata = core.Meta(name="llm-0", labels={LABEL_INFERENCE: "llm"}, owner_references=owners)
    root = core.Group(metadata, spec=core.GroupSpec(priority_class_name=name))
    pods = [core.Pod(core.Meta(name="pod"), core.PodSpec(priority=priority)) for priority in priorities]
    assert root_priority(root, lambda: pods, classes) == expected
