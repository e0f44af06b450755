"""Thousands of gangs that wait: what one change costs, and how long a standby takes to decide. Nothing is asserted here.

One process with the real cache, admission, status writer and guard, fed with objects as the watches would; only the API
server behind the writes is a stand-in. Decoding what a watch sends is not in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.machine import describe_machine
from bench.plan_floor import GPUS, NODES_PER_RACK, node
from builders.members import GATE, drop, group, member, pod, put, role_groups
from covey.admission.status import Decision, statuses
from covey.api import core
from covey.kube.clock import SYSTEM
from covey.kube.process import settle_memory
from covey.kube.turns import Turns
from covey.scheduler.admission_times import AdmissionTimes
from covey.scheduler.cache import Cache
from covey.scheduler.context import Context
from covey.scheduler.cycle import Scheduler
from covey.scheduler.guard import ENCODER, FilterArgs, Guard
from covey.scheduler.holding import Holding
from covey.scheduler.main import settle_in
from covey.scheduler.plugins import make_plugins
from covey.scheduler.quotas import Quotas
from covey.scheduler.releases import Releases
from covey.scheduler.reservations import Reservations
from covey.scheduler.statuses import StatusWriter
from covey.scheduler.surroundings import Queueing
from covey.scheduler.topologies import Topologies
from covey.scheduler.writer import Pinned, PinResult

#: Whole nodes in one rack that a waiting gang asks for; the first kind is the one that is served.
KINDS: Final = (4, 5, 6, 7, 8, 9, 12, 16)
PODS_OF_A_UNIT: Final = 3
#: Racks where only ordinary pods are.
LEFT: Final = 30
#: A pod that asks the guard meanwhile, and how many node names it brings.
ASKED: Final = 500
#: Seconds after which nodes are kept for a gang: all that wait have waited for longer.
RESERVE_AFTER: Final = 300.0
RACK: Final = {"topology": [{"level": "rack", "mode": "Required"}]}
CREATED: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    bar: str
    note: str = ""

    def line(self) -> str:
        """The row as text."""
        return f"{self.what:<58} {self.measured:>16}  {self.bar:<16} {self.note}".rstrip()


@dataclass
class Api:
    """Takes every write for done, and counts."""

    statuses: int = 0
    events: int = 0
    pinned: list[tuple[str, float]] = field(default_factory=list)
    first: asyncio.Event = field(default_factory=asyncio.Event)
    turns: Turns = field(default_factory=lambda: Turns(64))
    bind: Callable[[core.Pod, str], None] = lambda *_: None

    async def apply(self, *_: object, **__: object) -> None:
        """A status."""
        self.statuses += 1

    async def merge_patch(self, *_: object, **__: object) -> None:
        """The topology of a root."""
        self.statuses += 1

    def event(self, *_: object) -> None:
        """An Event."""
        self.events += 1

    async def pin(self, found: core.Pod, place: str, *_: object, **__: object) -> PinResult:
        """A pod's pin; it is bound soon after."""
        self.pinned.append((found.metadata.name, time.perf_counter()))
        self.first.set()
        asyncio.get_running_loop().call_later(0.2, self.bind, found, place)
        return PinResult(Pinned.DONE)

    async def release(self, *_: object) -> bool:
        """A pod that is let go."""
        return True


