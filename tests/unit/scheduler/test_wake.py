from __future__ import annotations

import asyncio
from typing import Any

from builders.members import cache, drop, group, member, node, pod, role_groups
from covey.api import core
from covey.scheduler.cache import Cache
from covey.scheduler.wake import LOOKS, Waker

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
        waker.note_refusal(each)
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


def waiting(made: Cache, refused: list[core.Pod]) -> Waker:
    waker = Waker(made, None)  # type: ignore[arg-type] # nothing is touched
    for each in refused:
        waker.note_refusal(each)
    return waker


def due(waker: Waker) -> list[str]:
    return [found.metadata.name for found in waker._due._queue]  # type: ignore[attr-defined]


async def test_anti_affinity_is_asked_of_each_pod_that_it_may_mean() -> None:
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "noisy"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    holder = pod("holder", node="n1", spec={"affinity": affinity})
    refused = [pod("noisy", labels={"app": "noisy"}), pod("quiet", labels={"app": "quiet"})]
    made = cache(node("n1", labels={"kubernetes.io/hostname": "n1"}), holder, *refused)
    waker = waiting(made, refused)
    made.tell_room("n1")
    assert due(waker) == ["quiet"]


async def test_more_kinds_than_are_looked_at_take_turns() -> None:
    huge = [pod(f"s{number}", gpus=9 + number) for number in range(LOOKS)]
    last = pod("last", gpus=1)
    made = cache(node("n1"), *huge, last)
    waker = waiting(made, [*huge, last])
    made.tell_room("n1")
    assert due(waker) == [], "those before it are as many as are looked at"
    made.tell_room("n1")
    assert due(waker) == ["last"]
