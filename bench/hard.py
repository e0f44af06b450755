"""The gangs that cost most: many small pods on unlike nodes, replicas that each lost a pod, minimums too large.

Each is planned in a process of its own, so that milliseconds are those of a cold start and megabytes those of the plan.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from bench.machine import forget_peak, megabytes
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import (
    Gang,
    Level,
    Plan,
    PodRequest,
    Refusal,
    ReplicaRequest,
    RoleRequest,
    RolesTogether,
    Shape,
    Topology,
)
from covey.placement.planner import plan_minimum, plan_surplus

GPU: Final = "nvidia.com/gpu"
GIB: Final = 2**30
TOPOLOGY: Final = Topology(
    "hard",
    (
        Level("block", ("block",)),
        Level("rack", ("rack",)),
        Level("host", ("kubernetes.io/hostname",)),
    ),
)
#: Cores, GiB and GPUs of unlike nodes: each size comes with what others left of it.
SIZES: Final = ((64, 512, 8), (96, 768, 8), (48, 1024, 4), (128, 384, 8), (32, 256, 2))


@dataclass(frozen=True)
class Instance:
    """A gang in a cluster, and the verdict that is right."""

    name: str
    gang: Gang
    inventory: Inventory
    verdict: str
    #: How many pods a plan must place: minimum and surplus; None when it must place none.
    placed: int | None = None


def shape(gpus: int = 0, cpu: int = 1000, memory: int = 1) -> Shape:
    """Pods of so many GPUs, milli-cores and GiB."""
    asked = {GPU: gpus, "cpu": cpu, "memory": memory * GIB, "pods": 1}
    return Shape(tuple(sorted((name, value) for name, value in asked.items() if value)))


def role(
    name: str, replicas: int, minimum: int, wants: Shape, *, size: int = 1, leader: Shape | None = None, **rules: str
) -> RoleRequest:
    """A role of equal replicas, led by a pod of another shape where one is given."""

    def pod(number: int, index: int) -> PodRequest:
        return PodRequest(f"{name}-{number}-{index}", index, leader if leader and not index else wants)

    return RoleRequest(
        name,
        minimum,
        replicas,
        tuple(ReplicaRequest(n, tuple(pod(n, index) for index in range(size))) for n in range(replicas)),
        **rules,  # type: ignore[arg-type]
    )


def floor(count: int, *, unlike: bool, rack: int = 18, blocks: int = 16) -> Inventory:
    """So many nodes; ``unlike``: no two that matter are alike."""
    inventory = Inventory([TOPOLOGY])
    for number in range(count):
        cores, memory, gpus = SIZES[number % len(SIZES)] if unlike else SIZES[0]
        name = f"n{number:04}"
        where = {"block": f"b{number // (rack * blocks)}", "rack": f"r{number // rack % blocks}"}
        inventory.set_node(
            core.Node(
                metadata=core.Meta(name=name, labels={"kubernetes.io/hostname": name, **where}),
                status=core.NodeStatus(
                    allocatable={"cpu": str(cores), "memory": f"{memory}Gi", GPU: str(gpus), "pods": "110"},
                    conditions=(core.Condition(type="Ready", status="True"),),
                ),
            )
        )
        if unlike:
            taken = shape(0, 1000 + 37 * (number * 7 % 101), 1 + number * 13 % 97)
            inventory.hold(f"stranger-{number}", name, taken)
    return inventory


def three_small(replicas: int) -> tuple[RoleRequest, ...]:
    """Three roles of single pods that compete for cores and memory in different measure."""
    return (
        role("router", replicas, replicas, shape(0, 3500, 6)),
        role("cache", replicas, replicas, shape(0, 1250, 60)),
        role("worker", replicas, replicas, shape(0, 6000, 12)),
    )


def gang(*roles: RoleRequest, required: str | None = None) -> Gang:
    """A gang of these roles."""
    return Gang("default", "gang", 0, roles, TOPOLOGY.name, required=required)


def small_on_sixty() -> Instance:
    """660 pods on 60 nodes that are all alike and nearly full with them."""
    return Instance(
        "3 roles, 660 single pods, 60 nodes", gang(*three_small(220)), floor(60, unlike=False), "Admitted", 660
    )


def tight_on_sixty() -> Instance:
    """1,062 pods that leave 1 % of the cores."""
    return Instance(
        "3 roles, 1,062 single pods, 60 nodes, tight",
        gang(*three_small(354)),
        floor(60, unlike=False),
        "Admitted",
        1062,
    )


def too_many_on_sixty() -> Instance:
    """More than the 60 nodes have cores for."""
    return Instance(
        "3 roles, 1,110 single pods, 60 nodes", gang(*three_small(370)), floor(60, unlike=False), "Infeasible"
    )


def small_on_unlike() -> Instance:
    """The same on 300 unlike nodes, with room to spare."""
    return Instance(
        "3 roles, 660 single pods, 300 unlike", gang(*three_small(220)), floor(300, unlike=True), "Admitted", 660
    )


def surplus_on_unlike() -> Instance:
    """A minimum of little and more surplus than 300 unlike nodes hold."""
    roles = tuple(replace(found, minimum=10) for found in three_small(1600))
    return Instance("3 roles, 4,800 wanted, 300 unlike", gang(*roles), floor(300, unlike=True), "Admitted")


def surplus_beyond() -> Instance:
    """A minimum of little, and surplus of which the 300 unlike nodes hold only a part."""
    roles = tuple(replace(found, minimum=10) for found in three_small(2400))
    return Instance("3 roles, 7,200 wanted, 300 unlike", gang(*roles), floor(300, unlike=True), "Admitted")


def half_placed() -> Instance:
    """Fourteen surplus replicas of four pods, each of which lost one."""
    return torn("14 replicas that lost one pod each, 288 nodes", full=0)


def half_placed_and_stuck() -> Instance:
    """The same, half of them in racks without room."""
    return torn("14 replicas that lost one pod each, 7 stuck", full=7)


def torn(name: str, *, full: int) -> Instance:
    """Fourteen replicas of four pods lost one each; so many of their racks are full."""
    inventory = floor(288, unlike=False)
    roles = [role("decode", 15, 1, shape(4, 16_000, 64), size=4, required="rack")]
    roles.append(role("prefill", 2, 1, shape(2, 8_000, 32), size=2, required="rack"))
    nodes: dict[str, str] = {}
    for number, replica in enumerate(roles[0].replicas):
        for index, pod in enumerate(replica.pods):
            if number == 0 or index:
                nodes[pod.key] = f"n{number * 18 + index:04}"
    nodes |= {pod.key: f"n{280 + i:04}" for i, pod in enumerate(p for r in roles[1].replicas for p in r.pods)}
    bound = [
        replace(
            found,
            replicas=tuple(
                replace(r, pods=tuple(replace(pod, node=nodes.get(pod.key)) for pod in r.pods)) for r in found.replicas
            ),
        )
        for found in roles
    ]
    for found in bound:
        for replica in found.replicas:
            for pod in replica.pods:
                if pod.node:
                    inventory.hold(pod.key, pod.node, pod.shape)
    for number in range(18, 18 + 18 * full):
        inventory.hold(f"stranger-{number}", f"n{number:04}", shape(4 if number % 18 in {1, 2, 3} else 8, 1_000, 1))
    return Instance(name, gang(*bound), inventory, "Admitted", 14 - full)


def led(replicas: int) -> tuple[RoleRequest, ...]:
    """Three roles whose replicas have a leader of another shape."""
    return (
        role("prefill", replicas, replicas, shape(4, 16_000, 96), size=4, leader=shape(1, 8_000, 64), required="rack"),
        role("decode", replicas, replicas, shape(8, 48_000, 200), size=4, leader=shape(0, 6_000, 32), required="rack"),
        role("encode", replicas, replicas, shape(2, 8_000, 48), size=3, leader=shape(0, 12_000, 16), required="rack"),
    )


def led_too_large() -> Instance:
    """Leaders and workers of three roles, and a minimum of about four times what 160 nodes have."""
    return Instance(
        "3 led roles, minimum too large, 160 nodes", gang(*led(120)), floor(160, unlike=False), "Infeasible"
    )


def led_unlike_too_large() -> Instance:
    """The same on unlike nodes, in a block each."""
    instance = gang(*led(40), required="block")
    return Instance("3 led roles, too large, 160 unlike", instance, floor(160, unlike=True, blocks=3), "Infeasible")


def led_with_room() -> Instance:
    """As many as find room."""
    return Instance("3 led roles, 220 pods, 160 nodes", gang(*led(20)), floor(160, unlike=False), "Admitted", 220)


def twelve_hundred() -> Instance:
    """Three roles of 400 single pods with GPUs: 2,800 cores' worth of 2,304 GPUs."""
    roles = (
        role("one", 400, 400, shape(1, 4_000, 40)),
        role("two", 400, 400, shape(2, 10_000, 90)),
        role("router", 400, 400, shape(0, 7_000, 20)),
    )
    return Instance("3 x 400 single pods, 288 nodes", gang(*roles), floor(288, unlike=False), "Admitted", 1200)


