"""Those who share a breath work by turns, and everybody else gets theirs in between."""

from __future__ import annotations

import asyncio

from covey.scheduler.turns import BREATH, Breath


async def test_one_of_the_sharers_works_in_each_round_of_the_loop() -> None:
    now, worked = 0.0, list[str]()
    breath = Breath(lambda: now)

    async def work(name: str) -> None:
        nonlocal now
        for _ in range(3):
            await breath.take()
            worked.append(name)
            now += 2 * BREATH

    async def rounds() -> list[int]:
        seen, before = [], 0
        while len(worked) < 9:
            await asyncio.sleep(0)
            seen.append(len(worked) - before)
            before = len(worked)
        return seen

    found, *_ = await asyncio.gather(rounds(), *(work(name) for name in "abc"))
    assert max(found) == 1
    assert {worked.count(name) for name in "abc"} == {3}
    assert set(worked[:4]) == {"a", "b", "c"}


async def test_short_work_is_not_held_up() -> None:
    breath, rounds = Breath(lambda: 0.0), 0

    async def count() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    counting = asyncio.create_task(count())
    for _ in range(100):
        await breath.take()
    assert rounds == 0
    counting.cancel()
