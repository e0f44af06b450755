"""Seconds of a search for victims: 5,000 nodes full with 10,000 units of three priorities (nothing is asserted)."""

from __future__ import annotations

import statistics
import time

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from builders.victims import NOW, hold, serving
from covey.admission.preemption import Taking, search
from covey.admission.victims import Candidate, Terms
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang

NODES = 5_000
PER_RACK = 16
RACKS_PER_BLOCK = 20
SHAPE = make_shape(8, extra={"cpu": 100})
HALF = make_shape(4, extra={"cpu": 100})


def name(number: int) -> str:
    return f"n{number}"


def cluster() -> tuple[Inventory, list[Candidate]]:
    """Units of 4 GPUs on every half of a node: three in five with one surplus replica elsewhere, the others without."""
    inventory = Inventory([TOPOLOGY])
    for number in range(NODES):
        rack = number // PER_RACK
        labels = {"zone": "z", "block": f"b{rack // RACKS_PER_BLOCK}", "rack": f"r{rack}"}
        inventory.set_node(make_node(name(number), labels=labels))
    candidates: list[Candidate] = []
    pods = [number // 4 for number in range(4 * NODES)]  # of 2 GPUs
    for number in range(10_000):
        own = pods[2 * number : 2 * number + 2]
        minimum = 2 if number % 5 < 2 else 1
        replicas = [[name(place)] for place in own]
        candidates.append(
            serving(
                f"u{number}",
                {"decode": (minimum, replicas)},
                priority=number * 7 % 3,
                gpus=2,
                served=3600.0 + number % 977,
            )
        )
    return hold(inventory, *candidates), candidates


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


def main() -> None:
    inventory, candidates = cluster()
    for title, gang in GANGS.items():
        times: list[float] = []
        for _ in range(3):
            started = time.perf_counter()
            found = search(gang, inventory, candidates, Terms(NOW))
            times.append(time.perf_counter() - started)
        said = f"{tuple(found.cost)}, {len(found.nodes)} nodes" if isinstance(found, Taking) else found.verdict.value
        print(
            f"{title:28} {times[0]:6.2f} s, again {statistics.median(times[1:]):6.2f} s, {found.plans:3} plans: {said}"
        )


if __name__ == "__main__":
    main()
