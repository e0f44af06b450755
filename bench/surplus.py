"""Units with a required rack and surplus, applied at once: how many get all of their pods, and what a plan costs.

4 + 4 pods of one GPU, minimum 1 + 1: the minimums of all come before the surplus of any, and a unit keeps its rack. The
exit status is 1 where fewer units are whole than fit, of no more than fit together.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from bench.machine import describe_machine
from bench.plan_floor import GPUS, NODES_PER_RACK, TOPOLOGY, named, node, role, shape
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang
from rounds import Answer, plan_round

PODS: Final = 8
ONE: Final = shape(1)


def unit(number: int, *, router: bool) -> Gang:
    """A unit; with a router that may lie anywhere its domain is one inside the whole cluster."""
    roles = [role(name, PODS // 2, 1, 1, ONE) for name in ("prefill", "decode")]
    anywhere = [replace(role("router", 1, 1, 1, shape(0)), follow_unit=False)] if router else []
    name = f"u{number:05}"
    gang = named(Gang("default", name, 0, (*roles, *anywhere), TOPOLOGY.name, required="rack"), name)
    return replace(gang, uid=name, created=name)


def measure(nodes: int, units: int, *, router: bool) -> bool:
    """Plan a round on empty racks; returns whether as many units are whole as fit."""
    inventory = Inventory([TOPOLOGY])
    for number in range(nodes):
        inventory.set_node(node(number))
    times: list[float] = []

    def around(_number: int, ask: Callable[[], Answer]) -> Answer:
        started = time.process_time()
        answer = ask()
        times.append(1000 * (time.process_time() - started))
        return answer

    outcomes = plan_round([unit(number, router=router) for number in range(units)], inventory, around=around)
    whole = sum(len(outcome.assignments) == PODS + router for outcome in outcomes)
    racks = [min(NODES_PER_RACK, nodes - first) for first in range(0, nodes, NODES_PER_RACK)]
    fit = min(units, sum(rack * GPUS // PODS for rack in racks))
    what = f"{units} units of 4 + 4 (1 + 1){' and a router' if router else ''}, {nodes} nodes"
    print(
        f"{what:<54} {whole:>6} of {fit:>6} whole  median {statistics.median(times):6.2f}  worst {max(times):7.2f} ms"
    )
    return whole == fit


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest cluster alone")
    options = parser.parse_args()
    print(describe_machine())
    sizes = [(500, 50), (500, 500)] if options.quick else [(500, 50), (500, 500), (5000, 1000)]
    right = [measure(nodes, units, router=router) for nodes, units in sizes for router in (False, True)]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
