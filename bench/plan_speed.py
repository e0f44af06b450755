"""How fast the planner is: one table, and the same as JSON. Nothing is asserted here.

Each figure is taken over at least 200 plans after a warm-up, with pods and nodes changing between any two of them.
A plan is the minimum and the surplus on top of it, from a warm cache.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from bench import hard, large, meanwhile, plan_cache
from bench.machine import describe_machine
from bench.plan_floor import POD_EVENTS, TOPOLOGY, Floor, hierarchical, named, node, role, shape
from bench.settled import settle
from covey.placement.model import Gang, Refusal, Shape
from covey.placement.planner import plan_minimum, plan_surplus
from oracle.case import bound

WARM_UP: Final = 20
EVENTS: Final = 2_000
GANGS: Final = 500


@dataclass(frozen=True)
class Row:
    """One line of the table; times in milliseconds."""

    what: str
    plans: int
    median: float
    p95: float
    p99: float
    bar: str = ""
    note: str = ""

    def line(self) -> str:
        """The row as text."""
        times = f"{self.median:9.2f} {self.p95:9.2f} {self.p99:9.2f}"
        return f"{self.what:<62} {self.plans:>5} {times}  {self.bar:<22} {self.note}".rstrip()


HEADER: Final = f"{'what':<62} {'plans':>5} {'median':>9} {'p95':>9} {'p99':>9}  {'bar (ms)':<22} note"


def quantile(times: Sequence[float], share: float) -> float:
    """The smallest time that at least this share of all does not exceed."""
    return sorted(times)[max(math.ceil(share * len(times)) - 1, 0)]


def plan_whole(floor: Floor, gang: Gang) -> tuple[float, str]:
    """Plan a gang's minimum and surplus and let it take its places: the planner's own milliseconds, and the outcome."""
    started = time.perf_counter()
    answer = plan_minimum(gang, floor.inventory)
    spent = time.perf_counter() - started
    if isinstance(answer, Refusal):
        return 1000 * spent, str(answer.verdict)
    floor.admit(gang, answer.assignments)
    grown = bound(gang, {entry.pod: entry.node for entry in answer.assignments})
    started = time.perf_counter()
    growth = plan_surplus(grown, floor.inventory)
    spent += time.perf_counter() - started
    floor.admit(gang, growth.assignments)
    return 1000 * spent, "Admitted"


def measure(what: str, floor: Floor, gang: Gang, plans: int, bar: str = "", *, pod_events: int = POD_EVENTS) -> Row:
    """Plan gangs like this one, one after another, with churn in between."""
    times, outcomes = [], []
    settle()
    for number in range(WARM_UP + plans):
        floor.churn(pod_events)
        spent, outcome = plan_whole(floor, named(gang, f"g{number}"))
        if number >= WARM_UP:
            times.append(spent)
            outcomes.append(outcome)
    note = ", ".join(f"{outcomes.count(found)} {found}" for found in sorted(set(outcomes)))
    return Row(what, plans, statistics.median(times), quantile(times, 0.95), quantile(times, 0.99), bar, note)


def infeasible() -> Gang:
    """Asks for eight whole free nodes in one rack, which a floor this full has not."""
    roles = (
        role("prefill", 4, 1, 4, shape(2), required="rack"),
        role("decode", 2, 1, 8, shape(8), required="rack"),
    )
    return Gang("default", "gang", 0, roles, TOPOLOGY.name, required="block")


def with_router() -> Gang:
    """Three shapes: the hierarchical gang and a router beside it."""
    gang = hierarchical()
    wants = Shape((("cpu", 4000), ("memory", 8 * 2**30), ("pods", 1)))
    return replace(gang, roles=(*gang.roles, role("router", 2, 1, 1, wants)))


def speed(plans: int) -> Iterator[Row]:
    """The bars of single plans."""
    for nodes, bar in ((640, "p99 10, stretch 3"), (5_000, "p99 60, stretch 15"), (20_000, "p99 150, stretch 50")):
        yield measure(f"hierarchical gang, {nodes:,} nodes, 50-97 % occupied", Floor(nodes), hierarchical(), plans, bar)
    yield measure("infeasible gang with reasons, 5,000 nodes", Floor(5_000), infeasible(), plans, "p99 60, stretch 15")
    busy = "hierarchical gang, 5,000 nodes, 500 pod events between plans"
    yield measure(busy, Floor(5_000), hierarchical(), plans, pod_events=500)
    yield measure("with a router (three shapes), 5,000 nodes", Floor(5_000), with_router(), plans)
    yield measure("hierarchical gang, 5,000 empty nodes", Floor(5_000, (0.0, 0.0)), hierarchical(), plans)


def growth(plans: int) -> dict[str, Any]:
    """How cost grows: medians, and the exponent fitted to them (1 = linear)."""
    by_nodes = {
        nodes: measure("", Floor(nodes), hierarchical(), plans).median for nodes in (640, 1_250, 2_500, 5_000, 10_000)
    }
    by_pods = {
        32 * scale: measure("", Floor(5_000, (0.2, 0.6)), hierarchical(scale), plans).median for scale in (1, 2, 4, 8)
    }
    return {
        "millisecondsByNodes": by_nodes,
        "exponentInNodes": exponent(by_nodes),
        "millisecondsByPods": by_pods,
        "exponentInPods": exponent(by_pods),
    }


def exponent(costs: dict[int, float]) -> float:
    """The slope of log cost over log size."""
    return statistics.linear_regression([math.log(size) for size in costs], [math.log(costs[size]) for size in costs])[
        0
    ]


def throughput(occupied: tuple[float, float]) -> float:
    """Planned pods per second: 500 gangs of 8 pods of one GPU, each in one rack, on 5,000 nodes."""
    floor = Floor(5_000, occupied)
    roles = (role("prefill", 1, 1, 4, shape(1)), role("decode", 1, 1, 4, shape(1)))
    gang = Gang("default", "gang", 0, roles, TOPOLOGY.name, required="rack")
    gangs = [named(gang, f"g{number}") for number in range(GANGS)]
    placed = 0
    started = time.perf_counter()
    for found in gangs:
        answer = plan_minimum(found, floor.inventory)
        if not isinstance(answer, Refusal):
            for entry in answer.assignments:
                floor.inventory.hold(entry.pod, entry.node, shape(1))
            placed += len(answer.assignments)
    return placed / (time.perf_counter() - started)


def events() -> dict[str, float]:
    """Microseconds that one event costs in a cache of 5,000 nodes that is planned on."""
    floor = Floor(5_000)
    plan_whole(floor, named(hierarchical(), "first"))
    names = [floor.source.randrange(5_000) for _ in range(EVENTS)]
    changed = [node(name, "changed") for name in names]

    def timed(act: Callable[[int], None]) -> float:
        times = []
        for number in range(EVENTS):
            started = time.perf_counter()
            act(number)
            times.append(time.perf_counter() - started)
        return 1e6 * statistics.median(times)

    one = shape(1)
    return {
        "hold": timed(lambda number: floor.inventory.hold(f"e{number}", f"n{names[number]:05}", one)),
        "release": timed(lambda number: floor.inventory.release(f"e{number}")),
        "nodeChanged": timed(lambda number: floor.inventory.set_node(changed[number])),
        "nodeUnchanged": timed(lambda number: floor.inventory.set_node(changed[number])),
        "nodeCordoned": timed(
            lambda number: floor.inventory.set_node(
                type(changed[number])(
                    changed[number].metadata, type(changed[number].spec)(unschedulable=True), changed[number].status
                )
            )
        ),
    }


def cache() -> dict[str, float]:
    """Memory and cold start of a process of its own."""
    nodes, pods = plan_cache.answers()
    with tempfile.TemporaryDirectory() as directory:
        for kind, chunks in (("nodes", nodes), ("pods", pods)):
            for number, chunk in enumerate(chunks):
                (Path(directory) / f"{kind}-{number:03}").write_bytes(chunk)
        command = [sys.executable, plan_cache.__file__, directory]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


class Told(Protocol):
    """A row of a table."""

    def line(self) -> str:
        """The row as text."""


def told(title: str, rows: Iterable[Told]) -> list[dict[str, Any]]:
    """Print a table, row by row, and return it."""
    print(f"\n{title}", flush=True)
    found = []
    for row in rows:
        print(row.line(), flush=True)
        found.append(asdict(row))  # type: ignore[call-overload]  # all rows are dataclasses
    return found


def main() -> None:
    """Measure everything, print it, and write the JSON where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--plans", type=int, default=200, help="plans for each figure (200)")
    options = parser.parse_args()
    print(describe_machine(), HEADER, sep="\n\n", flush=True)
    rows = []
    for row in speed(options.plans):
        rows.append(row)
        print(row.line(), flush=True)
    rates = {"empty": throughput((0.0, 0.0)), "occupied": throughput((0.5, 0.97))}
    print(
        f"\nplanned pods/s, 500 gangs x 8 pods in a rack, 5,000 nodes (bar 1,000, stretch 5,000): "
        f"empty {rates['empty']:,.0f}, 50-97 % occupied {rates['occupied']:,.0f}",
        flush=True,
    )
    costs = events()
    print(
        "one event, 5,000 nodes, median us (bar 50): " + ", ".join(f"{name} {cost:.1f}" for name, cost in costs.items())
    )
    held = cache()
    print(
        f"cache of {held['nodes']:,} nodes and {held['pods']:,} pods: {held['residentMegabytes']:.0f} MB resident, "
        f"{held['importedMegabytes']:.0f} of it imports (bar 150, stretch 100)\n"
        f"cold start: {held['decodeSeconds']:.2f} s to decode, {held['buildSeconds']:.2f} s to build (bar 2, stretch 1), "
        f"{held['firstPlanSeconds']:.3f} s for the first plan",
        flush=True,
    )
    costly = told("the costliest gangs, each cold in a process of its own (bar 300 ms, 100 MB)", hard.table())
    big = told("large gangs", large.table())
    answers = told("a guard's call while a gang is planned in a thread (bar p99 50 ms)", meanwhile.table())
    grown = growth(options.plans)
    for size in ("Nodes", "Pods"):
        medians = ", ".join(f"{count:,}: {cost:.2f}" for count, cost in grown[f"millisecondsBy{size}"].items())
        print(f"cost grows with {size.lower()} ^ {grown[f'exponentIn{size}']:.2f} (median ms at {medians})")
    if options.json:
        figures = {
            "machine": describe_machine(),
            "plans": [asdict(row) for row in rows],
            "podsPerSecond": rates,
            "eventMicroseconds": costs,
            "cache": held,
            "costliest": costly,
            "large": big,
            "guard": answers,
            "growth": grown,
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
