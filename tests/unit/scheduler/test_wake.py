from __future__ import annotations

import asyncio
from typing import Any

from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.wake import Waker
from scheduler_builders import GATE, cache, drop, group, member, node, pod, put, role_groups

GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=1, minimum=1, size=1)]


async def woken(made: Cache, *, refused: list[core.Pod], gone: core.Pod, expected: int) -> list[str]:
    """The pods that are touched when a reservation goes; the pauses between them are counted, not waited for."""
    touched: asyncio.Queue[str] = asyncio.Queue()

    class Writer:
        async def wake(self, found: core.Pod, _mark: str) -> bool:
            touched.put_nowait(found.metadata.name)
            return True

    async def at_once(_seconds: float) -> None:
        await asyncio.sleep(0)

    writer: Any = Writer()
    waker = Waker(made, writer, sleep=at_once)
    for each in refused:
        waker.refused(each)
    running = asyncio.create_task(waker.run())
    drop(made, gone)
    names = [await asyncio.wait_for(touched.get(), 30) for _ in range(expected)]
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    assert touched.empty()
    return names


async def test_as_many_as_fit_are_woken_the_longest_refused_first() -> None:
    pinned = member("decode", 0, pin="n1", gpus=8)
    refused = [pod(f"s{number}", gpus=3) for number in range(4)]
    made = cache(node("n1"), *GROUPS, pinned, *refused)
    assert await woken(made, refused=refused, gone=pinned, expected=2) == ["s0", "s1"]


async def test_those_who_are_placed_or_gone_are_forgotten() -> None:
    pinned = member("decode", 0, pin="n1", gpus=8)
    refused = [pod("placed", gpus=1), pod("gone", gpus=1), pod("left", gpus=1), pod("huge", gpus=9)]
    made = cache(node("n1"), node("n2"), *GROUPS, pinned, *refused)

    class Listening(Waker):
        def refused(self, found: core.Pod) -> None:
            super().refused(found)
            if found.metadata.name == "placed":
                put(made, pod("placed", gpus=1, node="n2"))
            if found.metadata.name == "gone":
                drop(made, found)

    writer: Any = type("Nobody", (), {})()
    waker = Listening(made, writer)
    for each in refused:
        waker.refused(each)
    drop(made, pinned)
    assert [found.metadata.name for found in waker._due._queue] == ["left"]  # type: ignore[attr-defined]
    assert list(waker._refused) == ["uid-huge"]


async def test_gated_members_are_never_woken() -> None:
    gated = member("decode", 0, gates=(GATE,))
    made = cache(node("n1"), *GROUPS, gated)
    assert await woken(made, refused=[], gone=gated, expected=0) == []
