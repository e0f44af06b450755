"""One pass of admission over a cache, with the patches taken for sent: who gets a place, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from covey.api import core, times
from covey.scheduler import admission
from covey.scheduler.admission import Admission
from covey.scheduler.cache import Cache
from covey.scheduler.commit import Committer
from covey.scheduler.lives import Lives
from covey.scheduler.queueing import Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.topologies import Topologies
from covey.scheduler.writer import Pinned
from scheduler_builders import GATE, cache, drop, group, member, node, pod, put, role_groups


class Writer:
    """Takes every patch for sent, and notes it."""

    def __init__(self) -> None:
        self.pinned: dict[str, str] = {}
        self.released: list[str] = []

    async def pin(self, found: core.Pod, place: str, _domains: Mapping[str, str], _dropped: object) -> Pinned:
        self.pinned[found.metadata.name] = place
        return Pinned.DONE

    async def release(self, found: core.Pod, _reason: str) -> bool:
        self.released.append(found.metadata.name)
        return True


class Loop:
    """Admission over a cache."""

    def __init__(self, made: Cache) -> None:
        self.cache = made
        self.writer = Writer()
        writer: Any = self.writer
        queueing = Queueing(made, Topologies(made), reserve_after=300.0)
        recorder: Any = type("Silent", (), {"event": lambda *_: None})()
        reservations = Reservations(made, reserve_after=300.0)
        committer = Committer(made, writer)
        self.admission = Admission(
            made, committer, writer, queueing, reservations, recorder, Lives(), decided=lambda _root: None
        )
        self.admission.begin()

    async def turn(self) -> dict[str, str]:
        """One pass; returns the pods that it gave places, and where."""
        self.writer.pinned.clear()
        await self.admission._pass()
        for task in list(self.admission._commits):
            await task
        return dict(self.writer.pinned)


def tree(name: str, *, replicas: int = 1, minimum: int = 1, gpus: int = 8, **root: Any) -> list[core.Group | core.Pod]:
    groups = [
        group(name, composite=True, minimum=1, desired=1, **root),
        *role_groups("decode", replicas=replicas, minimum=minimum, size=1, root=name),
    ]
    return [*groups, *(member("decode", number, root=name, gates=(GATE,), gpus=gpus) for number in range(replicas))]


async def test_what_does_not_fit_gets_nothing_and_a_reason() -> None:
    loop = Loop(cache(node("n1"), *tree("big", replicas=2, minimum=2)))
    assert await loop.turn() == {}
    decision = loop.admission.decision(("ns", "big"))
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
    newcomer = tree("new")
    for each in newcomer[:-1]:
        put(loop.cache, each)
    assert await loop.turn() == {}
    put(loop.cache, newcomer[-1])
    assert await loop.turn() == {"new-decode-0-0": "n2"}


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
    assert loop.admission.decision(("ns", "a")).message == admission.FAILED


async def test_a_plan_is_dropped_when_the_world_changed_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("one")))
    real = admission.plan_minimum

    def slow(gang: Any, inventory: Any, **more: Any) -> Any:
        answer = real(gang, inventory, **more)
        monkeypatch.setattr(admission, "plan_minimum", real)
        put(loop.cache, pod("thief", node=answer.assignments[0].node, gpus=8))
        return answer

    monkeypatch.setattr(admission, "plan_minimum", slow)
    assert await loop.turn() == {}
    [place] = (await loop.turn()).values()
    assert loop.cache.capacity.room.free(place)["nvidia.com/gpu"] == 0
    assert loop.cache.pods.store["ns", "thief"].spec.node_name != place


def labels(rack: str = "r1") -> dict[str, str]:
    prefix = "cloud.provider.com/topology-"
    return {"topology.kubernetes.io/zone": "z", f"{prefix}block": "b1", f"{prefix}rack": rack}


async def test_labels_that_come_late_help_a_unit_that_lacked_them() -> None:
    wish = {"topology": [{"level": "rack", "mode": "Required"}]}
    loop = Loop(cache(node("n1"), *tree("one", schedulingConstraints=wish)))
    assert await loop.turn() == {}
    assert loop.admission.decision(("ns", "one")).reason == "InvalidTopology"
    put(loop.cache, node("n1", labels=labels()))
    assert loop.admission._wake.is_set()
    assert await loop.turn() == {"one-decode-0-0": "n1"}


async def test_the_end_of_a_reservation_helps_those_whom_it_kept_out() -> None:
    status = {
        "conditions": [{"type": "Admitted", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}],
        "reservation": {"level": "block", "path": ["z", "b1"], "since": "2020-01-01T00:10:00Z"},
    }
    late = tree("late", priority=0)
    big = [
        group("big", composite=True, minimum=1, desired=1, priority=1, status=status),
        *tree("big", replicas=2, minimum=2)[1:],
    ]
    loop = Loop(cache(node("n1", labels=labels()), *big, *late))
    assert await loop.turn() == {}
    assert "reserved for another gang" in loop.admission.decision(("ns", "late")).message
    assert isinstance(big[0], core.Group)
    drop(loop.cache, big[0])
    assert await loop.turn() == {"late-decode-0-0": "n1"}


async def test_a_unit_that_cannot_be_judged_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    real = admission.assess

    def fail(unit: Any, *more: Any) -> Any:
        if unit.key == ("ns", "a"):
            raise ZeroDivisionError
        return real(unit, *more)

    monkeypatch.setattr(admission, "assess", fail)
    assert await loop.turn() == {"b-decode-0-0": "n1"}
    decision = loop.admission.decision(("ns", "a"))
    assert (decision.reason, decision.message) == ("PlannerFailed", admission.FAILED)


async def test_pods_that_fail_on_a_node_together_are_one_failure() -> None:
    now = 1_000.0
    made = cache(node("n1"), *tree("one"))
    queueing = Queueing(made, Topologies(made), reserve_after=300.0, clock=lambda: now)
    unit = made.index.unit(("ns", "one"))
    assert unit is not None

    def excluded_for() -> float:
        kept, _, _ = queueing.around(unit)
        return (times.seconds(kept.excluded[0].until) or 0.0) - now if kept.excluded else 0.0

    for _ in range(8):
        queueing.exclude(unit, "n1", "it does not like us")
    assert excluded_for() == 60.0
    now += 61.0
    assert excluded_for() == 0.0
    queueing.exclude(unit, "n1", "still not")
    assert excluded_for() == 120.0
