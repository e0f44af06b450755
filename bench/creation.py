"""How fast the operator creates the 1,000 pods of one resource, how fast they are bound, and what memory both take."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from bench.machine import describe_machine
from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.reflector import Reflector, Selection
from covey.kube.resources import PODS
from localcluster import Cluster, Nodes, Process, programs

SIZE = 1000
MANIFEST = """
apiVersion: inference.covey.dev/v1alpha1
kind: DisaggregatedInference
metadata: {name: large, namespace: default}
spec:
  roles:
  - {name: prefill, replicas: 250, minReplicas: 1, size: 2, topology: {required: rack}, template: &pod {spec: {
       containers: [{name: engine, image: example.com/engine:1, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
  - {name: decode, replicas: 125, minReplicas: 1, size: 4, topology: {required: rack}, template: *pod}
"""


def resident(process: Process) -> float:
    """Resident memory in MB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def measure(cluster: Cluster) -> dict[str, float]:
    """One resource of 1,000 pods: created with the scheduler process away, then let go."""
    operator = await asyncio.to_thread(cluster.start_covey, "operator")
    idle = resident(operator)
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench") as client:
        pods = Reflector(client, PODS, core.Pod, selection=Selection("default"), clock=SYSTEM)
        following = asyncio.create_task(pods.run())
        await pods.synced.wait()
        started = time.monotonic()
        await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", input=MANIFEST)
        applied = time.monotonic()
        await reached(pods, lambda: len(pods.store))
        created = time.monotonic()
        scheduler = await asyncio.to_thread(cluster.start_covey, "scheduler")
        config = await asyncio.to_thread(programs.scheduler_config, scheduler)
        await asyncio.to_thread(cluster.start_scheduler, config)
        scheduling = time.monotonic()
        await reached(pods, lambda: sum(pod.spec.node_name is not None for pod in pods.store.values()))
        bound = time.monotonic()
        following.cancel()
    return {
        "applySeconds": applied - started,
        "creationSeconds": created - started,
        "podsPerSecond": SIZE / (created - started),
        "boundSeconds": bound - scheduling,
        "operatorIdleMB": idle,
        "operatorMB": resident(operator),
        "schedulerMB": resident(scheduler),
    }


async def reached(pods: Reflector[core.Pod], count: Callable[[], int]) -> None:
    """Wait until a count over the pods is complete."""
    changed = asyncio.Event()
    pods.subscribe(lambda *_: changed.set())
    async with asyncio.timeout(180):
        while count() < SIZE:
            changed.clear()
            await changed.wait()


def run() -> dict[str, float]:
    """On 540 nodes."""
    with Cluster(kwok=False, max_inflight=2000) as cluster:
        cluster.add_nodes(Nodes(blocks=2, racks=15, nodes=18))
        return asyncio.run(measure(cluster))


def main() -> int:
    """Print the figures, as text and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = {name: round(value, 2) for name, value in run().items()}
    print(describe_machine())
    for name, value in figures.items():
        print(f"{name:<20}{value:>10}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
