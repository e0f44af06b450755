"""The shape of KAI-Scheduler's scale test (``kai_shape``): the planner alone, then Covey and native on a control plane.

As there, everything exists before the scheduler starts, and the clock runs from that start to the last pod bound; it
includes the start of the processes.  Covey: 128 DisaggregatedInferences, expanded by the operator while no scheduler
runs.  Native: the same trees as Workload, CompositePodGroup and PodGroups with all gates on, which cannot say that decode
prefers a block; once as it comes, once told to pack nodes by GPUs (``MostAllocated``).  A case ends when nothing was bound for a while, because a scheduler may leave GPUs stranded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.kai_plan import plan_alone
from bench.kai_shape import DEPLOYMENTS, FLOOR, Floor, Placement, Spot, deployment_resource, deployment_tree
from bench.machine import describe_machine
from bench.native import Bound, cpu_seconds, quiet
from bench.trees import NAMESPACE, NATIVE, TREE_LABEL, Objects, create_all, create_pods, make_owner
from covey.api import core
from covey.api.constants import LABEL_ROLE
from covey.kube.client import Client
from covey.kube.resources import DISAGGREGATED_INFERENCES, PODS
from localcluster import NATIVE_GROUPS, Cluster, programs

PODS_IN_ALL: Final = DEPLOYMENTS * deployment_tree(0).size
GPUS_IN_ALL: Final = len(FLOOR) * FLOOR.gpus
#: kube-scheduler as it comes, which spreads pods over nodes, and told to fill broken nodes first.
CONFIGS: Final = {
    "native": "clientConnection: {qps: 5000, burst: 5000}",
    "native-packing": """
clientConnection: {qps: 5000, burst: 5000}
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 1}]}}
""",
}
SYSTEMS: Final = ("covey", *CONFIGS)
#: Seconds to wait for the operator to expand the resources.
EXPANSION: Final = 180


def run(system: str, patience: float, idle: float) -> dict[str, Any]:
    """One system on a fresh control plane."""
    gates = NATIVE_GROUPS if system != "covey" else None
    with Cluster(gates=gates, kwok=False, max_inflight=2000) as cluster:
        cluster.add_nodes(FLOOR)
        return asyncio.run(measure(cluster, system, patience, idle))


async def measure(cluster: Cluster, system: str, patience: float, idle: float) -> dict[str, Any]:
    """Make everything, start the scheduler, and follow the pods until all are bound or nothing more is."""
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=96) as client:
        began = time.monotonic()
        await (make_resources(cluster, client) if system == "covey" else make_trees(client))
        made = time.monotonic() - began
        bound = Bound(client, PODS_IN_ALL)
        watching = asyncio.create_task(bound.follow())
        await bound.watching.wait()
        await quiet(cluster)
        before, started = cpu_seconds(cluster), time.monotonic()
        await asyncio.to_thread(start, cluster, system)
        await settled(bound, patience, idle)
        cpu = {name: value - before.get(name, 0.0) for name, value in cpu_seconds(cluster).items()}
        watching.cancel()
        pods, _ = await client.list(PODS, NAMESPACE, type=core.Pod)
    times = sorted(at - started for at in bound.times.values())
    return {
        "case": system,
        "madeSeconds": round(made, 1),
        "seconds": round(times[-1], 2) if times else None,
        "firstBoundSeconds": round(times[0], 2) if times else None,
        "cpuSeconds": {name: round(value, 1) for name, value in cpu.items()},
        "cpuMillisecondsPerPod": {name: round(1000 * value / max(1, len(times)), 1) for name, value in cpu.items()},
        **Placement(Floor(), tuple(spots_of(pods))).report(),
    }


def start(cluster: Cluster, system: str) -> None:
    """The scheduler of a system; Covey's two processes at once, as the containers of one pod."""
    if system == "covey":
        config = programs.scheduler_config(cluster.start_covey("scheduler", wait=False), leader_elect=False)
    else:
        config = CONFIGS[system]
    cluster.start_scheduler(config, wait=False)


