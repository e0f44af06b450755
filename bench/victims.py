"""Claims of a scheduler process at 5,000 nodes full with 10,000 units of three priorities (nothing is asserted).

For gangs of all sizes: seconds of `Claims.find` and of `Claims.follow`, processor time of a search, and for how long
the event loop was away meanwhile. With ``--before DIR`` the same is done with the product's code of another checkout,
case by case in turns, so that what else the machine does harms both alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from builders.members import cache, put
from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, objects_of
from covey.admission.entry import Decision, Entry, QueueStage
from covey.api.constants import REASON_INFEASIBLE
from covey.kube.clock import SYSTEM
from covey.kube.process import settle_memory
from covey.placement.model import Gang
from covey.scheduler.cache import Cache
from covey.scheduler.claims import ClaimBounds, Claims
from covey.scheduler.holding import Holding
from covey.scheduler.quotas import Quotas

NODES = 5_000
PER_RACK = 16
RACKS_PER_BLOCK = 20
REST = "nobody asks"
SHAPE = make_shape(8, extra={"cpu": 100})
HALF = make_shape(4, extra={"cpu": 100})


def name(number: int) -> str:
    return f"n{number}"


def cluster() -> Cache:
    """Units of 4 GPUs on every half of a node: three in five with one surplus replica, the others without."""
    made = cache()
    made.capacity.set_topologies([TOPOLOGY])
    for number in range(NODES):
        rack = number // PER_RACK
        labels = {"zone": "z", "block": f"b{rack // RACKS_PER_BLOCK}", "rack": f"r{rack}"}
        put(made, make_node(name(number), labels=labels))
    pods = [number // 4 for number in range(4 * NODES)]  # of 2 GPUs
    for number in range(10_000):
        own = pods[2 * number : 2 * number + 2]
        minimum = 2 if number % 5 < 2 else 1
        root, groups, members = objects_of(
            f"u{number}",
            {"decode": (minimum, [[name(place)] for place in own])},
            priority=number * 7 % 3,
            gpus=2,
            served=3600.0 + number % 977,
        )
        for each in (root, *groups, *members):
            put(made, each)
    return made


GANGS: dict[str, Gang] = {
    "one node": make_gang(make_role("decode", 1, shape=SHAPE), priority=10),
    "one rack": make_gang(make_role("decode", 16, shape=SHAPE), required="rack", priority=10),
    "half a rack, two shapes": make_gang(
        make_role("prefill", 8, shape=SHAPE), make_role("decode", 8, shape=HALF), required="rack", priority=10
    ),
    "replicas of four in racks": make_gang(make_role("decode", 8, size=4, shape=SHAPE, required="rack"), priority=10),
    "100 nodes anywhere": make_gang(make_role("decode", 100, shape=SHAPE), priority=10),
    "160 nodes of one block": make_gang(make_role("decode", 40, size=4, shape=SHAPE), required="block", priority=10),
    "a higher priority": make_gang(make_role("decode", 16, shape=SHAPE), required="rack", priority=1),
    "nobody": make_gang(make_role("decode", 17, shape=SHAPE), required="rack", priority=10),
}


class Absence:
    """Seconds between two turns of a task that asks for one every millisecond, and what the loop itself used of them."""

    def __init__(self) -> None:
        self.away: list[float] = []
        self.own: list[float] = []

    async def watch(self) -> None:
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.away.append(time.perf_counter() - began - 0.001)
            self.own.append(time.thread_time() - used)

    def __str__(self) -> str:
        return (
            f"loop away p99 {1000 * _percentile(self.away, 0.99):5.1f} max {1000 * max(self.away):6.1f} ms,"
            f" by itself max {1000 * max(self.own):5.1f} ms"
        )


def _percentile(found: Sequence[float], part: float) -> float:
    return sorted(found)[min(int(len(found) * part), len(found) - 1)]


async def measure(made: Cache, title: str, times: int) -> str:
    """One case; without a gang, how long the loop is away by what else the machine does."""
    if title == REST:
        absence = Absence()
        watch = asyncio.create_task(absence.watch())
        await asyncio.sleep(1.0)
        watch.cancel()
        return str(absence)
    gang, unit = GANGS[title], next(filter(None, map(made.index.unit, made.index.roots())))
    entry = Entry(unit, QueueStage.MINIMUM, Decision(reason=REASON_INFEASIBLE))
    claims, quotas = (
        Claims(made, Holding(made, clock=SYSTEM), ClaimBounds(), clock=lambda: NOW),
        Quotas(made, lambda _root: 0),
    )
    absence = Absence()
    watch = asyncio.create_task(absence.watch())
    seconds, used, following, claim = list[float](), list[float](), list[float](), None
    for _ in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        claim = await claims.find(entry, gang, quotas, lambda: asyncio.sleep(0))
        seconds.append(time.perf_counter() - began)
        used.append(time.process_time() - cpu)
    for _ in range(times if claim is not None else 0):
        began = time.perf_counter()
        await claims.follow(entry, gang, claim, quotas)
        following.append(time.perf_counter() - began)
    watch.cancel()
    taken = [(each.namespace, each.name, each.role, each.replica) for each in claim.victims] if claim else []
    units = sum(each.kind == "Unit" for each in claim.victims) if claim else 0
    return (
        f"find p50 {statistics.median(seconds):5.2f} p99 {_percentile(seconds, 0.99):5.2f} s"
        f" ({statistics.median(used):5.2f} s of a processor),"
        f" follow {statistics.median(following or [0.0]):5.2f} s, {absence};"
        f" takes {units} units, {len(taken) - units} replicas"
    )


def serve(times: int) -> None:
    """Answer for each title that is read with one line."""
    made = cluster()
    settle_memory(10_000, 5, 5_000)  # this and the next as the process does
    sys.setswitchinterval(0.001)
    print("ready", flush=True)
    for line in sys.stdin:
        print(asyncio.run(measure(made, line.strip(), times)), flush=True)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--before", type=pathlib.Path, help="another checkout, to compare with")
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("titles", nargs="*", default=[REST, *GANGS, REST])
    chosen = options.parse_args()
    if chosen.serve:
        serve(chosen.times)
        return
    here = pathlib.Path(__file__).resolve().parents[1]
    rows = {}
    for label, checkout in (("before", chosen.before), ("now", here)):
        if checkout is not None:
            path = os.pathsep.join([f"{checkout}/operator", str(here), f"{here}/dev", f"{here}/tests"])
            rows[label] = subprocess.Popen(
                [sys.executable, __file__, "--serve", "--times", str(chosen.times)],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
    answers = {label: (each.stdin, each.stdout) for label, each in rows.items()}
    for _, said in answers.values():
        assert said is not None
        said.readline()
    for title in chosen.titles:
        for label, (ask, said) in answers.items():
            assert ask is not None
            assert said is not None
            print(title, file=ask, flush=True)
            print(f"{title:26} {label:7} {said.readline().strip()}", flush=True)
    for each in rows.values():
        each.communicate()


if __name__ == "__main__":
    main()
