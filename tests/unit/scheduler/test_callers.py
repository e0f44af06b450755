"""Pins are late for a kube-scheduler that calls, and for none that is away."""

from __future__ import annotations

from typing import Any

import pytest

from builders.members import cache, group, member, node, put, root_key
from covey.api import core
from covey.kube.clock import Clock
from covey.scheduler.certificates import BELIEVED, QUIET, Callers
from covey.scheduler.releases import Releases
from scheduler_loop import context_of
from unit.scheduler.test_releases import GROUPS, Writes

SINCE = "2026-01-01T00:00:00Z"
TIMEOUT = 100


class World:
    """One pin whose gang was admitted at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held = False
        self.callers = Callers(lambda: self.held, clock=lambda: self.now)
        admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": SINCE}
        status = {"conditions": [admitted]}
        root = group("root", composite=True, minimum=1, timeoutSeconds=TIMEOUT, status=status)
        self.cache = cache(root, *GROUPS[1:], node("n1"), member("decode", 0, pin="n1"))
        self.writes = Writes()
        writer: Any = self.writes
        self.watch = Releases(
            context_of(self.cache, writer, Clock(lambda: self.now, lambda: (core.seconds(SINCE) or 0.0) + self.now)),
            exclude=lambda *_: None,
            arrived=lambda _: False,
            callers=self.callers,
        )
        self.watch._admitted_at[root_key("root")] = 0.0
        self.watch._pinned_at["uid-root-decode-0-0"] = 0.0

    async def late(self, now: float) -> bool:
        self.now = now
        await self.watch._check_unit(root_key("root"))
        return bool(self.writes.said)


@pytest.mark.parametrize("calls", [[], [TIMEOUT - QUIET], [10.0, 60.0]])
async def test_time_is_up_where_calls_come_or_nobody_knows(calls: list[float]) -> None:
    world = World()
    for world.now in calls:
        world.callers.note()
    assert not await world.late(TIMEOUT - 1.0)
    assert await world.late(TIMEOUT)


async def test_while_kube_scheduler_is_away_no_pin_is_late() -> None:
    world = World()
    world.callers.note()
    assert not await world.late(10.0 * TIMEOUT)
    world.callers.note()  # it is back, and has all that waits to do
    assert not await world.late(10.0 * TIMEOUT + QUIET)
    world.callers.note()
    assert not await world.late(11.0 * TIMEOUT - 1.0)
    assert await world.late(11.0 * TIMEOUT)


async def test_who_waits_for_an_answer_is_there() -> None:
    world = World()
    world.callers.note()
    world.held = True
    assert await world.late(TIMEOUT)


async def test_silence_is_not_believed_for_ever() -> None:
    world = World()
    world.callers.note()
    assert not await world.late(BELIEVED)
    assert await world.late(BELIEVED + 1.0)


async def test_a_pin_that_is_bound_was_asked_for() -> None:
    world = World()
    world.callers.note()
    world.watch._running = True
    world.now = 10.0 * TIMEOUT
    put(world.cache, member("decode", 0, pin="n1", node="n1"))
    assert not world.callers.away
    assert world.callers.back == world.now
