"""What it costs to count devices for the metrics: of 5,000 nodes, beside a loop that should get its turns.

One table; nothing is asserted. ``count`` is how long one count takes by the clock, ``processor`` the time that the
process works for it, ``held up`` the longest time for which the event loop did not get its turn meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

from bench.machine import describe_machine
from bench.plan_floor import TOPOLOGY, node, shape
from bench.settled import settle
from covey.placement.cluster.inventory import Inventory
from covey.scheduler.devices import Surveyor

NODES: Final = 5_000
PODS: Final = 10_000
COUNTS: Final = 20


async def main() -> None:
    """Measure and print."""
    # As the scheduler process has it.
    sys.setswitchinterval(0.001)
    randomly = random.Random(7)
    room = Inventory()
    for number in range(NODES):
        room.set_node(node(number))
    names = list(room.nodes)
    for number in range(PODS):
        room.hold(f"p{number}", randomly.choice(names), shape(randomly.randint(1, 4)))
    settle()

    def busy(changes: int) -> Callable[[], None]:
        def change() -> None:
            for number in randomly.sample(range(PODS), changes):
                room.hold(f"p{number}", randomly.choice(names), shape(randomly.randint(1, 4)))

        return change

    print(describe_machine())
    print(f"\n{'devices counted, 5,000 nodes, 10,000 pods':<44} {'count ms':>9} {'processor':>9} {'held up':>9}")
    await _row("the first time", Surveyor(room, lambda: TOPOLOGY), lambda: None, 1)
    surveyor = Surveyor(room, lambda: TOPOLOGY)
    await surveyor.look()
    for what, changes in (("nothing has changed", 0), ("20 pods have changed", 20), ("1,000 pods have changed", 1000)):
        await _row(what, surveyor, busy(changes), COUNTS)


async def _row(what: str, surveyor: Surveyor, change: Callable[[], None], counts: int) -> None:
    times: list[tuple[float, float, float]] = []
    for _ in range(counts):
        change()
        stalls: list[float] = []
        ticking = asyncio.create_task(_tick(stalls))
        await asyncio.sleep(0.01)
        stalls.clear()
        began, worked = time.perf_counter(), time.process_time()
        await surveyor.look()
        times.append((time.perf_counter() - began, time.process_time() - worked, max(stalls, default=0.0)))
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
    print(f"{what:<44} " + " ".join(f"{statistics.median(each) * 1000:9.1f}" for each in zip(*times, strict=True)))


async def _tick(stalls: list[float]) -> None:
    """Ask for a turn every millisecond, and note by how much it was late."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        stalls.append(max(0.0, now - last - 0.001))
        last = now


if __name__ == "__main__":
    asyncio.run(main())
