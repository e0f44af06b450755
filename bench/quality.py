"""How full Covey and kube-scheduler's own gang scheduling get the same cluster, with the same arrivals.

Random gangs arrive one by one at 640 nodes of 8 GPUs (racks of 16, blocks of 128) until a dozen in a row are refused.
Every refusal is judged by the CP-SAT oracle on what was free at that moment: a feasible gang refused is a failure of
the scheduler. Then two traps of the field are set for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.machine import describe_machine
from bench.native import control_plane, start_scheduler
from bench.trees import (
    COVEY,
    KEYS,
    NAMESPACE,
    NATIVE,
    TREE_LABEL,
    GroupSpec,
    Objects,
    Tree,
    create_all,
    create_pods,
    make_owner,
)
from covey.api import core
from covey.api.constants import ADMITTED
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.reflector import Reflector, Selection
from covey.kube.resources import COMPOSITE_POD_GROUPS, NODES, PODS, Resource
from covey.placement.model import (
    Gang,
    Level,
    PodRequest,
    ReplicaRequest,
    RoleRequest,
    Shape,
    Topology,
)
from localcluster import Cluster
from oracle import cpsat
from oracle.case import Case, Hold

TOPOLOGY: Final = Topology("floor", (Level("block", (KEYS["block"],)), Level("rack", (KEYS["rack"],))))
PATIENCE: Final = 12
#: Seconds after which a tree that is neither bound nor called unschedulable counts as refused.
DECISION: Final = 20.0
GPU: Final = "nvidia.com/gpu"


def arrivals(seed: int) -> list[Tree]:
    """Random gangs: prefill and decode replicas of several whole nodes, each in a rack, all in one block."""
    rng = random.Random(seed)
    trees = []
    for number in range(400):
        small, large = rng.choice([(1, 2), (2, 3), (2, 4), (3, 5), (4, 7), (2, 6)])
        prefill = [GroupSpec(f"p{i}", small, 8, level="rack") for i in range(rng.randint(1, 5))]
        decode = [GroupSpec(f"d{i}", large, 8, level="rack") for i in range(rng.randint(1, 3))]
        trees.append(Tree(f"gang-{number}", (*prefill, *decode), level="block"))
    return trees


@dataclass
class Tally:
    """What became of the arrivals."""

    system: str
    admitted: int = 0
    refused: int = 0
    feasible_refused: int = 0
    undecided_by_oracle: int = 0
    partial: int = 0
    gpus: int = 0
    seconds: float = 0.0
    traps: dict[str, str] = field(default_factory=dict)


class Floor:
    """The cluster as both systems leave it."""

    def __init__(self, client: Client, system: str, owner: Mapping[str, Any]) -> None:
        self.client = client
        self.native = system == "native"
        self.objects = Objects(NATIVE if self.native else COVEY, owner)
        self.pods = Reflector(
            client, PODS, core.Pod, selection=Selection(NAMESPACE), on_event=self._changed, clock=SYSTEM
        )
        self.roots = Reflector(
            client,
            COMPOSITE_POD_GROUPS,
            core.Group,
            selection=Selection(NAMESPACE),
            on_event=self._changed,
            clock=SYSTEM,
        )
        self.nodes: list[core.Node] = []
        self._event = asyncio.Event()

    def _changed(self, *_: object) -> None:
        self._event.set()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        self.nodes, _ = await self.client.list(NODES, type=core.Node)
        tasks = [asyncio.create_task(self.pods.run())]
        if not self.native:
            tasks.append(asyncio.create_task(self.roots.run()))
            await self.roots.synced.wait()
        await self.pods.synced.wait()
        yield
        for task in tasks:
            task.cancel()

    async def offer(self, tree: Tree) -> bool:
        """Create a tree; True when all of it is bound, False when it is refused."""
        await self.create(tree)
        return await self.outcome(tree)

    async def create(self, tree: Tree) -> None:
        """Groups, then pods."""
        for resource, bodies in self.objects.groups([tree]):
            await create_all(self.client, resource, bodies)
        await create_pods(self.client, self.objects, [tree])

    async def outcome(self, tree: Tree) -> bool:
        """True when all of a tree is bound; False when it is refused, or nothing was decided in time."""
        deadline = time.monotonic() + DECISION
        while time.monotonic() < deadline:
            self._event.clear()
            if self.bound(tree) == tree.size:
                return True
            if self._refused(tree):
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), timeout=1.0)
        return False

    async def withdraw(self, tree: Tree) -> None:
        """Delete a tree and wait until its pods are gone."""
        names = [pod.metadata.name for pod in self._members(tree)]
        for name in names:
            await self.client.delete(PODS, name, NAMESPACE, grace_seconds=0)
        dialect = NATIVE if self.native else COVEY
        for group in tree.groups:
            await self._delete(dialect.pod_groups, f"{tree.name}-{group.name}")
        await self._delete(dialect.composites, tree.name)
        while self._members(tree):
            self._event.clear()
            await asyncio.wait_for(self._event.wait(), timeout=30)

    async def _delete(self, resource: Resource, name: str) -> None:
        await self.client.delete(resource, name, NAMESPACE)

    def _members(self, tree: Tree) -> list[core.Pod]:
        return [pod for pod in self.pods.store.values() if pod.metadata.label(TREE_LABEL) == tree.name]

    def bound(self, tree: Tree) -> int:
        return sum(pod.spec.node_name is not None for pod in self._members(tree))

    def _refused(self, tree: Tree) -> bool:
        """Covey says so on the root; kube-scheduler on every pod."""
        if not self.native:
            root = self.roots.store.get((NAMESPACE, tree.name))
            said = core.condition(root.status.conditions, ADMITTED) if root else None
            return said is not None and said.status == "False" and said.reason == "Infeasible"
        members = self._members(tree)
        return len(members) == tree.size and all(
            (said := core.condition(pod.status.conditions, "PodScheduled")) is not None
            and said.reason == "Unschedulable"
            for pod in members
        )

    def feasible(self, tree: Tree) -> bool | None:
        """What the oracle says of a tree on what is free now."""
        return cpsat.solve(self._case(tree), surplus=False).feasible

    def _case(self, tree: Tree) -> Case:
        holds = [
            Hold(pod.metadata.uid, pod.spec.node_name, shape_of_gpus(8))
            for pod in self.pods.store.values()
            if pod.spec.node_name and pod.metadata.label(TREE_LABEL) != tree.name
        ]
        roles = tuple(
            RoleRequest(
                group.name,
                1,
                1,
                (
                    ReplicaRequest(
                        0,
                        tuple(
                            PodRequest(f"{group.name}-{index}", index, shape_of_gpus(group.gpus))
                            for index in range(group.pods)
                        ),
                    ),
                ),
                required=group.level,
            )
            for group in tree.groups
        )
        gang = Gang(NAMESPACE, tree.name, 0, roles, TOPOLOGY.name, required=tree.level)
        return Case(gang, TOPOLOGY, tuple(self.nodes), tuple(holds))


def shape_of_gpus(gpus: int) -> Shape:
    """Pods of the trees ask for GPUs and nothing else."""
    return Shape(requests=((GPU, gpus), ("pods", 1)))


async def fill(cluster: Cluster, system: str, trees: Sequence[Tree]) -> Tally:
    """Offer the trees until a dozen in a row are refused."""
    tally = Tally(system)
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench", connections=64) as client:
        floor = Floor(client, system, await make_owner(client))
        async with floor.watched():
            started, in_a_row = time.monotonic(), 0
            for tree in trees:
                if await floor.offer(tree):
                    tally.admitted += 1
                    tally.gpus += sum(group.pods * group.gpus for group in tree.groups)
                    in_a_row = 0
                    continue
                tally.refused += 1
                in_a_row += 1
                tally.partial += 0 < floor.bound(tree) < tree.size
                await floor.withdraw(tree)
                verdict = floor.feasible(tree)
                tally.feasible_refused += verdict is True
                tally.undecided_by_oracle += verdict is None
                if in_a_row == PATIENCE:
                    break
            tally.seconds = time.monotonic() - started
    return tally


#: Racks of 6 + 6 whole nodes; five groups, each in one rack, that fit only as 2 + 2 + 2 and 3 + 3.
TRAP_BACKTRACK: Final = Tree(
    "backtrack",
    tuple(GroupSpec(f"g{number}", size, 8, level="rack") for number, size in enumerate((2, 3, 2, 3, 2))),
)
#: Desired 4 + 2, minimum 1 + 1, one pod a node.
TRAP_MINIMUMS: Final = Tree("minimums", (GroupSpec("a", 4, 8, minimum=1), GroupSpec("b", 2, 8, minimum=1)))


async def set_trap(cluster: Cluster, system: str, tree: Tree) -> str:
    """Offer one tree and say how much of it was bound."""
    async with Client.from_kubeconfig(str(cluster.kubeconfig), user_agent="bench") as client:
        floor = Floor(client, system, await make_owner(client))
        async with floor.watched():
            # The scheduler sees the whole tree at once, as if it had been away: what it does is then no race.
            await floor.create(tree)
            await asyncio.to_thread(start_scheduler, cluster, system)
            await floor.outcome(tree)
            by_group = {
                group.name: sum(
                    pod.spec.node_name is not None
                    for pod in floor.pods.store.values()
                    if pod.metadata.name.startswith(f"{tree.name}-{group.name}-")
                )
                for group in tree.groups
            }
            return f"{floor.bound(tree)}/{tree.size} bound ({', '.join(f'{k} {v}' for k, v in by_group.items())})"


def traps(system: str) -> dict[str, str]:
    """Each on a floor of its own."""
    found = {}
    for title, tree, racks, per_rack in (
        ("racks of 6 + 6, groups of 2, 3, 2, 3, 2", TRAP_BACKTRACK, 2, 6),
        ("desired 4 + 2, minimum 1 + 1, 3 nodes", TRAP_MINIMUMS, 1, 3),
        ("desired 4 + 2, minimum 1 + 1, 2 nodes", TRAP_MINIMUMS, 1, 2),
    ):
        with control_plane(system, racks * per_rack, racks=racks, per_rack=per_rack, scheduler=False) as cluster:
            found[title] = asyncio.run(set_trap(cluster, system, tree))
    return found


def main() -> int:
    """Run both systems and print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--nodes", type=int, default=640)
    parser.add_argument("--system", choices=["native", "covey"], action="append")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    tallies = []
    for system in options.system or ["native", "covey"]:
        print(f"running: {system}", file=sys.stderr, flush=True)
        with control_plane(system, options.nodes, racks=8, per_rack=16) as cluster:
            tally = asyncio.run(fill(cluster, system, arrivals(options.seed)))
        tally.traps = traps(system)
        tallies.append(tally)
    print(describe_machine())
    print(f"{options.nodes} nodes of 8 GPUs, racks of 16, blocks of 128; until {PATIENCE} in a row are refused\n")
    print(
        f"{'system':<8}{'admitted':>9}{'GPUs used':>11}{'refused':>9}{'of them feasible':>18}{'partial':>9}{'seconds':>9}"
    )
    for tally in tallies:
        print(
            f"{tally.system:<8}{tally.admitted:>9}{tally.gpus:>6}/{options.nodes * 8}{tally.refused:>8}"
            f"{tally.feasible_refused:>18}{tally.partial:>9}{tally.seconds:>9.0f}"
        )
    for tally in tallies:
        for title, outcome in tally.traps.items():
            print(f"{tally.system:<8}{title}: {outcome}")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode([vars(tally) for tally in tallies])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
