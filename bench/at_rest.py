"""What one pass costs where there is nothing to do: the processor time of planning and telling, by itself.

One resource of 3,000 pods that all serve (5 units of 50 replicas of 4 pods and 100 of 4). No cache, no API server: a
snapshot is taken, and the pure part of a reconcile runs on it again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import statistics
import sys
import time
from typing import Final

import msgspec

from builders.inferences import inference, role
from covey.api import core
from covey.api.core import rfc3339
from covey.compile import Owner
from covey.kube.process import settle_memory
from covey.operator.model.observed import is_ours, place_pods
from covey.operator.observe.expectations import PodExpectations
from covey.operator.plan import plan
from covey.operator.process.features import FEATURES
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from unit.operator.world import World

UNITS: Final = 5
PREFILL: Final = 50
DECODE: Final = 100
SIZE: Final = 4


class Large(World):
    """A world that is not looked at after each step."""

    def check(self) -> None:
        """Nothing: that is what tests are for, and costs more the more pods there are."""


def at_rest(units: int = UNITS, prefill: int = PREFILL, decode: int = DECODE) -> World:
    """A resource whose pods all serve, with everything noted that is to be noted."""
    roles = (role("prefill", replicas=prefill, size=SIZE), role("decode", replicas=decode, size=SIZE))
    world = Large(inference(*roles, replicas=units))
    world.notes = True
    world.settle()
    for name in list(world.pods):
        world.bind(name)
        world.ready(name)
    world.settle()
    world.note()
    world.tell()
    world.settle()
    world.tell()
    return world


def once(world: World) -> tuple[float, float]:
    """Seconds for planning and for telling, on a fresh snapshot: nothing may be remembered from one pass to the next."""
    observed, verdict = world.observe(), world.judge()
    begun = time.process_time()
    planned = plan(verdict, observed, world.status, features=FEATURES)
    middle = time.process_time()
    units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
    compute(verdict, observed, planned, units, world.status, rfc3339(world.now))
    assert not planned.actions
    return middle - begun, time.process_time() - middle


def on_loop(world: World) -> tuple[float, float]:
    """Seconds of the loop's own work: to take the snapshot of pods that the watch shows, and to note what is retired."""
    owner = Owner("team", "llama", "uid")
    reference = core.OwnerReference(name="llama", uid="uid", controller=True)
    pods = [
        msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=(reference,)))
        for pod in world.pods.values()
    ]
    known, observed, layout = (
        PodExpectations(lambda _: True, time.monotonic),
        world.observe(),
        world.plan().intent.layout,
    )
    begun = time.process_time()
    mine = [pod for pod in (known.latest(("team", "llama"), each) for each in pods) if is_ours(pod.metadata, owner)]
    place_pods(mine)
    {pod.spec.node_name for pod in mine if pod.spec.node_name}
    middle = time.process_time()
    known.retire(("team", "llama"), observed, layout.slots())
    return middle - begun, time.process_time() - middle


async def blocked(world: World) -> float:
    """The longest time in seconds for which the loop had no turn while a pass was made in a thread."""
    longest, last = 0.0, time.perf_counter()

    async def tick() -> None:
        nonlocal longest, last
        while True:
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await asyncio.to_thread(once, world)
    ticking.cancel()
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=15)
    parser.add_argument("--units", type=int, default=UNITS, help="33 for 19,800 pods")
    parser.add_argument("--prefill", type=int, default=PREFILL, help="replicas of 4 pods of each unit")
    parser.add_argument("--decode", type=int, default=DECODE, help="the same of the other role")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    world = at_rest(arguments.units, arguments.prefill, arguments.decode)
    settle_memory(10_000, 10, 10)
    sys.setswitchinterval(0.001)
    measured = [once(world) for _ in range(arguments.passes)]
    print(f"{len(world.pods)} pods at rest, {arguments.passes} passes, processor time (median, least):")
    for what, seconds in zip(("plan", "tell"), zip(*measured, strict=True), strict=True):
        print(f"  {what}  {statistics.median(seconds) * 1e3:6.1f} ms  {min(seconds) * 1e3:6.1f} ms")
    for what, seconds in zip(
        ("snapshot, on the loop", "retired, on the loop"),
        zip(*(on_loop(world) for _ in range(5)), strict=True),
        strict=True,
    ):
        print(f"  {what}  {statistics.median(seconds) * 1e3:6.1f} ms")
    gaps = [asyncio.run(blocked(world)) for _ in range(arguments.passes)]
    print(
        f"  the loop without a turn beside it: at most {max(gaps) * 1e3:.1f} ms, median {statistics.median(gaps) * 1e3:.1f}"
    )
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(once, world)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
