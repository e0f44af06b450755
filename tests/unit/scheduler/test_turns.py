"""Many gangs wait and room comes bit by bit: who is planned, how often, and who gets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import cache, drop, node, pod, put, root_key
from covey.admission.tree import Key
from covey.api import core
from covey.observability.families import REGISTRY
from covey.scheduler import admission, books
from covey.scheduler.writer import FIRST, LONGEST
from scheduler_loop import Loop, labels, tree

RACK = {"topology": [{"level": "rack", "mode": "Required"}]}


def aged(name: str, number: int, **more: Any) -> list[core.Group | core.Pod]:
    """A unit of a whole rack of four nodes; the higher the number, the younger it is."""
    objects = tree(name, replicas=4, minimum=4, schedulingConstraints=RACK, **more)
    root = objects[0]
    assert isinstance(root, core.Group)
    created = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    meta = core.Meta(
        name=root.metadata.name,
        namespace="ns",
        uid=root.metadata.uid,
        creation_timestamp=created,
        owner_references=root.metadata.owner_references,
    )
    changed = core.Group(metadata=meta, kind=root.kind, api_version=root.api_version, spec=root.spec)
    return [changed, *objects[1:]]


def racks(count: int) -> list[core.Node | core.Pod]:
    """Racks of four nodes, all taken by ordinary pods."""
    names = [(f"r{rack}", f"n{rack}-{number}") for rack in range(count) for number in range(4)]
    taken = [pod(f"taken-{name}", node=name, gpus=8) for _, name in names]
    return [*(node(name, labels=labels(rack)) for rack, name in names), *taken]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The gangs whose minimum is planned."""
    real, asked = admission.plan_minimum, []

    def note(gang: Any, inventory: Any, **more: Any) -> Any:
        asked.append(gang.name)
        return real(gang, inventory, **more)

    monkeypatch.setattr(admission, "plan_minimum", note)
    return asked


async def test_the_oldest_of_500_gets_the_rack_that_is_freed_node_by_node(planned: list[str]) -> None:
    units = [each for number in range(500) for each in aged(f"g{(number * 317) % 500}", (number * 317) % 500)]
    loop = Loop(cache(*racks(2), *units))
    assert await loop.turn() == {}
    assert len(planned) == 1
    for number in range(4):
        drop(loop.cache, loop.cache.pods.store["ns", f"taken-n1-{number}"])
        got = await loop.turn()
    assert {name.split("-")[0] for name in got} == {"g0"}
    assert len(planned) == 3  # g0 that fits, and the next one, which does not


async def test_the_urgent_one_comes_first_wherever_it_stands_in_the_queue() -> None:
    units = [each for number in range(100) for each in aged(f"g{number}", number)]
    loop = Loop(cache(*racks(1), *units, *aged("urgent", 5000, priority=7)))
    assert await loop.turn() == {}
    for number in range(4):
        drop(loop.cache, loop.cache.pods.store["ns", f"taken-n0-{number}"])
        got = await loop.turn()
    assert {name.split("-")[0] for name in got} == {"urgent"}


async def test_one_that_arrives_while_another_is_planned_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), *tree("a")))
    real = admission.plan_minimum

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        answer = real(gang, inventory, **more)
        monkeypatch.setattr(admission, "plan_minimum", real)
        for each in tree("urgent", priority=5):
            put(loop.cache, each)
        return answer

    monkeypatch.setattr(admission, "plan_minimum", slow)
    assert await loop.turn() == {"urgent-decode-0-0": "n1"}


