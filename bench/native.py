"""Covey beside kube-scheduler's own gang scheduling, on equal trees, one after the other in one run.

500 trees of 2 groups x 4 pods of one GPU, on 5,000 nodes of 8 GPUs (racks of 18, blocks of 288); once without
topology, once with each tree required in one rack.  Native: Kubernetes' own Workload, CompositePodGroup and PodGroup
with all gates on.  Covey: the same tree in its own group, gated pods, the scheduler process and a stock kube-scheduler.

Two tables.  *From resources*: the clock runs from the first of 500 DisaggregatedInferences created, all at once, the
operator running, to the last pod bound; beside it native, whose groups and pods a client writes tree by tree, from the
first object on.  *From ready trees*: groups exist before the clock starts; it runs from the first pod created.  The
control plane is at rest before either.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.asked import Asked
from bench.machine import describe_machine
from bench.resources import create_resources, write_trees
from bench.trees import COVEY, NAMESPACE, NATIVE, TREE_LABEL, GroupSpec, Objects, Tree, create_all, make_owner
from covey.api import core
from covey.api.constants import LABEL_INFERENCE
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.reflector import Reflector
from covey.kube.resources import NODES, PODS
from localcluster import NATIVE_GROUPS, Cluster, Nodes, programs

GROUPS_PER_TREE: Final = 2
PODS_PER_GROUP: Final = 4


@dataclass(frozen=True)
class Case:
    """One system, with or without a required rack, from resources or from ready trees."""

    system: str
    rack: bool
    resources: bool = False
    namespaces: int = 1
    services: bool = False
    minimum: int = PODS_PER_GROUP

    @property
    def title(self) -> str:
        system = f"{self.system} with Services" if self.services else self.system
        surplus = f", minimum {self.minimum} of {PODS_PER_GROUP}" if self.minimum < PODS_PER_GROUP else ""
        spread = f", {self.namespaces} namespaces" if self.namespaces > 1 else ""
        return f"{system}, {'each tree in one rack' if self.rack else 'no topology'}{surplus}{spread}"

    @property
    def tree_label(self) -> str:
        """The pods' label that names their tree."""
        return LABEL_INFERENCE if self.resources and self.system != "native" else TREE_LABEL

    @property
    def places(self) -> tuple[str, ...]:
        """The namespaces of its resources."""
        return (NAMESPACE, *(f"bench-{number}" for number in range(1, self.namespaces)))


def tree_of(case: Case, number: int) -> Tree:
    """Two groups of four single-GPU pods, of which ``case.minimum`` of each group must start."""
    groups = tuple(
        GroupSpec(f"group-{group}", PODS_PER_GROUP, gpus=1, minimum=case.minimum) for group in range(GROUPS_PER_TREE)
    )
    return Tree(f"tree-{number}", groups, level="rack" if case.rack else None)


@dataclass
class Result:
    """What one case took."""

    case: Case
    pods: int
    seconds: float
    latencies: list[float]
    cpu: Mapping[str, float]
    asked: Asked
    bound: int
    nodes: int
    problems: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.bound / self.seconds if self.seconds else 0.0

    def report(self) -> dict[str, Any]:
        quantiles = statistics.quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0.0] * 99
        return {
            "from": "resources" if self.case.resources else "trees",
            "case": self.case.title,
            "podsPerSecond": round(self.rate, 1),
            "seconds": round(self.seconds, 2),
            "bound": self.bound,
            "pods": self.pods,
            "wholeTrees": len(self.latencies),
            "nodesUsed": self.nodes,
            "gangP50Seconds": round(quantiles[49], 3),
            "gangP99Seconds": round(quantiles[98], 3),
            "cpuSeconds": {name: round(value, 1) for name, value in self.cpu.items()},
            "cpuMillisecondsPerPod": {
                name: round(1000 * value / max(1, self.bound), 2) for name, value in self.cpu.items()
            },
            **self.asked.report(max(1, self.bound)),
            "problems": self.problems,
        }