def twelve_hundred_too_many() -> Instance:
    """Each role fits, and any two, but not all three: they lack cores together."""
    roles = (
        role("one", 400, 400, shape(1, 12_000, 40)),
        role("two", 400, 400, shape(2, 16_000, 90)),
        role("router", 400, 400, shape(0, 19_000, 20)),
    )
    return Instance("3 x 400 single pods too many, 288 nodes", gang(*roles), floor(288, unlike=False), "Infeasible")


def deep_floor(levels: int, racks: int, nodes: int, *, fan: int, taken: float) -> Inventory:
    """Unlike nodes, a part of them in use, in a tree of so many levels in which each domain has so many inside."""
    names = [f"level-{depth}" for depth in range(levels - 1)]
    host = Level("host", ("kubernetes.io/hostname",))
    inventory = Inventory([Topology("hard", (*(Level(name, (name,)) for name in names), host))])
    chance = random.Random(11)
    for number in range(racks * nodes):
        where, domain = {}, number // nodes
        for name in reversed(names):
            where[name] = f"{name}-{domain}"
            domain //= fan
        cores, memory, gpus = SIZES[number % len(SIZES)]
        host_name = f"n{number:05}"
        inventory.set_node(
            core.Node(
                metadata=core.Meta(name=host_name, labels={"kubernetes.io/hostname": host_name, **where}),
                status=core.NodeStatus(
                    allocatable={"cpu": str(cores), "memory": f"{memory}Gi", GPU: str(gpus), "pods": "110"},
                    conditions=(core.Condition(type="Ready", status="True"),),
                ),
            )
        )
        if chance.random() < taken:
            inventory.hold(f"taken-{number}", host_name, shape(chance.choice((1, 2, 4, 8)) if gpus == 8 else 1))
    return inventory