async def test_a_plan_waits_for_one_that_ranks_higher_and_is_used_when_that_one_does_not_fit(
    planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(cache(node("n1"), *tree("a")))
    noted = admission.plan_minimum

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        answer = noted(gang, inventory, **more)
        monkeypatch.setattr(admission, "plan_minimum", noted)
        for each in tree("urgent", replicas=2, minimum=2, priority=5):
            put(loop.cache, each)
        return answer

    monkeypatch.setattr(admission, "plan_minimum", slow)
    assert await loop.turn() == {"a-decode-0-0": "n1"}
    assert planned == ["a", "urgent"]


async def test_a_node_that_helps_nobody_costs_no_plan_and_no_word(planned: list[str]) -> None:
    told: list[Key] = []
    loop = Loop(
        cache(*racks(3), *(each for number in range(50) for each in aged(f"g{number}", number))), decided=told.append
    )
    await loop.turn()
    planned.clear()
    told.clear()
    for rack in range(3):
        for number in range(3):  # of each rack one node stays taken
            drop(loop.cache, loop.cache.pods.store["ns", f"taken-n{rack}-{number}"])
            assert await loop.turn() == {}
    assert not planned
    assert not told


async def test_the_numbers_of_an_answer_get_only_so_old(planned: list[str]) -> None:
    loop = Loop(cache(*racks(1), *(each for number in range(5) for each in aged(f"g{number}", number))))
    await loop.turn()
    before = loop.admission.decision(root_key("g3")).message
    planned.clear()
    for number in range(3):
        drop(loop.cache, loop.cache.pods.store["ns", f"taken-n0-{number}"])
    assert await loop.turn() == {}
    assert not planned
    now = asyncio.get_running_loop().time()
    loop.admission._books.ask_again(now + 1.0)
    await loop.turn()
    assert not planned  # it is not old yet
    for _ in range(3):
        loop.admission._books.ask_again(now + books.RETELL + 1.0)
        await loop.turn()
    assert len(planned) == 1  # nothing has changed since
    assert loop.admission.decision(root_key("g3")).message != before


async def test_a_refusal_is_unchecked_from_a_change_until_it_is_asked_again() -> None:
    def unchecked() -> float | None:
        return REGISTRY.get_sample_value("covey_refusals_unchecked_age_seconds")

    loop = Loop(cache(*racks(1), *(each for number in range(5) for each in aged(f"g{number}", number))))
    await loop.turn()
    asked = asyncio.get_running_loop().time()
    loop.admission._books.ask_again(asked + 1000.0)
    assert unchecked() == 0  # nothing has changed: it holds, however old it is
    drop(loop.cache, loop.cache.pods.store["ns", "taken-n0-0"])
    await loop.turn()
    loop.admission._books.ask_again(asked + 1000.0)
    assert unchecked() == pytest.approx(1000.0, abs=5.0)
    # It stands in line now, and would do so for ever if nobody planned.
    loop.admission._books.ask_again(asked + 2000.0)
    assert unchecked() == pytest.approx(2000.0, abs=5.0)
    await loop.turn()
    loop.admission._books.ask_again(asked + 1.0)
    assert unchecked() == 0


async def test_gangs_that_ask_the_same_share_one_refusal_and_others_do_not(planned: list[str]) -> None:
    units = [each for number in range(30) for each in aged(f"g{number}", number)]
    loop = Loop(cache(*racks(1), *units, *tree("other", replicas=5, minimum=5, schedulingConstraints=RACK)))
    await loop.turn()
    assert len(planned) == 2
    messages = {loop.admission.decision(root_key(f"g{number}")).message for number in range(30)}
    assert len(messages) == 1
    assert loop.admission.decision(root_key("other")).message not in messages


async def test_a_newcomer_that_asks_what_was_refused_takes_the_answer_over(planned: list[str]) -> None:
    loop = Loop(cache(*racks(1), *aged("g0", 0)))
    await loop.turn()
    for each in aged("late", 100):
        put(loop.cache, each)
    await loop.turn()
    assert len(planned) == 1
    assert loop.admission.decision(root_key("late")).reason == "Infeasible"


async def test_two_racks_at_once_go_to_the_two_oldest() -> None:
    loop = Loop(cache(*racks(2), *(each for number in range(20) for each in aged(f"g{number}", number))))
    await loop.turn()
    for name in [name for _, name in loop.cache.pods.store if name.startswith("taken")]:
        drop(loop.cache, loop.cache.pods.store["ns", name])
    assert {name.split("-")[0] for name in await loop.turn()} == {"g0", "g1"}


async def test_a_gang_whose_plans_are_never_good_in_time_is_planned_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(cache(node("n1"), *tree("odd")))
    monkeypatch.setattr(loop.admission, "_still_good", lambda *_: None)
    later: list[float] = []
    running = asyncio.get_running_loop()
    monkeypatch.setattr(running, "call_later", lambda seconds, *_: later.append(seconds))
    for _ in range(12):
        loop.admission.mark(root_key("odd"))
        await loop.turn()
    waits = [each for each in later if each in {FIRST * 2.0**number for number in range(9)} | {LONGEST}]
    assert waits == [*(FIRST * 2.0**number for number in range(8)), *[LONGEST] * 4]
    monkeypatch.undo()
    loop.admission.mark(root_key("odd"))
    assert set(await loop.turn()) == {"odd-decode-0-0"}
