"""Ordinary pods through a kube-scheduler with and without Covey's extender, by turns in one run.

One control plane with 5,000 nodes and no gang. The pods wait while no scheduler runs; then one is started, and the
clock runs from the first pod bound to the last: what a scheduler does before (it lists 5,000 nodes) is the same with
and without the extender and would only hide the difference. Both have the stock profile ``default-scheduler``; with
the extender it is what a user gets who adds the printed entries to an existing configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from attached import Attachment
from bench.extender import Answered, ask_guard
from bench.machine import describe_machine
from bench.native import Bound, control_plane, cpu_seconds, quiet
from bench.trees import NAMESPACE, create_all
from covey.kube.client import Client
from covey.kube.resources import PODS
from localcluster import Cluster

#: So that no scheduler waits for its own limit of requests to the API server; and the limit that it comes with.
UNLIMITED: Final = {"qps": 5000, "burst": 5000}
STOCK: Final = {"qps": 50, "burst": 100}
SERVED: Final = "--scheduler-name=default-scheduler"
WITHOUT, WITH = "without", "with"


@dataclass(frozen=True)
class Round:
    """One start of a kube-scheduler."""

    system: str
    pods_per_second: float
    seconds: float
    bound: int
    cpu_milliseconds: Mapping[str, float]
    guard: tuple[Answered, ...]


def pod(number: int) -> dict[str, Any]:
    """An ordinary pod."""
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "example.com/none:1", "resources": {"requests": requests}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": f"plain-{number}", "namespace": NAMESPACE}, "spec": spec}


def configuration(limits: Mapping[str, int], attachment: Attachment | None) -> str:
    """A stock configuration, to which a user has added the extender entries that Covey prints."""
    extenders = attachment.local()["extenders"] if attachment else []
    return str(yaml.safe_dump({"clientConnection": dict(limits), "extenders": extenders}))


@contextlib.contextmanager
def scheduling(cluster: Cluster, system: str, limits: Mapping[str, int]) -> Iterator[Attachment | None]:
    """A kube-scheduler, and with the extender Covey's scheduler process first; yields the latter."""
    with tempfile.TemporaryDirectory() as directory:
        attachment = Attachment(cluster, Path(directory), SERVED) if system == WITH else None
        try:
            cluster.start_scheduler(configuration(limits, attachment))
            yield attachment
        finally:
            cluster.forget("kube-scheduler", "covey-scheduler")


async def measure(
    cluster: Cluster, system: str, count: int, patience: float, limits: Mapping[str, int] = UNLIMITED
) -> Round:
    """Create the pods, schedule them, and delete them."""
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=96) as client:
        await create_all(client, PODS, map(pod, range(count)))
        bound = Bound(client, count)
        watching = asyncio.create_task(bound.follow())
        await bound.watching.wait()
        await quiet(cluster)
        with contextlib.ExitStack() as stack:
            covey = await asyncio.to_thread(stack.enter_context, scheduling(cluster, system, limits))
            before, already = cpu_seconds(cluster), len(bound.times)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bound.complete.wait(), patience)
            spent = {name: value - before[name] for name, value in cpu_seconds(cluster).items()}
            guard = await asyncio.to_thread(_guard, cluster, covey) if covey else ()
            await asyncio.to_thread(stack.close)
        watching.cancel()
    await asyncio.to_thread(empty, cluster)
    seconds = max(bound.times.values(), default=0.0) - min(bound.times.values(), default=0.0)
    done = len(bound.times)
    milliseconds = {name: round(1000 * value / max(1, done - already), 2) for name, value in spent.items()}
    return Round(system, done / seconds if seconds else 0.0, seconds, done, milliseconds, guard)


def _guard(cluster: Cluster, covey: Attachment) -> tuple[Answered, ...]:
    """The guard's time for as many names as kube-scheduler samples by itself, and for all."""
    names = [node["metadata"]["name"] for node in cluster.api("GET", "/api/v1/nodes?resourceVersion=0")["items"]]
    stored = cluster.api("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod(0)['metadata']['name']}")
    return tuple(ask_guard(covey, stored, names[:count]) for count in (len(names) // 10, len(names)))


def empty(cluster: Cluster) -> None:
    """Delete the pods of a round."""
    cluster.api("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")


def row(system: str, rounds: Sequence[Round]) -> str:
    """One line of the table."""
    rates = [each.pods_per_second for each in rounds]
    spread = f"{min(rates):.0f}..{max(rates):.0f}"
    return f"{system:<10}{statistics.median(rates):>14.1f}{spread:>14}"


def main() -> int:
    """Run the rounds and print a table, and JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for each round")
    parser.add_argument("--stock-limits", action="store_true", help="kube-scheduler's own 50 requests a second")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    limits = STOCK if options.stock_limits else UNLIMITED
    rounds: dict[str, list[Round]] = {WITHOUT: [], WITH: []}
    with control_plane("covey", options.nodes, scheduler=False) as cluster:
        for number in range(options.rounds):
            # Whatever drifts during a round does not always meet the same system.
            for system in (WITHOUT, WITH) if number % 2 == 0 else (WITH, WITHOUT):
                done = asyncio.run(measure(cluster, system, options.pods, options.timeout, limits))
                rounds[system].append(done)
                print(f"{system}: {done.pods_per_second:.0f} pods/s", file=sys.stderr, flush=True)
    report(rounds, options.nodes, options.pods)
    if options.json:
        options.json.write_text(json.dumps({name: list(map(asdict, each)) for name, each in rounds.items()}, indent=2))
    return 0


def report(rounds: Mapping[str, Sequence[Round]], nodes: int, pods: int) -> None:
    """The table, the ratio, and where the processor's time went."""
    print(describe_machine())
    print(f"{nodes} nodes, {pods} ordinary pods, {len(rounds[WITH])} rounds each\n")
    print(f"{'extender':<10}{'pods/s median':>14}{'min..max':>14}")
    for system, done in rounds.items():
        print(row(system, done))
    ratio = statistics.median(each.pods_per_second for each in rounds[WITH]) / statistics.median(
        each.pods_per_second for each in rounds[WITHOUT]
    )
    print(f"\nwith / without: {ratio:.2f} (must 0.75)\n")
    for system, done in rounds.items():
        print(f"CPU ms per pod, {system}: " + ", ".join(f"{k} {v}" for k, v in done[-1].cpu_milliseconds.items()))
        if missing := [each.bound for each in done if each.bound < pods]:
            print(f"{system}: only {missing} of {pods} pods were bound in time")
    for each in rounds[WITH][-1].guard:
        print(f"guard, {each.nodes} names: p50 {each.median:.2f} ms, p99 {each.p99:.2f} ms")


if __name__ == "__main__":
    raise SystemExit(main())