async def measure(cluster: Cluster, case: Case, gangs: int, patience: float) -> Result:
    """Create everything, and wait until all pods are bound or the time is up."""
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=96) as client:
        objects = Objects(NATIVE if case.system == "native" else COVEY, await make_owner(client))
        trees = [tree_of(case, number) for number in range(gangs)]
        if not case.resources:
            for resource, bodies in objects.groups(trees):
                await create_all(client, resource, bodies)
        for name in case.places[1:]:
            cluster.ensure("/api/v1/namespaces", {"metadata": {"name": name}})
        bound = Bound(client, sum(tree.size for tree in trees), case.tree_label)
        watching = asyncio.create_task(bound.follow())
        await bound.watching.wait()
        await quiet(cluster)
        asked, cpu = Asked.read(cluster), cpu_seconds(cluster)
        started = time.monotonic()
        created = await _begin(client, case, objects, trees)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(bound.complete.wait(), patience)
        watching.cancel()
        spent = {name: value - cpu.get(name, 0.0) for name, value in cpu_seconds(cluster).items()}
        last = max(bound.times.values(), default=started)
        return Result(
            case,
            bound.expected,
            last - started,
            bound.latencies(created),
            spent,
            Asked.read(cluster) - asked,
            len(bound.times),
            len(set(bound.nodes.values())),
            bound.broken(case),
        )


async def _begin(client: Client, case: Case, objects: Objects, trees: Sequence[Tree]) -> Mapping[str, float]:
    """Create what the clock runs for; when each tree was begun."""
    if case.resources:
        if case.system == "native":
            return await write_trees(client, objects, trees, services=case.services)
        return await create_resources(client, trees, case.places)
    created: dict[str, float] = {}
    await create_all(client, PODS, _noted((pod for tree in trees for pod in objects.pods(tree)), created))
    return created


