"""What one answer about head-room costs, role by role: nothing of it may keep a gang waiting for long.

Units whose minimum has its places stand on a floor that is used in part. Each role is asked for twice: with what the
planner knows by then, and again after pods have come and gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench.plan_floor import TOPOLOGY, Floor, hierarchical, named, role, shape, shapes_by_key
from bench.settled import settle
from covey.admission.growth import Site
from covey.admission.headroom import most_feasible
from covey.placement.model import Gang, Plan
from covey.placement.planner import plan_minimum
from covey.placement.question.demands import place


@dataclass(frozen=True)
class Asked:
    """Milliseconds of the first answer, and the longest of those after it, and of processor time."""

    what: str
    role: str
    answer: str
    first: float
    longest: float
    busy: tuple[float, float]

    def line(self) -> str:
        """The row as text."""
        return (
            f"{self.what:<44} {self.role:<8} {self.answer:<6} first {self.first:6.0f} ms, then {self.longest:6.0f} ms, "
            f"busy {self.busy[0]:.0f} and {self.busy[1]:.0f}"
        )


def standing(floor: Floor, gang: Gang, units: int) -> list[Site]:
    """Units of one resource whose minimum has its places, and nothing else."""
    sites = []
    for number in range(units):
        own = replace(named(gang, f"u{number}"), unit=number, uid=str(number))
        roles = tuple(replace(each, replicas=each.replicas[: each.minimum], desired=each.minimum) for each in own.roles)
        least = replace(own, roles=roles)
        answer = plan_minimum(least, floor.inventory)
        assert isinstance(answer, Plan), answer.message
        shapes = shapes_by_key(least)
        for each in answer.assignments:
            floor.hold(each.pod, each.node, shapes[each.pod])
        sites.append(Site(place(least, {each.pod: each.node for each in answer.assignments})))
    return sites


def asked(what: str, floor: Floor, sites: Sequence[Site], times: int = 3) -> Iterator[Asked]:
    """Ask for each role."""
    for name in [each.name for each in sites[0].gang.roles]:
        taken, busy, answer = [], [], ""
        for _ in range(times):
            started, worked = time.perf_counter(), time.process_time()
            found = most_feasible(name, sites, floor.inventory, is_shared=True)
            taken.append(1000 * (time.perf_counter() - started))
            busy.append(1000 * (time.process_time() - worked))
            floor.churn()
            answer = f"{found.replicas}{'+' * found.is_floor}"
        yield Asked(what, name, answer, taken[0], max(taken[1:]), (busy[0], max(busy[1:])))


def table() -> Iterator[Asked]:
    """Resources of several kinds, 5,000 nodes."""
    for units in (1, 4, 16):
        floor = Floor(5_000)
        sites = standing(floor, hierarchical(), units)
        yield from asked(f"units in a block, replicas in racks: {units}", floor, sites)
    floor = Floor(5_000, (0.2, 0.6))
    anywhere = Gang(
        "default", "gang", 0, (role("prefill", 2, 1, 1, shape(1)), role("decode", 2, 1, 1, shape(2))), TOPOLOGY.name
    )
    yield from asked("single pods that may lie anywhere: 1 unit", floor, standing(floor, anywhere, 1))
    yield from asked("single pods that may lie anywhere: 8 units", floor, standing(floor, anywhere, 8))
    floor = Floor(5_000, (0.0, 0.2))
    yield from asked("an empty floor, replicas in racks: 1 unit", floor, standing(floor, hierarchical(), 1))
    loose = replace(hierarchical(), required=None)
    yield from asked("an empty floor, replicas in any rack: 1 unit", floor, standing(floor, loose, 1))


if __name__ == "__main__":
    settle()
    for row in table():
        print(row.line(), flush=True)