async def make_trees(client: Client) -> None:
    """Groups first, then pods, which wait for a scheduler."""
    objects = Objects(NATIVE, await make_owner(client))
    trees = [deployment_tree(number) for number in range(DEPLOYMENTS)]
    for resource, bodies in objects.groups(trees):
        await create_all(client, resource, bodies)
    await create_pods(client, objects, trees)


async def make_resources(cluster: Cluster, client: Client) -> None:
    """The resources, and whatever the operator makes of them.

    Raises:
        TimeoutError: the operator does not make all pods.
    """
    await asyncio.to_thread(cluster.start_covey, "operator")
    await create_all(client, DISAGGREGATED_INFERENCES, map(deployment_resource, range(DEPLOYMENTS)))
    for _ in range(EXPANSION):
        await asyncio.sleep(1)
        pods, _ = await client.list(PODS, NAMESPACE, type=core.Pod)
        if len(pods) == PODS_IN_ALL:
            return
    raise TimeoutError(f"the operator did not make {PODS_IN_ALL} pods in {EXPANSION} s")


async def settled(bound: Bound, patience: float, idle: float) -> None:
    """Until all pods are bound, nothing more was bound for ``idle`` seconds, or ``patience`` is up."""
    deadline = time.monotonic() + patience
    quiet_since, seen = time.monotonic(), 0
    while (now := time.monotonic()) < deadline and (not seen or now - quiet_since < idle):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(bound.complete.wait(), 1.0)
            return
        if len(bound.times) != seen:
            quiet_since, seen = time.monotonic(), len(bound.times)


def spots_of(pods: Sequence[core.Pod]) -> list[Spot]:
    """The pods that have a node."""
    return [
        Spot(pod.metadata.label(TREE_LABEL) or "", pod.metadata.label(LABEL_ROLE) or "", pod.spec.node_name)
        for pod in pods
        if pod.spec.node_name
    ]


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line for each case, and below it where the processor time went."""
    print(f"{'case':<30}{'seconds':>9}{'first':>8}{'deployments':>13}{'pods':>12}{'GPUs':>12}  decode blocks")
    for row in rows:
        blocks = row["decodeBlocks"] or {}
        print(
            f"{row['case']:<30}{row['seconds'] or '-':>9}{row.get('firstBoundSeconds') or '-':>8}"
            f"{row['deployments']:>9}/{DEPLOYMENTS}{row['pods']:>7}/{PODS_IN_ALL}{row['gpus']:>7}/{GPUS_IN_ALL}"
            f"  {', '.join(f'{name} {value}' for name, value in blocks.items())}"
            f" ({row['decodeInOneBlock']} in one), {row['stillFit']} more would fit {'; '.join(row['problems'])}"
        )
        details = {
            key: row[key]
            for key in ("planSeconds", "planMilliseconds", "madeSeconds", "cpuMillisecondsPerPod")
            if key in row
        }
        print("    " + ", ".join(f"{key} {value}" for key, value in details.items()))
        for refusal in row.get("refused", ()):
            print(f"    {refusal}")


def main() -> int:
    """Run the cases and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=["plan", *SYSTEMS], action="append")
    parser.add_argument("--rounds", type=int, default=1, help="how often each case on a control plane is run")
    parser.add_argument("--timeout", type=float, default=420.0, help="seconds for each case")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without a pod bound after which a case ends")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.case or ["plan", *SYSTEMS]
    rows = [plan_alone(DEPLOYMENTS)] if "plan" in chosen else []
    for _ in range(options.rounds):
        for system in SYSTEMS:
            if system in chosen:
                print(f"running: {system}", file=sys.stderr, flush=True)
                rows.append(run(system, options.timeout, options.idle))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(describe_machine())
    print(f"{len(FLOOR)} nodes of {FLOOR.gpus} GPUs, {DEPLOYMENTS} deployments of {deployment_tree(0).size} pods\n")
    print_table(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