def ten_levels() -> Instance:
    """Two roles over a tree of ten levels with two domains in each, most of the nodes in use."""
    wants = shape(2, 8_000, 32)
    roles = (role("prefill", 500, 250, wants, size=4, required="level-6"), role("decode", 250, 125, wants, size=8))
    near = (RolesTogether(("prefill", "decode"), "level-0", required=True),)
    asked = replace(gang(*roles, required="level-0"), proximity=near)
    return Instance("10 levels, 4,000 pods, 500 racks", asked, deep_floor(10, 500, 8, fan=2, taken=0.8), "Admitted")


def nine_levels() -> Instance:
    """2,000 single pods."""
    asked, floor = gang(role("decode", 2000, 2000, shape(1, 4_000, 16))), deep_floor(9, 500, 16, fan=3, taken=0.2)
    return Instance("9 levels, 2,000 pods, 500 racks", asked, floor, "Admitted", 2000)


def seven_levels() -> Instance:
    """2,000 pods, half of them leaders."""
    leader, worker = shape(0, 6_000, 48), shape(4, 24_000, 128)
    asked, floor = role("decode", 1000, 1000, worker, size=2, leader=leader), deep_floor(7, 200, 16, fan=3, taken=0.2)
    return Instance("7 levels, 2,000 pods, 200 racks", gang(asked), floor, "Admitted", 2000)


