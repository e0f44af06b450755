"""Long work on the event loop leaves others their turns, whatever it awaits meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from builders.members import cache, node
from covey.admission.nodes import Key
from covey.api.constants import REASON_INFEASIBLE
from covey.scheduler.fair_loop import SLICE, FairLoop
from scheduler_loop import Loop, labels, tree

PIECE = SLICE / 4
#: Pieces of work that fit into a turn: the last one begins before it is time.
MOST = 6


class Work:
    """Pieces of work, and how many of them were done in each round of the loop."""

    def __init__(self) -> None:
        self.done = 0
        self.rounds: list[int] = []

    @property
    def now(self) -> float:
        """Seconds: nothing but work takes time."""
        return self.done * PIECE

    async def watch(self) -> None:
        """Have a turn in each round of the loop."""
        before = self.done
        while True:
            await asyncio.sleep(0)
            self.rounds.append(self.done - before)
            before = self.done

    async def during(self, work: Awaitable[object]) -> None:
        """Watch the loop while somebody works."""
        watching = asyncio.create_task(self.watch())
        await asyncio.sleep(0)
        await work
        await asyncio.sleep(0)
        watching.cancel()


def test_turn_when_work_awaits_what_is_there_ends_in_time() -> None:
    work, ready = Work(), asyncio.Event()
    fair = FairLoop(lambda: work.now)
    ready.set()

    async def run() -> None:
        for _ in range(40):
            work.done += 1
            await ready.wait()
            await fair.share()

    asyncio.run(work.during(run()))
    assert sum(work.rounds) == 40
    assert max(work.rounds) <= MOST


def test_turn_when_several_work_is_one_worker_s() -> None:
    work = Work()
    fair = FairLoop(lambda: work.now)

    async def run(wait: Callable[[], Awaitable[object]]) -> None:
        for _ in range(40):
            work.done += 1
            await fair.share()
            await wait()

    async def both() -> None:
        await asyncio.gather(*(run(lambda: asyncio.sleep(0)) for _ in range(3)), run(fair.share))

    asyncio.run(work.during(both()))
    assert sum(work.rounds) == 160
    assert max(work.rounds) <= MOST + 3, "those that begin a turn have done a piece before they ask"


def test_pass_when_many_gangs_share_a_refusal_leaves_others_their_turns() -> None:
    refused = Work()

    def decided(root: Key) -> None:
        refused.done += loop.queue.decision(root).reason == REASON_INFEASIBLE

    made = [each for number in range(60) for each in tree(f"wait{number}", gpus=8)]
    loop = Loop(cache(node("small", gpus=4, labels=labels()), *made), decided)
    loop.admission.fair_loop = FairLoop(lambda: refused.now)
    asyncio.run(refused.during(loop.turn()))
    assert sum(refused.rounds) == 60
    assert max(refused.rounds) <= MOST