class Watchman:
    """How long the event loop was blocked at most, and how fast the guard answered."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self.longest = 0.0
        self.guard: list[float] = []

    async def watch(self) -> None:
        """Look every two milliseconds, and ask the guard every 20."""
        number = 0
        while True:
            due = time.perf_counter() + 0.002
            await asyncio.sleep(0.002)
            late = time.perf_counter()
            self.longest = max(self.longest, late - due)
            number += 1
            if number % 10 == 0:
                self._ask()
                self.guard.append(time.perf_counter() - due)


class World:
    """A full cluster, the gangs that wait for it, and a scheduler process that is about to lead."""

    def __init__(self, nodes: int, waiting: int, bound: int) -> None:
        self.cache: Cache = Cache(None, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
        self.api = Api()
        self._numbers = iter(range(10**9))
        #: The ordinary pods of each node.
        self.strangers: dict[str, list[core.Pod]] = {}
        self._base = pod("stranger", gpus=1)
        topologies = Topologies(self.cache)
        self.names = [self._node(number) for number in range(nodes)]
        self._waiting(waiting)
        self._bound(bound)
        self._rest()
        self._state(topologies)
        self._wire(topologies)

    def _wire(self, topologies: Topologies) -> None:
        api: Any = self.api
        api.bind = self.bind
        context = Context(self.cache, api, api, api, SYSTEM, AdmissionTimes(SYSTEM.wall))
        queueing = Queueing(self.cache, topologies, reserve_after=RESERVE_AFTER, clock=SYSTEM)
        reservations = Reservations(self.cache, reserve_after=RESERVE_AFTER, clock=SYSTEM)
        plugins = make_plugins(
            context, queueing, Quotas(self.cache, queueing.priority), reservations, Holding(self.cache, SYSTEM)
        )
        self.admission = Scheduler(context, queueing, plugins)
        self.statuses = StatusWriter(context, self.admission.queue.decision, announce=api.event)
        self.admission.queue.on_decision(self.statuses.note_change)
        self.releases = Releases(context, exclude=lambda *_: None, arrived=lambda _uid: False)
        guard, names = Guard(self.cache), msgspec.Raw(ENCODER.encode(self.names[:ASKED]))
        self.watchman = Watchman(partial(guard.filter, FilterArgs(self._base, names)))

    def _node(self, number: int) -> str:
        made = node(number)
        put(self.cache, made)
        return made.metadata.name

    def _waiting(self, count: int) -> None:
        """Of the first kind, the oldest is not the first that is told."""
        for number in range(count):
            size, name = KINDS[number % len(KINDS)], f"wait{number}"
            root = group(name, composite=True, minimum=1, desired=1, schedulingConstraints=RACK)
            age = f"2026-01-01T{(number * 7919 % count) // 3600:02}:{(number * 7919 % count) // 60 % 60:02}:{number * 7919 % count % 60:02}Z"
            meta = msgspec.structs.replace(root.metadata, creation_timestamp=age)
            put(self.cache, msgspec.structs.replace(root, metadata=meta))
            for each in role_groups("decode", replicas=size, minimum=size, size=1, root=name):
                put(self.cache, each)
            first = member("decode", 0, root=name, gates=(GATE,), gpus=GPUS)
            for replica in range(size):
                labels = {**(first.metadata.labels or {}), "covey.dev/replica": str(replica)}
                put(self.cache, _renamed(first, f"{name}-decode-{replica}-0", labels=labels))

    def _bound(self, count: int) -> None:
        """Units of single-GPU pods, on all racks but the first ones, which are left to strangers."""
        places = self.names[LEFT * NODES_PER_RACK :] or self.names
        base = member("decode", 0, root="base", node="nowhere", gpus=1)
        for number in range(count):
            name = f"run{number}"
            put(self.cache, group(name, composite=True, minimum=1, desired=1))
            for each in role_groups("decode", replicas=PODS_OF_A_UNIT, minimum=2, size=1, root=name):
                put(self.cache, each)
            leaf = {"scheduling.covey.dev/pod-group": f"{name}-decode"}
            for replica in range(PODS_OF_A_UNIT):
                place = places[(number * PODS_OF_A_UNIT + replica) % len(places)]
                labels = {**(base.metadata.labels or {}), **leaf, "covey.dev/replica": str(replica)}
                made = _renamed(base, f"{name}-decode-{replica}-0", labels=labels)
                put(self.cache, msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=place)))

    def _rest(self) -> None:
        """Ordinary pods on the room that is left."""
        for name in self.names:
            for _ in range(self.cache.capacity.room.free(name)["nvidia.com/gpu"]):
                self.stranger(name)

    def _state(self, topologies: Topologies) -> None:
        """Every root's status says what it would say."""
        refused = Decision("Infeasible", "as it was said by the process that led before")
        for root in self.cache.index.roots():
            unit = self.cache.index.unit(root)
            assert unit is not None
            topology = topologies.choose(unit)
            decision = Decision(topology=topology) if root.name.startswith("run") else refused
            path_of = partial(self.cache.path, topology)
            for each, status in statuses(unit, decision, path_of, CREATED):
                stated = msgspec.structs.replace(each, status=msgspec.convert(status, core.GroupStatus))
                put(self.cache, stated, each)

    def stranger(self, place: str) -> None:
        """One more ordinary pod."""
        made = _renamed(self._base, f"stranger-{next(self._numbers)}")
        made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, node_name=place))
        put(self.cache, made)
        self.strangers.setdefault(place, []).append(made)

    def end(self, place: str) -> None:
        """One ordinary pod less."""
        drop(self.cache, self.strangers[place].pop())

    def empty(self, place: str) -> None:
        """Every ordinary pod of a node ends."""
        for each in self.strangers.pop(place, ()):
            drop(self.cache, each)

    def bind(self, found: core.Pod, place: str) -> None:
        """What kube-scheduler makes of a pin."""
        gone = msgspec.structs.replace(found.spec, node_name=place, scheduling_gates=None)
        put(self.cache, msgspec.structs.replace(found, spec=gone))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """This process leads."""
        parts = (
            settle_in(self.admission.settled),
            self.watchman.watch(),
            self.admission.run(),
            self.statuses.run(self.admission.settled.wait),
            self.releases.run(self.admission.settled.wait),
        )
        tasks = [asyncio.create_task(each) for each in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def rack(self, number: int) -> list[str]:
        """The nodes of a rack."""
        return self.names[number * NODES_PER_RACK : (number + 1) * NODES_PER_RACK]

    def oldest(self) -> str:
        """The gang of the first kind that comes first."""
        refused = self.admission.queue.find_refused(lambda entry: len(entry.unit.roles[0].replicas) == KINDS[0])
        return refused[0][0].name


def _renamed(base: core.Pod, name: str, labels: Mapping[str, str] | None = None) -> core.Pod:
    found = dict(labels) if labels is not None else base.metadata.labels
    if labels is not None and "-decode-" in name:
        found = {**labels, "scheduling.covey.dev/pod-group": name.rsplit("-", 2)[0]}
    metadata = msgspec.structs.replace(base.metadata, name=name, uid=f"uid-{name}", labels=found)
    return msgspec.structs.replace(base, metadata=metadata)


async def quiet() -> None:
    """Until nothing is being done any more."""
    spent = time.process_time()
    for _ in range(60):
        await asyncio.sleep(0.5)
        before, spent = spent, time.process_time()
        if spent - before < 0.03:
            return


def blocked(world: World) -> float:
    """The longest block since this was last asked, in milliseconds."""
    longest, world.watchman.longest = world.watchman.longest, 0.0
    return 1000 * longest


async def takeover(world: World) -> Row:
    """From the lease to the first decision; a gang of the first kind has room."""
    started = time.perf_counter()
    async with asyncio.timeout(120.0):
        await world.api.first.wait()
    return Row("takeover: first decision", f"{time.perf_counter() - started:.2f} s", "5 s")


async def served(world: World, rounds: int) -> list[Row]:
    """The last node that a gang needs is freed."""
    times, right = [], 0
    for number in range(1, rounds + 1):
        *first, last = world.rack(number)[: KINDS[0]]
        for name in first:
            world.empty(name)
        await quiet()
        expected, before = world.oldest(), len(world.api.pinned)
        blocked(world)
        started = time.perf_counter()
        world.empty(last)
        while len(world.api.pinned) < before + KINDS[0] and time.perf_counter() < started + 10.0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        times.append(1000 * (time.perf_counter() - started))
        right += all(name.startswith(f"{expected}-") for name, _ in world.api.pinned[before:])
    return [
        Row(
            "one node freed: the right gang pinned",
            f"{statistics.median(times):.0f} ms",
            "100 ms",
            f"max {max(times):.0f} ms, right {right} of {rounds}",
        ),
        Row("  longest block of the loop", f"{blocked(world):.1f} ms", "20 ms"),
    ]


async def helpless(world: World, rounds: int) -> list[Row]:
    """A node is freed in a rack where nobody fits."""
    await asyncio.sleep(8.0)  # what is said of the gangs that were served
    costs, writes = [], world.api.statuses + world.api.events
    for number in range(rounds):
        name = world.rack(LEFT - 1 - number)[0]
        await quiet()
        started = time.process_time()
        world.empty(name)
        await asyncio.sleep(1.0)
        costs.append(1000 * (time.process_time() - started))
    started = time.process_time()
    await asyncio.sleep(1.0)
    idle = 1000 * (time.process_time() - started)
    return [
        Row("a node freed that helps nobody: processor time", f"{statistics.median(costs) - idle:.0f} ms", "50 ms"),
        Row("  statuses and Events written", f"{world.api.statuses + world.api.events - writes}", "0"),
        Row("  longest block of the loop", f"{blocked(world):.1f} ms", "20 ms"),
    ]


async def busy(world: World, seconds: float, rate: float = 100.0) -> list[Row]:
    """Ordinary pods come and go."""
    places = [name for name in world.names[len(world.names) // 2 :] if world.strangers.get(name)]
    blocked(world)
    spent, started, done = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        name = places[(done * 37) % len(places)]
        if done % 2 == 0:
            world.end(name)
        else:
            world.stranger(places[((done - 1) * 37) % len(places)])
        done += 1
        await asyncio.sleep(max(0.0, started + done / (2 * rate) - time.perf_counter()))
    share = 100 * (time.process_time() - spent) / (time.perf_counter() - started)
    return [
        Row("100 foreign pods a second coming and going", f"{share:.1f} %", "15 % of a core"),
        Row("  longest block of the loop", f"{blocked(world):.1f} ms", "20 ms"),
    ]


async def measure(options: argparse.Namespace) -> tuple[list[Row], int]:
    """All rows, and how many pods there were."""
    started = time.perf_counter()
    world = World(options.nodes, options.waiting, options.bound)
    pods = len(world.cache.pods.store)
    for name in world.rack(0)[: KINDS[0]]:
        world.empty(name)
    settle_memory(10_000, 5, 5_000)
    rows = [Row("set-up", f"{time.perf_counter() - started:.1f} s", "30 s")]
    async with world.leading():
        rows.append(await takeover(world))
        await quiet()
        guard = sorted(world.watchman.guard)
        rows.append(Row("  longest block of the loop until all are looked at", f"{blocked(world):.1f} ms", "20 ms"))
        p99 = 1000 * guard[math.ceil(0.99 * len(guard)) - 1]
        rows.append(Row("  guard meanwhile, p99", f"{p99:.1f} ms", "50 ms"))
        for each in world.statuses._pacer._lanes.values():
            each.clear()
        rows += await served(world, options.rounds)
        rows += await helpless(world, options.rounds)
        rows += await busy(world, options.seconds)
    return rows, pods


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, and JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=2000)
    parser.add_argument("--bound", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    sys.setswitchinterval(0.001)
    rows, pods = uvloop.run(measure(options))
    print(describe_machine())
    print(f"{options.nodes} nodes, {pods} pods, {options.waiting} gangs wait, {options.bound} units are bound\n")
    print("\n".join(row.line() for row in rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