def _noted(pods: Iterable[dict[str, Any]], created: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Note when the first pod of each tree is about to be created."""
    for pod in pods:
        created.setdefault(pod["metadata"]["labels"][TREE_LABEL], time.monotonic())
        yield pod


class Bound:
    """Follows pods until all have a node."""

    def __init__(self, client: Client, expected: int, tree_label: str = TREE_LABEL) -> None:
        self._client = client
        self._tree_label = tree_label
        self.expected = expected
        self.times: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.tree: dict[str, str] = {}
        self.watching = asyncio.Event()
        self.complete = asyncio.Event()

    async def follow(self) -> None:
        """Like any client, over watches that the server closes under load."""
        pods = Reflector(self._client, PODS, core.Pod, on_event=self._note, clock=SYSTEM)
        running = asyncio.create_task(pods.run())
        await pods.synced.wait()
        self.watching.set()
        await running

    def _note(self, _: str, pod: core.Pod, __: core.Pod | None) -> None:
        if pod.spec.node_name and pod.metadata.name not in self.times:
            self.times[pod.metadata.name] = time.monotonic()
            self.nodes[pod.metadata.name] = pod.spec.node_name
            self.tree[pod.metadata.name] = pod.metadata.label(self._tree_label) or ""
            if len(self.times) == self.expected:
                self.complete.set()

    def latencies(self, created: Mapping[str, float]) -> list[float]:
        """Seconds from a tree's first pod created to its last one bound, of whole trees."""
        last: dict[str, list[float]] = {}
        for name, at in self.times.items():
            last.setdefault(self.tree[name], []).append(at)
        whole = GROUPS_PER_TREE * PODS_PER_GROUP
        return sorted(max(times) - created[tree] for tree, times in last.items() if len(times) == whole)

    def broken(self, case: Case) -> list[str]:
        """What must not be: partial trees, trees over several racks, nodes with more than 8 GPUs in use."""
        problems = []
        counts: dict[str, int] = {}
        racks: dict[str, set[str]] = {}
        for name, node in self.nodes.items():
            counts[node] = counts.get(node, 0) + 1
            racks.setdefault(self.tree[name], set()).add(node.rpartition("-")[0])
        if over := [node for node, count in counts.items() if count > 8]:
            problems.append(f"{len(over)} nodes over-committed")
        if case.rack and (wide := [tree for tree, names in racks.items() if len(names) > 1]):
            problems.append(f"{len(wide)} trees in more than one rack")
        if missing := self.expected - len(self.times):
            whole = len(self.latencies(dict.fromkeys(self.tree.values(), 0.0)))
            problems.append(f"{missing} pods not bound, {whole} trees whole")
        return problems


def cpu_seconds(cluster: Cluster) -> dict[str, float]:
    """User and system time of each process so far, and of this one."""
    ticks = os.sysconf("SC_CLK_TCK")

    def spent(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / ticks

    return {name: spent(process.pid) for name, process in cluster.processes.items()} | {"bench": spent(os.getpid())}


async def quiet(cluster: Cluster, most: float = 0.2, seconds: int = 120) -> None:
    """Wait until the control plane is done with the nodes and groups: it uses less than so much of a core for 2 s.

    After 5,000 nodes were added kube-controller-manager annotates each of them, for half a minute.
    """
    still, before = 0, sum(cpu_seconds(cluster).values())
    for _ in range(seconds):
        await asyncio.sleep(1)
        now = sum(cpu_seconds(cluster).values())
        still = still + 1 if now - before < most else 0
        before = now
        if still == 2:
            return
    print(f"the control plane did not come to rest in {seconds} s", file=sys.stderr)


async def add_nodes(cluster: Cluster, count: int, racks: int, per_rack: int) -> None:
    """Ready nodes, without kwok, in blocks of ``racks`` racks."""
    blocks = -(-count // (racks * per_rack))
    manifests = Nodes(blocks=blocks, racks=racks, nodes=per_rack).manifests()[:count]
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=96) as client:
        await create_all(client, NODES, manifests)


@contextlib.contextmanager
def control_plane(
    system: str, nodes: int, racks: int = 16, per_rack: int = 18, *, scheduler: bool = True
) -> Iterator[Cluster]:
    """A fresh control plane with ready nodes, and the scheduler of one system."""
    with Cluster(gates=NATIVE_GROUPS if system == "native" else None, kwok=False, max_inflight=2000) as cluster:
        asyncio.run(add_nodes(cluster, nodes, racks, per_rack))
        if scheduler:
            start_scheduler(cluster, system)
        yield cluster


def start_scheduler(cluster: Cluster, system: str) -> None:
    """kube-scheduler with its own gangs, or Covey's scheduler process and a stock kube-scheduler."""
    if system == "native":
        cluster.start_scheduler("clientConnection: {qps: 5000, burst: 5000}")
    else:
        scheduler = cluster.start_covey("scheduler")
        cluster.start_scheduler(programs.scheduler_config(scheduler, leader_elect=False))


def run(case: Case, gangs: int, nodes: int, timeout: float) -> Result:
    """One case on a fresh control plane."""
    with control_plane(case.system, nodes) as cluster:
        if case.resources and case.system != "native":
            cluster.start_covey("operator")
        return asyncio.run(measure(cluster, case, gangs, timeout))


def main() -> int:
    """Run the cases and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gangs", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--timeout", type=float, default=420.0, help="seconds for each case")
    parser.add_argument("--system", choices=["native", "services", "covey"], action="append")
    parser.add_argument("--topology", choices=["none", "rack"], action="append")
    parser.add_argument("--from", dest="starts", choices=["resources", "trees"], action="append")
    parser.add_argument(
        "--minimum",
        type=int,
        choices=range(1, PODS_PER_GROUP + 1),
        action="append",
        help="pods of each group that must start; all by default",
    )
    parser.add_argument("--namespaces", type=int, default=1, help="over which Covey's resources are spread")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for start, topology, minimum, system in itertools.product(
        options.starts or ["resources", "trees"],
        options.topology or ["none", "rack"],
        options.minimum or [PODS_PER_GROUP],
        options.system or ["native", "covey"],
    ):
        native = system in {"native", "services"}
        spread = options.namespaces if start == "resources" and not native else 1
        name = "native" if native else system
        case = Case(name, topology == "rack", start == "resources", spread, system == "services", minimum)
        print(f"running: from {start}, {case.title}", file=sys.stderr, flush=True)
        results.append(run(case, options.gangs, options.nodes, options.timeout).report())
    print(describe_machine())
    print(f"{options.nodes} nodes, {options.gangs} trees of {GROUPS_PER_TREE} x {PODS_PER_GROUP} pods")
    for start in ("resources", "trees"):
        print_table(f"from {start}", [row for row in results if row["from"] == start])
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    # What native leaves out is a figure of it.
    return int(any(row["problems"] for row in results if not row["case"].startswith("native")))


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line for each case, and below it where the processor time went."""
    if not rows:
        return
    print(f"\n{title:<52}{'pods/s':>8}{'seconds':>9}{'gang p50':>10}{'gang p99':>10}{'nodes':>7}  bound")
    for row in rows:
        print(
            f"{row['case']:<52}{row['podsPerSecond']:>8}{row['seconds']:>9}{row['gangP50Seconds']:>9}s"
            f"{row['gangP99Seconds']:>9}s{row['nodesUsed']:>7}  {row['bound']}/{row['pods']} {'; '.join(row['problems'])}"
        )
        spent = row["cpuMillisecondsPerPod"]
        everything = round(sum(value for name, value in spent.items() if name != "bench"), 1)
        print(f"    CPU ms per pod: {everything}: " + ", ".join(f"{name} {value}" for name, value in spent.items()))
        print(f"    a pod: {row['requestsPerPod']} writes, {row['bytesPerPod']} bytes: ", end="")
        print(", ".join(f"{count} {what}" for what, count in row["requestsPerPodByKind"].items()))


if __name__ == "__main__":
    raise SystemExit(main())
