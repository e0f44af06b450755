"""Processor time of the barrier for one gang, and how long it keeps others waiting: ``python -m bench.barrier 4096 8``.

The real ``Binder``, without HTTP: bind calls arrive as fast as kube-scheduler makes them, the Bindings are answered
after 2 ms and seen 3 ms later.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import msgspec
import uvloop

from builders.members import cache, group, member, node, put, role_groups
from covey.kube.process import settle_memory
from covey.scheduler.binder import Binder
from covey.scheduler.bindings import Bindings
from covey.scheduler.guard import BindArgs
from covey.scheduler.writer import PodWriter

#: Seconds between two bind calls: about 300 pinned pods a second.
BETWEEN = 0.003


class Blocks:
    """The longest time for which the loop did nothing else, in processor time: others may use the machine."""

    longest = 0.0

    async def watch(self) -> None:
        """Measure for ever."""
        while True:
            begun = time.process_time()
            await asyncio.sleep(0.002)
            self.longest = max(self.longest, time.process_time() - begun)


async def measure(pods: int, size: int, minimum: int) -> None:
    """Let the calls of one gang arrive, and print what that took."""
    count = pods // size
    groups = [
        group("root", composite=True, minimum=1, desired=1),
        *role_groups("decode", replicas=count, minimum=minimum or count, size=size),
    ]
    members = [member("decode", *divmod(each, size), size=size, pin=f"n{each}", gpus=8) for each in range(pods)]
    made = cache(*(node(f"n{each}") for each in range(pods)), *groups, *members)

    class Api:
        async def bind(self, namespace: str, name: str, _uid: str, place: str) -> None:
            await asyncio.sleep(0.002)
            pod = made.pods.store[(namespace, name)]
            bound = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=place))
            asyncio.get_running_loop().call_later(0.003, put, made, bound)

    api: Any = Api()
    binder = Binder(made, Bindings(api, PodWriter(api)), served=("covey-scheduler",))
    settle_memory(10_000, 5, 5_000)
    blocks = Blocks()
    watching = asyncio.create_task(blocks.watch())
    begun = time.process_time()
    calls = []
    for number, each in enumerate(members):
        args = BindArgs(each.metadata.name, "ns", f"n{number}", each.metadata.uid)
        calls.append(asyncio.create_task(binder.bind(args)))
        await asyncio.sleep(BETWEEN)
    arrived = time.process_time()
    refused = sum(map(bool, await asyncio.gather(*calls)))
    await asyncio.sleep(0.1)
    watching.cancel()
    spent = f"{arrived - begun:.2f} s until all had arrived, {time.process_time() - arrived:.2f} s after"
    print(f"{pods} pods: {spent}; longest block {1000 * blocks.longest:.1f} ms; {refused} refused")


def main() -> None:
    """Pods, pods of a replica, and replicas of the minimum (all without it)."""
    pods, size, minimum = (*map(int, sys.argv[1:]), *(1024, 8, 0)[len(sys.argv) - 1 :])
    uvloop.run(measure(pods, size, minimum))


if __name__ == "__main__":
    main()