INSTANCES: Final[Mapping[str, Callable[[], Instance]]] = {
    found.__name__: found
    for found in (
        small_on_sixty,
        tight_on_sixty,
        too_many_on_sixty,
        small_on_unlike,
        surplus_on_unlike,
        surplus_beyond,
        half_placed,
        half_placed_and_stuck,
        led_too_large,
        led_unlike_too_large,
        led_with_room,
        twelve_hundred,
        twelve_hundred_too_many,
        ten_levels,
        nine_levels,
        seven_levels,
    )
}


@dataclass(frozen=True)
class Figures:
    """One instance, planned cold."""

    name: str
    verdict: str
    right: str
    placed: int
    milliseconds: float
    #: The same in processor time, which is what counts where the machine is shared.
    busy: float
    megabytes: float

    def line(self) -> str:
        """The row as text."""
        right = "" if self.verdict == self.right else f"  WRONG, it is {self.right}"
        return (
            f"{self.name:<46} {self.verdict:<10} {self.placed:>5} pods {self.milliseconds:6.0f} ms "
            f"(busy {self.busy:5.0f}) {self.megabytes:7.0f} MB{right}"
        )


def whole(instance: Instance) -> tuple[Plan | Refusal, int]:
    """The minimum's answer, and how many pods it and the surplus on top of it place."""
    answer = plan_minimum(instance.gang, instance.inventory)
    if isinstance(answer, Refusal):
        return answer, 0
    nodes = {entry.pod: entry.node for entry in answer.assignments}
    grown = instance.gang
    if nodes:
        grown = replace(grown, roles=tuple(_bound(found, nodes, instance.inventory) for found in grown.roles))
    further = plan_surplus(grown, instance.inventory)
    return answer, len(nodes) + len(further.assignments)


def _bound(found: RoleRequest, nodes: Mapping[str, str], inventory: Inventory) -> RoleRequest:
    for replica in found.replicas:
        for pod in replica.pods:
            if pod.key in nodes:
                inventory.hold(pod.key, nodes[pod.key], pod.shape)
    return replace(
        found,
        replicas=tuple(
            replace(r, pods=tuple(replace(pod, node=nodes.get(pod.key, pod.node)) for pod in r.pods))
            for r in found.replicas
        ),
    )


def planned(name: str) -> Figures:
    """Plan one instance here and now."""
    instance = INSTANCES[name]()
    gc.collect()
    forget_peak()
    rest = megabytes()
    started, busy = time.perf_counter(), time.process_time()
    answer, placed = whole(instance)
    spent, busy = time.perf_counter() - started, time.process_time() - busy
    more = megabytes("VmHWM") - rest
    return Figures(instance.name, str(answer.verdict), instance.verdict, placed, 1000 * spent, 1000 * busy, more)


def table(names: Sequence[str] = tuple(INSTANCES)) -> Iterator[Figures]:
    """Each instance in a process of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the same Covey as here
    for name in names:
        done = subprocess.run([sys.executable, __file__, name], check=True, capture_output=True, text=True, env=env)
        yield Figures(**json.loads(done.stdout))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asdict(planned(sys.argv[1]))))
    else:
        for row in table():
            print(row.line(), flush=True)
