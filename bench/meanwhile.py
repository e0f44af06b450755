"""How soon the guard answers while the largest gangs are planned in a thread: latency of a call on the event loop."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from bench import hard
from bench.plan_floor import Floor, hierarchical
from bench.settled import settle
from builders.members import cache, node, pod
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from covey.placement.planner import plan_minimum
from covey.scheduler.guard import FilterArgs, Guard

#: Seconds between two calls.
EVERY: Final = 0.002
#: As the scheduler process sets it.
SWITCH: Final = 0.001


@dataclass(frozen=True)
class Answered:
    """Milliseconds from the moment at which a call was due to its answer."""

    what: str
    planned: float
    calls: int
    median: float
    p99: float
    most: float

    def line(self) -> str:
        """The row as text."""
        return (
            f"{self.what:<46} plan {self.planned:6.0f} ms, {self.calls:>5} calls: median {self.median:.2f}, "
            f"p99 {self.p99:.1f}, most {self.most:.1f} ms (bar: p99 50)"
        )


def busy() -> Guard:
    """A guard that has to look at room kept for gangs."""
    return Guard(cache(*(node(f"n{number}") for number in range(200))))


async def _calls(guard: Guard, plan: Callable[[], object]) -> tuple[float, list[float]]:
    names = msgspec.Raw(msgspec.json.encode([f"n{number}" for number in range(200)]))
    args = FilterArgs(pod("stranger", gpus=1), names)
    task = asyncio.create_task(asyncio.to_thread(plan))
    started = time.perf_counter()
    times = []
    due = started + EVERY
    while not task.done():
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        guard.filter(args)
        now = time.perf_counter()
        times.append(1000 * (now - due))
        due = max(due + EVERY, now)
    await task
    return 1000 * (time.perf_counter() - started), times


def answered(what: str, gang: Gang, inventory: Inventory) -> Answered:
    """Call the guard again and again while a gang is planned cold."""
    settle()
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        planned, times = asyncio.run(_calls(busy(), lambda: plan_minimum(gang, inventory)))
    finally:
        sys.setswitchinterval(before)
    times.sort()
    return Answered(what, planned, len(times), times[len(times) // 2], times[len(times) * 99 // 100], times[-1])


def table() -> Iterator[Answered]:
    """The largest of the large, and the costliest."""
    yield answered("hierarchical gang, 20,000 nodes, cold", hierarchical(), Floor(20_000).inventory)
    anywhere = replace(hierarchical(160), required=None)
    yield answered("5,120 pods, 5,000 nodes, cold", anywhere, Floor(5_000, (0.2, 0.6)).inventory)
    for name in ("small_on_unlike", "surplus_beyond", "led_unlike_too_large", "too_many_on_sixty"):
        instance = hard.INSTANCES[name]()
        yield answered(instance.name, instance.gang, instance.inventory)


if __name__ == "__main__":
    for row in table():
        print(row.line(), flush=True)
