"""Pods that give way on a full cluster of a real control plane: Covey beside Kubernetes' own preemption of groups.

Equal trees with everything running, and kwok as the kubelet: resources of Covey's; beside them groups and pods of Kubernetes 1.37
with all gates on, once with ``disruptionMode`` *single* and once with *all*, as that is all that its users can choose
from.  A tree of priority 1 fills the cluster; one of priority 1,000 comes. Counted are pods that were bound before and are gone
after, and trees that are left below their minimum: they hold devices and serve nobody.

At last a cluster of 200 nodes full with 100 trees, every other one at its minimum, and twenty that come one after the
other: seconds from the first write to the last pod bound, and pods gone for each pod bound.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.machine import describe_machine
from bench.resources import create_resources, write_trees
from bench.trees import NAMESPACE, NATIVE, TREE_LABEL, GroupSpec, Objects, Tree, make_owner
from covey.api.constants import LABEL_INFERENCE
from covey.kube.client import Client
from covey.kube.resources import PODS
from localcluster import NATIVE_GROUPS, Cluster, Nodes, NotReachedError, eventually, programs

Json = dict[str, Any]
#: Seconds without any change of a pod after which the clusters are at rest.
REST: Final = 3.0
PATIENCE: Final = 60.0
SYSTEMS: Final = ("Covey", "native, single", "native, all")


def tree(name: str, pods: int, minimum: int, *, rack: bool = False, online: bool = False) -> Tree:
    """One group of whole nodes."""
    priority = "online" if online else "spare"
    group = GroupSpec("decode", pods, gpus=8, minimum=minimum)
    return Tree(name, (group,), level="rack" if rack else None, priority=priority)


@dataclass(frozen=True)
class Scenario:
    """A full cluster, its trees in the order in which they come, and the tree that takes room."""

    title: str
    nodes: Nodes
    full: Sequence[Tree]
    chat: Tree


SCENARIOS: Final = (
    Scenario(
        "one surplus of ten is needed",
        Nodes(nodes=10),
        (tree("batch", 10, 2),),
        tree("chat", 1, 1, online=True),
    ),
    *(
        Scenario(title, Nodes(nodes=8), full, tree("chat", 2, 2, online=True))
        for title, full in (
            ("surplus, and then one at its minimum", (tree("surplus", 4, 1), tree("minimum", 4, 4))),
            ("one at its minimum, and then surplus", (tree("minimum", 4, 4), tree("surplus", 4, 1))),
            ("all are at their minimum", (tree("first", 4, 4), tree("second", 4, 4))),
        )
    ),
    Scenario(
        "a rack of three, one nearly free",
        Nodes(racks=3, nodes=4),
        (tree("first", 4, 4, rack=True), tree("second", 4, 4, rack=True), tree("small", 1, 1, rack=True)),
        tree("chat", 4, 4, rack=True, online=True),
    ),
)


class System:
    """One of the systems on a fresh control plane."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._cluster = cluster
        self._mode = name.partition(", ")[2]
        self._owner: Json = {}

    def create(self, *trees: Tree) -> None:
        """Write trees, one after the other."""
        asyncio.run(self._create(trees))

    async def _create(self, trees: Sequence[Tree]) -> None:
        async with Client.from_kubeconfig(str(self._cluster.kubeconfig), user_agent="bench") as client:
            if not self._mode:
                await create_resources(client, trees, width=1)
                return
            self._owner = self._owner or await make_owner(client)
            objects = Objects(NATIVE, self._owner)
            await write_trees(client, objects, [replace(each, mode=self._mode) for each in trees], width=1)

    def bound(self) -> dict[str, str]:
        """The tree of each live pod with a node, by its UID."""
        label = TREE_LABEL if self._mode else LABEL_INFERENCE
        return {
            pod["metadata"]["uid"]: pod["metadata"]["labels"][label]
            for pod in self._cluster.api("GET", PODS.path(NAMESPACE))["items"]
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        }

    def await_bound(self, wanted: Tree, patience: float = PATIENCE) -> None:
        """Wait until all pods of a tree have nodes.

        Raises:
            NotReachedError: they have none in time.
        """
        eventually(
            lambda: Counter(self.bound().values())[wanted.name] == wanted.size, patience, f"{wanted.name} is bound"
        )

    def await_rest(self) -> dict[str, str]:
        """Wait until nothing changes any more; what is bound then."""
        found, since = self.bound(), time.monotonic()
        while time.monotonic() - since < REST:
            time.sleep(0.2)
            now = self.bound()
            if now != found:
                found, since = now, time.monotonic()
        return found


