"""Gangs of thousands of pods, and a cluster of tens of thousands of nodes: the first plan and those after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench import plan_floor
from bench.plan_floor import TOPOLOGY, Floor, hierarchical, role, shape
from covey.placement.model import Gang, Refusal
from covey.placement.planner import plan_minimum

#: Nodes of a rack where whole racks are one machine.
WIDE_RACK = 72


@dataclass(frozen=True)
class Planned:
    """Milliseconds, of processor time too, of the first plan of a minimum and of the same question again."""

    what: str
    verdict: str
    pods: int
    first: float
    again: float
    busy: tuple[float, float]
    bar: str

    def line(self) -> str:
        """The row as text."""
        return (
            f"{self.what:<62} {self.verdict:<10} {self.pods:>5} pods, first {self.first:6.0f} ms, "
            f"again {self.again:6.0f} ms, busy {self.busy[0]:.0f} and {self.busy[1]:.0f}  (bar {self.bar})"
        )


def planned(what: str, gang: Gang, floor: Floor, bar: str) -> Planned:
    """Ask twice."""
    times, busy = [], []
    for _ in range(2):
        started, worked = time.perf_counter(), time.process_time()
        answer = plan_minimum(gang, floor.inventory)
        times.append(1000 * (time.perf_counter() - started))
        busy.append(1000 * (time.process_time() - worked))
    pods = 0 if isinstance(answer, Refusal) else len(answer.assignments)
    return Planned(what, str(answer.verdict), pods, times[0], times[1], (busy[0], busy[1]), bar)


def wide(nodes: int) -> Floor:
    """A floor whose racks have 72 nodes."""
    before = plan_floor.NODES_PER_RACK
    plan_floor.NODES_PER_RACK = WIDE_RACK  # type: ignore[misc]  # final for everybody else
    try:
        return Floor(nodes)
    finally:
        plan_floor.NODES_PER_RACK = before  # type: ignore[misc]


def singles(number: int) -> Gang:
    """Two roles of single pods that may lie anywhere."""
    roles = tuple(
        role(name, number // 2, number // 2, 1, shape(gpus)) for name, gpus in (("prefill", 1), ("decode", 2))
    )
    return Gang("default", "gang", 0, roles, TOPOLOGY.name)


def whole(gang: Gang) -> Gang:
    """All replicas are the minimum."""
    return replace(gang, roles=tuple(replace(found, minimum=found.desired) for found in gang.roles))


def table() -> Iterator[Planned]:
    """The bars of large gangs and large clusters."""
    half = (0.2, 0.6)
    yield planned(
        "1,024 pods in racks of one block, 5,000 nodes", whole(hierarchical(32)), Floor(5_000, (0.0, 0.2)), "500"
    )
    yield planned("1,000 single pods, 5,000 nodes", singles(1_000), Floor(5_000, half), "500")
    anywhere = replace(whole(hierarchical(156)), required=None)
    yield planned("4,992 pods in racks, 5,000 nodes", anywhere, Floor(5_000, half), "1,500")
    yield planned("5,000 single pods, 5,000 nodes", singles(5_000), Floor(5_000, half), "1,500")
    yield planned("1,024 pods refused with reasons, 5,000 nodes", whole(hierarchical(32)), Floor(5_000), "150")
    yield planned("hierarchical gang, 20,000 nodes in racks of 72", hierarchical(), wide(20_000), "2,500 first")


if __name__ == "__main__":
    for row in table():
        print(row.line(), flush=True)
