"""One pass of admission over a cache, with the patches taken for sent: who gets a place, in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from builders.members import GATE, cache, drop, group, member, node, pod, put, root_key
from covey.api import core
from covey.kube.clock import Clock
from covey.placement.model import Refusal, Verdict
from covey.scheduler import admission, books
from covey.scheduler.queue import FIRST, LONGEST, Queueing
from covey.scheduler.topologies import Topologies
from scheduler_loop import Loop, labels, tree
from virtual_time import virtual


async def test_what_does_not_fit_gets_nothing_and_a_reason() -> None:
    loop = Loop(cache(node("n1"), *tree("big", replicas=2, minimum=2)))
    assert await loop.turn() == {}
    decision = loop.admission.decision(root_key("big"))
    assert decision.reason == "Infeasible"
    assert "nvidia.com/gpu" in decision.message


async def test_a_refused_gang_is_planned_again_when_a_node_can_help_only(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), pod("occupant", node="n1", gpus=8), *tree("one")))
    assert await loop.turn() == {}
    asked: list[object] = []
    real = admission.plan_minimum
    monkeypatch.setattr(
        admission,
        "plan_minimum",
        lambda gang, inventory, **more: (asked.append(gang), real(gang, inventory, **more))[1],
    )
    put(loop.cache, node("n2", gpus=4))
    assert await loop.turn() == {}
    assert not asked
    put(loop.cache, node("n3"))
    assert await loop.turn() == {"one-decode-0-0": "n3"}
    assert len(asked) == 1


async def test_priority_comes_before_age_and_age_before_names() -> None:
    units = [*tree("a", priority=1), *tree("b", priority=9), *tree("c", priority=9)]
    assert set(await Loop(cache(node("n1"), *units)).turn()) == {"b-decode-0-0"}


async def test_surplus_waits_for_minimums_that_are_still_being_created() -> None:
    running = tree("run", replicas=2)
    loop = Loop(cache(node("n1"), node("n2"), *running))
    put(loop.cache, member("decode", 0, root="run", node="n1", gpus=8))
    newcomer = tree("new", replicas=2, minimum=2, gpus=4)
    for each in newcomer[:-1]:
        put(loop.cache, each)
    assert await loop.turn() == {}
    put(loop.cache, newcomer[-1])
    assert await loop.turn() == {"new-decode-0-0": "n2", "new-decode-1-0": "n2"}


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


@pytest.mark.parametrize(
    "newcomer",
    [
        [group("junk", minimum=1, priority=2_000_000_000)],
        [*tree("junk", gpus=8, schedulingConstraints={"topology": [{"level": "none", "mode": "Required"}]})],
    ],
    ids=["no pods", "cannot be built"],
)
async def test_surplus_waits_for_nobody_who_cannot_use_the_room(newcomer: list[core.Group | core.Pod]) -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("run", replicas=2), *newcomer))
    put(loop.cache, member("decode", 0, root="run", node="n1", gpus=8))
    assert await loop.turn() == {"run-decode-1-0": "n2"}


async def test_surplus_waits_for_nobody_who_is_short_of_something_else() -> None:
    newcomer = tree("new", replicas=2, minimum=2, gpus=8)[:-1]
    loop = Loop(cache(node("n1"), node("n2"), *tree("run", replicas=2, gpus=0), *newcomer))
    put(loop.cache, member("decode", 0, root="run", node="n1", gpus=0))
    assert set(await loop.turn()) == {"run-decode-1-0"}


async def test_a_decision_holds_its_room_at_once() -> None:
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    assert len(await loop.turn()) == 1
    assert loop.cache.capacity.room.free("n1")["nvidia.com/gpu"] == 0
    assert await loop.turn() == {}


async def test_pins_around_which_nothing_fits_are_given_up() -> None:
    loop = Loop(cache(node("n1"), *tree("half", replicas=2, minimum=2)))
    put(loop.cache, member("decode", 0, root="half", pin="n1", gpus=8))
    await loop.turn()
    assert loop.writer.released == ["half-decode-0-0"]


async def test_a_gang_on_which_the_planner_fails_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    real = admission.plan_minimum

    def fail(gang: Any, inventory: Any, **more: Any) -> Any:
        if gang.name == "a":
            raise ZeroDivisionError
        return real(gang, inventory, **more)

    monkeypatch.setattr(admission, "plan_minimum", fail)
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    assert await loop.turn() == {"b-decode-0-0": "n1"}
    assert loop.admission.decision(root_key("a")).message == admission.FAILED


async def test_a_plan_is_dropped_when_the_world_changed_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("one")))
    real = admission.plan_minimum

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        answer = real(gang, inventory, **more)
        monkeypatch.setattr(admission, "plan_minimum", real)
        put(loop.cache, pod("thief", node=answer.assignments[0].node, gpus=8))
        return answer

    monkeypatch.setattr(admission, "plan_minimum", slow)
    [place] = (await loop.turn()).values()
    assert loop.cache.capacity.room.free(place)["nvidia.com/gpu"] == 0
    assert loop.cache.pods.store["ns", "thief"].spec.node_name != place


async def test_labels_that_come_late_help_a_unit_that_lacked_them() -> None:
    wish = {"topology": [{"level": "rack", "mode": "Required"}]}
    loop = Loop(cache(node("n1"), *tree("one", schedulingConstraints=wish)))
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("one")).reason == "InvalidTopology"
    put(loop.cache, node("n1", labels=labels()))
    assert loop.admission._wake.is_set()
    assert await loop.turn() == {"one-decode-0-0": "n1"}


async def test_the_end_of_a_reservation_helps_those_whom_it_kept_out() -> None:
    status = {
        "conditions": [{"type": "Admitted", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        "claim": {"level": "block", "path": ["z", "b1"], "since": "2020-01-01T00:10:00Z"},
    }
    late = tree("late", priority=0)
    big = [
        group("big", composite=True, minimum=1, desired=1, priority=1, status=status),
        *tree("big", replicas=2, minimum=2)[1:],
    ]
    taken = pod("taken", node="n2", gpus=8)
    loop = Loop(cache(node("n1", labels=labels()), node("n2", labels=labels()), taken, *big, *late))
    assert await loop.turn() == {}
    assert "reserved for another gang" in loop.admission.decision(root_key("late")).message
    assert isinstance(big[0], core.Group)
    drop(loop.cache, big[0])
    assert await loop.turn() == {"late-decode-0-0": "n1"}


async def test_a_unit_that_cannot_be_judged_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    real = books.assess

    def fail(unit: Any, *more: Any) -> Any:
        if unit.key == root_key("a"):
            raise ZeroDivisionError
        return real(unit, *more)

    monkeypatch.setattr(books, "assess", fail)
    assert await loop.turn() == {"b-decode-0-0": "n1"}
    decision = loop.admission.decision(root_key("a"))
    assert (decision.reason, decision.message) == ("PlannerFailed", admission.FAILED)


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
    decision = loop.admission.decision(root_key("one"))
    assert decision.reason == "PinDenied"
    assert decision.message.startswith("the API server denied the pin of pod one-decode-1-0 to node n")
    assert decision.message.endswith(": policy says no")
    put(loop.cache, member("decode", 0, root="one", pin=loop.place("one-decode-0-0"), gpus=8))
    asked = loop.writer.asked
    for number in range(50):
        put(loop.cache, node(f"new-{number}"))
        loop.admission.mark(root_key("one"))
        assert await loop.turn() == {}
    assert loop.writer.asked == asked
    # A retry asks for the one pod that has no place yet, and each comes later than the one before.
    times = 0
    while loop.now < 100.0:
        loop.now += 0.5
        loop.admission.mark(root_key("one"))
        await loop.turn()
    times = loop.writer.asked - asked
    assert times == 5  # after 2, 4, 8, 16, 32 s
    loop.writer.denied = ""
    loop.now += LONGEST
    loop.admission.mark(root_key("one"))
    assert set(await loop.turn()) == {"one-decode-1-0"}


async def test_a_gang_with_a_denied_pod_takes_no_room_for_the_others_again() -> None:
    made = tree("one", replicas=2, minimum=2)
    loop = Loop(cache(node("n1"), node("n2"), *made))
    loop.writer.denied = "one-decode-1-0"
    assert set(await loop.turn()) == {"one-decode-0-0"}
    # Its time is up: the mate is replaced, and its place with it.
    drop(loop.cache, member("decode", 0, root="one"))
    put(loop.cache, member("decode", 0, root="one", name="successor", gates=(GATE,), gpus=8))
    loop.now += FIRST
    loop.admission.mark(root_key("one"))
    assert await loop.turn() == {}
    assert loop.writer.asked > 2
    assert sum(loop.cache.capacity.room.free(name)["nvidia.com/gpu"] for name in ("n1", "n2")) == 16
    # Nor after a restart: the root's status tells the next process.
    said = {"conditions": [{"type": "Admitted", "status": "False", "reason": "PinDenied", "message": "policy"}]}
    root = group("one", composite=True, minimum=1, desired=1, status=said)
    loop = Loop(cache(node("n1"), node("n2"), root, *made[1:]))
    loop.writer.denied = "one-decode-1-0"
    assert await loop.turn() == {}


async def test_a_gang_that_met_the_limit_is_planned_again_later_and_only_if_something_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def limited(gang: Any, *_: Any, **__: Any) -> Any:
        asked.append(gang.name)
        return Refusal(Verdict.UNKNOWN, ())

    monkeypatch.setattr(admission, "plan_minimum", limited)
    loop = Loop(cache(node("n1"), *tree("hard")))
    await loop.turn()
    assert loop.admission.decision(root_key("hard")).reason == "SearchLimit"
    for number in range(20):
        put(loop.cache, node(f"new-{number}"))
        await loop.turn()
    assert len(asked) == 1
    loop.now += FIRST
    loop.admission._books.resume(root_key("hard"))
    await loop.turn()
    assert len(asked) == 2
    loop.now += 2 * FIRST
    loop.admission._books.resume(root_key("hard"))  # nothing has changed since
    await loop.turn()
    assert len(asked) == 2
    put(loop.cache, node("another"))
    await loop.turn()
    assert len(asked) == 3


async def test_a_gang_on_which_the_planner_fails_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    real = admission.plan_minimum
    asked: list[str] = []

    def fail(gang: Any, *_: Any, **__: Any) -> Any:
        asked.append(gang.name)
        raise ZeroDivisionError

    monkeypatch.setattr(admission, "plan_minimum", fail)
    loop = Loop(cache(node("n1"), *tree("a")))
    for number in range(20):
        put(loop.cache, node(f"new-{number}"))
        loop.admission.mark(root_key("a"))
        await loop.turn()
    assert len(asked) == 1
    monkeypatch.setattr(admission, "plan_minimum", real)
    loop.now += FIRST
    loop.admission._books.resume(root_key("a"))
    assert set(await loop.turn()) == {"a-decode-0-0"}
    assert loop.admission.decision(root_key("a")).reason is None


async def test_two_roots_of_one_name_both_get_their_places() -> None:
    lonely = pod("lonely", group="twin", gates=(GATE,), gpus=8)
    loop = Loop(cache(node("n1"), node("n2"), *tree("twin"), group("twin", minimum=1), lonely))
    assert set(await loop.turn()) == {"twin-decode-0-0", "lonely"}


async def test_a_refusal_keeps_the_pins_whose_mate_waits_for_its_predecessor_to_end() -> None:
    made = tree("one", replicas=2, minimum=2)
    loop = Loop(cache(node("n1"), node("n2"), *made[:-2]))
    put(loop.cache, member("decode", 0, root="one", pin="n1", gpus=8))
    old = member("decode", 1, root="one", name="old", node="n2", gpus=8, deleted=True)
    put(loop.cache, old)
    put(loop.cache, member("decode", 1, root="one", name="successor", gates=(GATE,), gpus=8))
    assert await loop.turn() == {}
    assert loop.admission.decision(root_key("one")).reason == "Infeasible"
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
