from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

import pytest

from builders.members import RELEASE, START, cache, drop, group, member, node, pod, put, role_groups
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.scheduler.cache import Cache
from covey.scheduler.kube_scheduler_presence import QUIET, Callers
from covey.scheduler.releases import DOUBT, RETRY, Releases
from covey.scheduler.writer import PodWriter
from scheduler_loop import context_of, settle
from virtual_time import virtual

GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=4, minimum=1, size=1)]


def victims(made: Cache, name: str = "n1") -> dict[str, str]:
    writer = PodWriter(None, clock=SYSTEM)  # type: ignore[arg-type] # nothing is written
    watch = Releases(context_of(made, writer), exclude=lambda *_: None, arrived=lambda _: False)
    return {found.metadata.name: cause for found, cause in watch.victims(name)}


class Writes:
    """What is asked of the API server, as ``PodWriter`` is asked; kept, and sent nowhere."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []
        self._changed = asyncio.Condition()

    async def release(self, found: core.Pod, reason: str) -> bool:
        return await self._say("release", found, reason)

    async def wake(self, found: core.Pod, mark: str) -> bool:
        return await self._say("wake", found, mark)

    async def wait(self, verb: str, name: str) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: any(each[:2] == (verb, name) for each in self.said))

    async def _say(self, verb: str, found: core.Pod, text: str) -> bool:
        async with self._changed:
            self.said.append((verb, found.metadata.name, text))
            self._changed.notify_all()
        return True


@contextlib.asynccontextmanager
async def running(
    made: Cache, writes: Writes, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
) -> AsyncIterator[Releases]:
    """The watch, over what it finds and what it is told."""
    watch = Releases(context_of(made, writes, Clock(clock, wall)), exclude=lambda *_: None, arrived=lambda _: False)
    async with watching(watch):
        yield watch


@contextlib.asynccontextmanager
async def watching(watch: Releases) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    await settle()
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_released_pod_takes_nobody_with_it_while_it_is_still_there() -> None:
    first: dict[str, Any] = {"created": "2026-01-02T00:00:00Z", "gpus": 4}
    made = cache(
        *GROUPS,
        node("n1"),
        member("decode", 0, pin="n1", gpus=4),
        member("decode", 1, pin="n1", **first),
        pod("thief", node="n1", gpus=4),
    )
    assert victims(made) == {"root-decode-1-0": "insufficient nvidia.com/gpu"}
    put(made, member("decode", 1, pin="n1", annotations={RELEASE: "CapacityTaken"}, **first))
    assert victims(made) == {}
    put(made, pod("another", node="n1", gpus=1))
    assert victims(made) == {"root-decode-0-0": "insufficient nvidia.com/gpu"}


async def test_a_released_pod_that_is_bound_all_the_same_takes_its_room() -> None:
    made = cache(*GROUPS, node("n1"), member("decode", 0, pin="n1", gpus=4), member("decode", 1, pin="n1", gpus=4))
    writes = Writes()
    released: dict[str, Any] = {"gpus": 4, "annotations": {RELEASE: "Timeout"}}
    async with running(made, writes):
        put(made, member("decode", 1, pin="n1", **released))
        put(made, pod("thief", node="n1", gpus=4))
        await settle()
        assert writes.said == []
        put(made, member("decode", 1, node="n1", **released))
        await writes.wait("release", "root-decode-0-0")
    assert writes.said == [("release", "root-decode-0-0", "CapacityTaken")]


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "volume"}


async def test_a_doubt_ends_with_what_raised_it() -> None:
    now = 0.0
    calm, doubtful = member("decode", 0, pin="n1"), member("decode", 0, pin="n1", conditions=[UNSCHEDULABLE])
    made = cache(*GROUPS, node("n1"), doubtful)
    writes = Writes()
    async with running(made, writes, lambda: now):
        await writes.wait("wake", doubtful.metadata.name)
        put(made, calm)
        now = 2 * DOUBT
        put(made, doubtful)
        await settle()
        assert [verb for verb, *_ in writes.said] == ["wake", "wake"]
        now = 4 * DOUBT
        put(made, doubtful)
        await writes.wait("release", doubtful.metadata.name)


@pytest.mark.parametrize(
    ("message", "verbs"),
    [
        ("adding 33 devices exceeds the claim limit of 32", ["wake", "release"]),
        ('Post "https://covey-scheduler/bind": dial tcp: connection refused', []),
        ("failed bind with extender at URL https://covey-scheduler, code 503", []),
    ],
)
async def test_a_pin_when_kube_scheduler_fails_at_it_goes_after_its_back_off_and_no_node_is_left_out(
    message: str, verbs: list[str]
) -> None:
    """That it does not reach Covey says nothing of the pod."""
    now, left_out = 0.0, list[str | None]()
    failed = UNSCHEDULABLE | {"reason": "SchedulerError", "message": message}
    made = cache(*GROUPS, node("n1"), member("decode", 0, pin="n1", conditions=[failed]))
    writes = Writes()
    context = context_of(made, writes, Clock(lambda: now, time.time))
    watch = Releases(context, exclude=lambda _unit, name, _why: left_out.append(name), arrived=lambda _: False)
    async with watching(watch):
        for now in (0.0, 2 * DOUBT, RETRY - 1):
            put(made, member("decode", 0, pin="n1", conditions=[failed], labels={"at": str(now)}))
            await settle()
            assert "release" not in [verb for verb, *_ in writes.said]
        now = RETRY
        put(made, member("decode", 0, pin="n1", conditions=[failed], labels={"at": str(now)}))
        await settle()
    assert [verb for verb, *_ in writes.said] == verbs
    assert left_out == [None] * verbs.count("release")


#: A root whose gang was admitted at a time, and has 100 s to run.
ADMITTED_AT = 1_767_225_600.0
ADMITTED = {"type": "Admitted", "status": "True", "lastTransitionTime": core.rfc3339(ADMITTED_AT)}
TIMED = group("root", composite=True, minimum=1, timeoutSeconds=100, status={"conditions": [ADMITTED]})


async def test_a_pin_that_was_there_before_keeps_its_time_whatever_happens_to_its_pod() -> None:
    made = cache(TIMED, *GROUPS[1:], node("n1"), member("decode", 0, pin="n1"))
    writes = Writes()
    now, wall = 0.0, ADMITTED_AT + 80
    async with running(made, writes, lambda: now, lambda: wall):
        put(made, member("decode", 0, pin="n1", labels={"touched": "yes"}))
        await settle()
        assert writes.said == []
        now += 21
        put(made, member("decode", 0, pin="n1", labels={"touched": "again"}))
        await writes.wait("release", "root-decode-0-0")
    assert writes.said == [("release", "root-decode-0-0", "Timeout")]


async def test_the_time_of_a_pod_that_waits_for_others_to_start_begins_when_its_turn_comes() -> None:
    held = member("decode", 0, pin="n1", gates=(START,))
    made = cache(TIMED, *GROUPS[1:], node("n1"), held)
    writes = Writes()
    now, wall = 0.0, ADMITTED_AT
    async with running(made, writes, lambda: now, lambda: wall):
        now += 5000
        put(made, member("decode", 0, pin="n1", gates=(START,), labels={"touched": "yes"}))
        await settle()
        put(made, member("decode", 0, pin="n1"))
        await settle()
        now += 99
        put(made, member("decode", 0, pin="n1", labels={"touched": "yes"}))
        await settle()
        assert writes.said == []
        now += 2
        put(made, member("decode", 0, pin="n1", labels={"touched": "again"}))
        await writes.wait("release", "root-decode-0-0")
    assert writes.said == [("release", "root-decode-0-0", "Timeout")]


async def test_a_pod_that_waits_at_another_replicas_barrier_is_not_doubted() -> None:
    now = 0.0

    def pinned(mark: str) -> core.Pod:
        marks = {"scheduling.covey.dev/wake": mark}
        return member("decode", 0, pin="n1", conditions=[UNSCHEDULABLE], annotations=marks)

    made = cache(*GROUPS, node("n1"), pinned("1.doubt"))
    writes = Writes()
    async with running(made, writes, lambda: now):
        await writes.wait("wake", "root-decode-0-0")
        put(made, pinned("2.arrived"))
        await settle()
        now = 2 * DOUBT
        put(made, pinned("2.arrived"))
        await settle()
        assert len(writes.said) == 1
        put(made, pinned("3.left"))
        await settle()
        assert [verb for verb, *_ in writes.said] == ["wake", "wake"]
        now = 4 * DOUBT
        put(made, pinned("4.doubt"))
        await writes.wait("release", "root-decode-0-0")


async def test_a_pin_whose_group_returns_is_looked_at_for_its_room_was_free_meanwhile() -> None:
    made = cache(node("n1"), *GROUPS, member("decode", 0, pin="n1", gpus=8))
    writes = Writes()
    async with running(made, writes):
        drop(made, GROUPS[-1])
        put(made, pod("thief", node="n1", gpus=1))
        await settle()
        assert writes.said == []
        put(made, GROUPS[-1])
        await writes.wait("release", "root-decode-0-0")


TIMEOUT = 100.0


class Late:
    """A pin whose gang was admitted at 0, and whose pod changes whenever its time is looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.callers = Callers(lambda: False, clock=lambda: self.now)
        self.writes = Writes()
        self.cache = cache(TIMED, *GROUPS[1:], node("n1"), member("decode", 0, pin="n1"))

    async def __aenter__(self) -> Self:
        clock = Clock(lambda: self.now, lambda: ADMITTED_AT + self.now)
        context = context_of(self.cache, self.writes, clock)
        watch = Releases(context, exclude=lambda *_: None, arrived=lambda _: False, callers=self.callers)
        self._watching = watching(watch)
        await self._watching.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watching.__aexit__(None, None, None)

    async def is_given_up(self, now: float) -> bool:
        self.now = now
        put(self.cache, member("decode", 0, pin="n1", labels={"at": str(now)}))
        await asyncio.sleep(1.0)  # changes are gathered
        return bool(self.writes.said)


@pytest.mark.parametrize("calls", [[], [TIMEOUT - QUIET], [10.0, 60.0]])
@virtual
async def test_time_is_up_where_calls_come_or_nobody_knows(calls: list[float]) -> None:
    async with Late() as late:
        for late.now in calls:
            late.callers.note()
        assert not await late.is_given_up(TIMEOUT - 1.0)
        assert await late.is_given_up(TIMEOUT)


@virtual
async def test_while_kube_scheduler_is_away_no_pin_is_late() -> None:
    async with Late() as late:
        late.callers.note()
        assert not await late.is_given_up(10.0 * TIMEOUT)
        late.callers.note()  # it is back, and has all that waits to do
        assert not await late.is_given_up(10.0 * TIMEOUT + QUIET)
        late.callers.note()
        assert not await late.is_given_up(11.0 * TIMEOUT - 1.0)
        assert await late.is_given_up(11.0 * TIMEOUT)
