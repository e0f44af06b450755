"""Nodes that come: how long a waiting gang is not looked at after the last node of its rack is Ready. Nothing is asserted here.

The world is that of ``waiting``: 5,000 full nodes, and 500 gangs that wait beside 10,000 bound units. Each round a new rack
comes, whose nodes are not Ready at first. Decoding what a watch sends is not in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence

import msgspec
import uvloop

from bench.machine import describe_machine
from bench.plan_floor import NODES_PER_RACK, node
from bench.waiting import KINDS, Row, World, blocked, quiet
from builders.members import put
from covey.api import core
from covey.kube.process import settle_memory

NOT_READY = (core.Condition(type="Ready", status="False"),)
#: What the issue asks for.
BAR = "100 ms"


def come(world: World, number: int, *, ready: bool) -> None:
    """A node as the watch delivers it: new, or with another condition than before."""
    made = node(number)
    if not ready:
        made = msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=NOT_READY))
    put(world.cache, made)


async def pinned(world: World, count: int, numbers: Sequence[int]) -> tuple[float, float]:
    """Let nodes be Ready, and wait for so many pins; milliseconds until all are there, and of processor time till then."""
    already, spent, started = len(world.api.pinned), time.process_time(), time.perf_counter()
    for number in numbers:
        come(world, number, ready=True)
    while len(world.api.pinned) < already + count and time.perf_counter() < started + 10.0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    reached = len(world.api.pinned) >= already + count
    return 1000 * (time.perf_counter() - started) if reached else math.inf, 1000 * (time.process_time() - spent)


def describe(what: str, times: Sequence[tuple[float, float]], note: str) -> list[Row]:
    """Rows with the median and the 99th percentile (of few rounds, the worst)."""

    def line(found: Sequence[float]) -> str:
        ordered = sorted(found)
        return f"{statistics.median(ordered):.0f} / {ordered[math.ceil(0.99 * len(ordered)) - 1]:.0f} ms"

    clock, processor = zip(*times, strict=True)
    return [Row(f"{what}: all pinned", line(clock), BAR, note), Row("  processor time", line(processor), "")]


async def one_by_one(world: World, racks: itertools.count[int], rounds: int) -> list[Row]:
    """The nodes of a rack are made, become Ready one after the other, and the last one counts."""
    times, right, early = [], 0, 0
    for _ in range(rounds):
        first = next(racks) * NODES_PER_RACK
        numbers = range(first, first + KINDS[0])
        for number in numbers:
            come(world, number, ready=False)
        before = len(world.api.pinned)
        for number in numbers[:-1]:
            come(world, number, ready=True)
        await quiet()
        early += len(world.api.pinned) - before
        expected = world.oldest()
        times.append(await pinned(world, KINDS[0], numbers[-1:]))
        right += all(name.startswith(f"{expected}-") for name, _ in world.api.pinned[before:])
    note = f"right {right} of {rounds}, {early} pinned before"
    return [
        *describe("the last of 4 nodes is Ready, p50 / p99", times, note),
        Row("  longest block of the loop", f"{blocked(world):.1f} ms", "20 ms"),
    ]


async def at_once(world: World, racks: itertools.count[int], rounds: int) -> list[Row]:
    """A rack nobody has heard of comes whole, every node Ready at its first event."""
    times = []
    for _ in range(rounds):
        await quiet()
        first = next(racks) * NODES_PER_RACK
        times.append(await pinned(world, KINDS[0], range(first, first + KINDS[0])))
    return [
        *describe("a new rack of 4 Ready nodes, p50 / p99", times, ""),
        Row("  longest block of the loop", f"{blocked(world):.1f} ms", "20 ms"),
    ]


async def too_few(world: World, racks: itertools.count[int], rounds: int) -> list[Row]:
    """Fewer nodes come than any gang needs."""
    costs, writes = [], world.api.statuses + world.api.events
    before = len(world.api.pinned)
    for _ in range(rounds):
        await quiet()
        first = next(racks) * NODES_PER_RACK
        started = time.process_time()
        for number in range(first, first + KINDS[0] - 1):
            come(world, number, ready=True)
        await asyncio.sleep(1.0)
        costs.append(1000 * (time.process_time() - started))
    started = time.process_time()
    await asyncio.sleep(1.0)
    idle = 1000 * (time.process_time() - started)
    return [
        Row("3 nodes of a new rack that help nobody: processor time", f"{statistics.median(costs) - idle:.0f} ms", ""),
        Row(
            "  pins, statuses and Events",
            f"{len(world.api.pinned) - before + world.api.statuses + world.api.events - writes}",
            "0",
        ),
    ]


async def measure(options: argparse.Namespace) -> list[Row]:
    """All rows."""
    world = World(options.nodes, options.waiting, options.bound)
    for name in world.rack(0)[: KINDS[0]]:
        world.empty(name)
    settle_memory(10_000, 5, 5_000)
    racks = itertools.count(math.ceil(options.nodes / NODES_PER_RACK))
    async with world.leading():
        await world.api.first.wait()
        await quiet()
        await asyncio.sleep(8.0)  # what is said of all that wait
        blocked(world)
        rows = await one_by_one(world, racks, options.rounds)
        rows += await at_once(world, racks, options.rounds)
        for each in world.statuses._pacer._lanes.values():  # what is said of those that were served
            each.clear()
        rows += await too_few(world, racks, 5)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=500)
    parser.add_argument("--bound", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args(arguments)
    sys.setswitchinterval(0.001)
    rows = uvloop.run(measure(options))
    print(describe_machine())
    print(
        f"{options.nodes} nodes, {options.waiting} gangs wait, {options.bound} units are bound; {options.rounds} rounds\n"
    )
    print("\n".join(row.line() for row in rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
