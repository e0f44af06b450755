"""One pass of admission over a cache, with the patches taken for sent: who gets a place, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from covey.api import core
from covey.scheduler import admission
from covey.scheduler.admission import Admission
from covey.scheduler.cache import Cache
from covey.scheduler.commit import Committer
from covey.scheduler.queueing import Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.topologies import Topologies
from covey.scheduler.writer import Pinned
from scheduler_builders import GATE, cache, group, member, node, pod, put, role_groups


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
            made, committer, writer, queueing, reservations, recorder, decided=lambda _root: None
        )
        self.admission._everything()

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
        admission, "plan_minimum", lambda gang, inventory: (asked.append(gang), real(gang, inventory))[1]
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

    def fail(gang: Any, inventory: Any) -> Any:
        if gang.name == "a":
            raise ZeroDivisionError
        return real(gang, inventory)

    monkeypatch.setattr(admission, "plan_minimum", fail)
    loop = Loop(cache(node("n1"), *tree("a"), *tree("b")))
    assert await loop.turn() == {"b-decode-0-0": "n1"}
    assert loop.admission.decision(("ns", "a")).message == admission.FAILED


async def test_a_plan_is_dropped_when_the_world_changed_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(cache(node("n1"), node("n2"), *tree("one")))
    real = admission.plan_minimum

    def slow(gang: Any, inventory: Any) -> Any:
        answer = real(gang, inventory)
        monkeypatch.setattr(admission, "plan_minimum", real)
        put(loop.cache, pod("thief", node=answer.assignments[0].node, gpus=8))
        return answer

    monkeypatch.setattr(admission, "plan_minimum", slow)
    assert await loop.turn() == {}
    [place] = (await loop.turn()).values()
    assert loop.cache.capacity.room.free(place)["nvidia.com/gpu"] == 0
    assert loop.cache.pods.store["ns", "thief"].spec.node_name != place
