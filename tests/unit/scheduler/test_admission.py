"""One pass of admission over a cache, with the patches taken for sent: who gets a place, in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import GATE, cache, drop, group, member, node, pod, put, root_key
from covey.admission.status import statuses
from covey.api import core
from covey.api.constants import REASON_DENIED
from covey.kube.clock import Clock
from covey.scheduler import cycle
from covey.scheduler.queue import MAX_BACKOFF
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from scheduler_loop import WALL, Loop, labels, tree
from virtual_time import virtual


async def test_a_minimum_goes_where_all_of_its_unit_fits_beside_the_surplus_that_others_lack() -> None:
    """Either rack holds one unit whole; the first takes the smaller one, and half of it is there."""
    wish = {"topology": [{"level": "rack", "mode": "Required"}]}
    nodes = [node(f"r{rack}-n{number}", labels=labels(f"r{rack}")) for rack in (1, 2) for number in range(4 + rack)]
    first = tree("a", replicas=4, minimum=1, schedulingConstraints=wish)
    second = tree("b", replicas=4, minimum=1, schedulingConstraints=wish)
    loop = Loop(cache(*nodes, *first, *second))
    places = await loop.turn()
    assert {name: place[:2] for name, place in places.items()} == {"a-decode-0-0": "r1", "b-decode-0-0": "r2"}
    for name in "ab":
        put(loop.cache, member("decode", 0, root=name, node=loop.place(f"{name}-decode-0-0"), gpus=8))
    assert {name: place[:2] for name, place in (await loop.turn()).items()} == {
        f"{name}-decode-{number}-0": rack for name, rack in (("a", "r1"), ("b", "r2")) for number in (1, 2, 3)
    }


async def test_a_minimum_when_its_unit_fits_nowhere_beside_the_surplus_of_others_is_placed() -> None:
    wish = {"topology": [{"level": "rack", "mode": "Required"}]}
    nodes = [node(f"n{number}", labels=labels()) for number in range(4)]
    units = [tree(name, replicas=3, minimum=1, schedulingConstraints=wish) for name in "abcd"]
    loop = Loop(cache(*nodes, *(body for unit in units for body in unit)))
    assert set(await loop.turn()) == {f"{name}-decode-0-0" for name in "abcd"}


async def test_a_gang_on_which_the_planner_fails_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cycle.plan_minimum

    def fail(gang: Any, inventory: Any, **more: Any) -> Any:
        if gang.name == "a":
            raise ZeroDivisionError
        return real(gang, inventory, **more)

    monkeypatch.setattr(cycle, "plan_minimum", fail)
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    assert await loop.turn() == {"b-decode-0-0": "n1"}
    assert loop.queue.decision(root_key("a")).message == cycle.FAILED


async def test_a_plan_is_dropped_when_the_world_changed_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("one")))
    real = cycle.plan_minimum

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        answer = real(gang, inventory, **more)
        monkeypatch.setattr(cycle, "plan_minimum", real)
        put(loop.cache, pod("thief", node=answer.assignments[0].node, gpus=8))
        return answer

    monkeypatch.setattr(cycle, "plan_minimum", slow)
    [place] = (await loop.turn()).values()
    assert loop.cache.capacity.room.free(place)["nvidia.com/gpu"] == 0
    assert loop.cache.pods.store["ns", "thief"].spec.node_name != place


async def test_pods_that_fail_on_a_node_together_are_one_failure() -> None:
    now = wall = 1_000.0
    made = cache(node("n1"), *tree("one"))
    queueing = Queueing(made, Topologies(made), reserve_after=300.0, clock=Clock(lambda: now, lambda: wall))
    unit = made.index.unit(root_key("one"))
    assert unit is not None

    def excluded_for() -> float:
        kept, _, _ = queueing.around(unit)
        return (core.seconds(kept.excluded[0].until) or 0.0) - wall if kept.excluded else 0.0

    for _ in range(8):
        queueing.exclude(unit, "n1", "it does not like us")
    assert excluded_for() == 60.0
    wall += 10_000.0  # the clock is set; nothing has passed
    assert queueing.around(unit)[0].excluded
    wall -= 20_000.0
    now += 61.0
    assert excluded_for() == 0.0
    queueing.exclude(unit, "n1", "still not")
    assert excluded_for() == 120.0


async def test_a_denied_pin_is_not_sent_again_before_its_time_whatever_happens() -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("one", replicas=2, minimum=2)))
    loop.writer.denied = "one-decode-1-0"
    assert set(await loop.turn()) == {"one-decode-0-0"}
    decision = loop.queue.decision(root_key("one"))
    assert decision.reason == "PinDenied"
    assert decision.message.startswith("the API server denied the pin of pod one-decode-1-0 to node n")
    assert decision.message.endswith(": policy says no")
    put(loop.cache, member("decode", 0, root="one", pin=loop.place("one-decode-0-0"), gpus=8))
    asked = loop.writer.asked
    for number in range(50):
        put(loop.cache, node(f"new-{number}"))
        loop.queue.requeue(root_key("one"))
        assert await loop.turn() == {}
    assert loop.writer.asked == asked
    # A retry asks for the one pod that has no place yet, and each comes later than the one before.
    times = 0
    while loop.now < 100.0:
        loop.now += 0.5
        loop.queue.requeue(root_key("one"))
        await loop.turn()
    times = loop.writer.asked - asked
    assert times == 5  # after 2, 4, 8, 16, 32 s
    loop.writer.denied = ""
    loop.now += MAX_BACKOFF
    loop.queue.requeue(root_key("one"))
    assert set(await loop.turn()) == {"one-decode-1-0"}


async def test_a_refusal_keeps_the_pins_whose_mate_waits_for_its_predecessor_to_end() -> None:
    made = tree("one", replicas=2, minimum=2)
    loop = Loop(cache(node("n1"), node("n2"), *made[:-2]))
    put(loop.cache, member("decode", 0, root="one", pin="n1", gpus=8))
    old = member("decode", 1, root="one", name="old", node="n2", gpus=8, deleted=True)
    put(loop.cache, old)
    put(loop.cache, member("decode", 1, root="one", name="successor", gates=(GATE,), gpus=8))
    assert await loop.turn() == {}
    assert loop.queue.decision(root_key("one")).reason == "Infeasible"
    assert loop.writer.released == []
    drop(loop.cache, old)
    assert await loop.turn() == {"successor": "n2"}


async def test_a_stranger_that_ends_under_a_gangs_label_keeps_no_pins() -> None:
    made = tree("one", replicas=2, minimum=2)
    loop = Loop(cache(node("n1"), node("n2"), *made[:-2]))
    put(loop.cache, member("decode", 0, root="one", pin="n1", gpus=8))
    put(loop.cache, member("decode", 1, root="one", name="sly", node="n2", gpus=8, deleted=True, owner=None))
    put(loop.cache, member("decode", 1, root="one", name="mate", gates=(GATE,), gpus=8))
    await loop.turn()
    assert loop.writer.released == ["one-decode-0-0"]


@virtual
async def test_nothing_is_decided_on_half_of_a_list() -> None:
    loop = Loop(cache(node("n1"), *tree("one")))
    loop.cache.pods.steady.clear()
    running = asyncio.create_task(loop.turn())
    await asyncio.sleep(0.02)
    assert loop.writer.asked == 0
    put(loop.cache, pod("occupant", node="n1", gpus=8))
    loop.cache.pods.steady.set()
    assert await asyncio.wait_for(running, 10) == {}


async def test_surplus_when_its_pin_is_denied_is_refused_in_the_words_of_the_api_server() -> None:
    objects = tree("g", replicas=2, minimum=1)
    placed = member("decode", 0, root="g", gpus=8, node="n0")
    loop = Loop(cache(node("n0", labels=labels()), node("n1", labels=labels()), *objects[:-2], placed, objects[-1]))
    loop.writer.denied = "g-decode-1-0"
    assert await loop.turn() == {}
    loop.queue.requeue(root_key("g"))
    await loop.turn()
    decision, unit = loop.queue.decision(root_key("g")), loop.cache.index.unit(root_key("g"))
    assert unit is not None
    assert decision.reason == REASON_DENIED
    [written] = [
        status for group, status in statuses(unit, decision, lambda _: (), core.rfc3339(WALL)) if group is unit.root
    ]
    said = {each["type"]: each for each in written["conditions"]}
    assert (said["Admitted"]["status"], said["SurplusAdmitted"]["status"]) == ("True", "False")
    assert said["SurplusAdmitted"]["reason"] == REASON_DENIED
    assert "policy says no" in said["SurplusAdmitted"]["message"]


async def test_groups_when_their_parents_are_a_circle_are_refused_by_name_until_it_is_broken() -> None:
    circle = [group(name, composite=True, parent=above, minimum=1) for above, name in ("ba", "ab")]
    below = [group("leaf-0", parent="a", minimum=1), member("0", 0, root="leaf", name="p", gates=(GATE,), gpus=8)]
    loop = Loop(cache(node("n1", labels=labels()), *circle, *below))
    await loop.turn()
    for root in loop.cache.index.roots():
        decision = loop.queue.decision(root)
        assert decision.reason == "Unsupported"
        assert "in a circle" in decision.message
    assert len(loop.cache.index.roots()) == 3
    for each in circle:
        drop(loop.cache, each)
    put(loop.cache, group("a", composite=True, minimum=1, desired=1))
    await loop.turn()
    assert [root.name for root in loop.cache.index.roots()] == ["a"]
    assert "circle" not in loop.queue.decision(root_key("a")).message
    assert loop.place("p") == "n1"