@contextlib.contextmanager
def running(name: str, nodes: Nodes) -> Iterator[System]:
    """A control plane with kwok, nodes, two classes of priority and one system."""
    native = name != "Covey"
    with Cluster(gates=NATIVE_GROUPS if native else None) as cluster:
        for title, value in (("spare", 1), ("online", 1000)):
            cluster.api(
                "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": title}, "value": value}
            )
        cluster.add_nodes(nodes)
        if native:
            cluster.start_scheduler()
        else:
            scheduler = cluster.start_covey("scheduler", "--max-preemptions-per-minute=1000")
            cluster.start_covey("operator")
            cluster.start_scheduler(programs.scheduler_config(scheduler, leader_elect=False))
        yield System(name, cluster)


def play(scenario: Scenario, name: str) -> str:
    """What gave way in one scenario, in words."""
    with running(name, scenario.nodes) as system:
        for each in scenario.full:
            system.create(each)
            system.await_bound(each)
        before = system.await_rest()
        system.create(scenario.chat)
        said = "not bound; "
        with contextlib.suppress(NotReachedError):
            system.await_bound(scenario.chat)
            said = ""
        after = system.await_rest()
        gone = Counter(before[uid] for uid in before.keys() - after.keys())
        taken = ", ".join(f"{count} of {each}" for each, count in sorted(gone.items())) or "nobody"
        broken = below_minimum(scenario.full, after)
        return said + taken + "".join(f"; {each} is below its minimum, with {8 * idle} GPUs" for each, idle in broken)


def below_minimum(trees: Sequence[Tree], bound: Mapping[str, str]) -> list[tuple[str, int]]:
    """Trees that have nodes and serve nobody, with their pods."""
    left = Counter(bound.values())
    return [(each.name, left[each.name]) for each in trees if 0 < left[each.name] < each.groups[0].min_count]


def measure(name: str, racks: int, gangs: int) -> str:
    """Apply to bound of gangs that come one after the other to a cluster that is full."""
    with running(name, Nodes(racks=racks, nodes=8)) as system:
        full = [tree(f"batch-{number}", 2, 1 + number % 2) for number in range(4 * racks)]
        system.create(*full)
        eventually(lambda: len(system.bound()) == 8 * racks, 300, "the cluster is full")
        before = system.await_rest()
        times: list[float] = []
        for number in range(gangs):
            chat = tree(f"chat-{number}", 4, 4, rack=True, online=True)
            started = time.monotonic()
            system.create(chat)
            with contextlib.suppress(NotReachedError):
                system.await_bound(chat)
                times.append(time.monotonic() - started)
        after = system.await_rest()
        gone, bound = len(before.keys() - after.keys()), 4 * len(times)
        broken = below_minimum(full, after)
        if not times:
            return f"none of {gangs} bound; {gone} pods gone"
        return (
            f"{len(times)} of {gangs} bound, p50 {statistics.median(times):.2f} s, most {max(times):.2f} s; "
            f"{gone / bound:.2f} pods gone for each one bound; {len(broken)} of {len(full)} trees below minimum"
        )


def main() -> None:
    """Run what is asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", choices=SYSTEMS, action="append")
    parser.add_argument("--racks", type=int, default=25, help="of 8 nodes, for apply to bound; with 0 it is left out")
    parser.add_argument("--gangs", type=int, default=20, help="that come to it")
    options = parser.parse_args()
    print(describe_machine())
    for scenario in SCENARIOS:
        print(f"\n{scenario.title}", flush=True)
        for name in options.system or SYSTEMS:
            print(f"  {name:16}{play(scenario, name)}", flush=True)
    if options.racks:
        print(f"\napply to bound, {8 * options.racks} nodes full, gangs of four in a rack", flush=True)
        for name in options.system or SYSTEMS:
            print(f"  {name:16}{measure(name, options.racks, options.gangs)}", flush=True)


if __name__ == "__main__":
    main()
