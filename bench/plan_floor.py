"""A floor of GPU nodes with strangers on it, and what happens there between two plans."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import (
    Assignment,
    Gang,
    Level,
    PodRequest,
    ReplicaRequest,
    RoleRequest,
    Shape,
    Topology,
)

GPU: Final = "nvidia.com/gpu"
GPUS: Final = 8
NODES_PER_RACK: Final = 18
RACKS_PER_BLOCK: Final = 16
#: Pod events and node events between two plans.
POD_EVENTS: Final = 20
NODE_EVENTS: Final = 2
#: What a plan placed goes again after so many further plans.
PLANS_KEPT: Final = 10

TOPOLOGY: Final = Topology(
    "bench",
    (
        Level("block", ("cloud.provider.com/topology-block",)),
        Level("rack", ("cloud.provider.com/topology-rack",)),
        Level("host", ("kubernetes.io/hostname",)),
    ),
)


def shape(gpus: int) -> Shape:
    """Pods of this many GPUs, with the share of the node's cores and memory that goes with them."""
    requests = {"cpu": 12_000 * gpus, "memory": 96 * 2**30 * gpus, GPU: gpus, "pods": 1}
    return Shape(tuple(sorted(requests.items())))


def node(number: int, stamp: str = "") -> core.Node:
    """Node ``number`` of the floor; ``stamp`` changes what does not matter, as a node agent's labels do."""
    rack, block = number // NODES_PER_RACK, number // (NODES_PER_RACK * RACKS_PER_BLOCK)
    name = f"n{number:05}"
    labels = {
        "kubernetes.io/hostname": name,
        "cloud.provider.com/topology-block": f"b{block}",
        "cloud.provider.com/topology-rack": f"r{rack % RACKS_PER_BLOCK}",
        "nvidia.com/gpu.product": "NVIDIA-B200",
        "example.com/stamp": stamp,
    }
    return core.Node(
        metadata=core.Meta(name=name, labels=labels, resource_version=stamp),
        status=core.NodeStatus(
            allocatable={"cpu": "128", "memory": "1Ti", GPU: str(GPUS), "pods": "110"},
            conditions=(core.Condition(type="Ready", status="True"),),
        ),
    )


def role(name: str, replicas: int, minimum: int, size: int, wants: Shape, **rules: str) -> RoleRequest:
    """A role of equal pods."""
    return RoleRequest(
        name,
        minimum,
        replicas,
        tuple(
            ReplicaRequest(number, tuple(PodRequest(f"{name}-{number}-{index}", index, wants) for index in range(size)))
            for number in range(replicas)
        ),
        **rules,  # type: ignore[arg-type]
    )


def hierarchical(scale: int = 1, *, prefill: int = 1, decode: int = 2) -> Gang:
    """Prefill 4 x 4 and decode 2 x 8 pods, minimum 1 + 1, the unit in a block, each replica in a rack.

    ``scale`` multiplies replicas and minimums; ``prefill`` and ``decode`` are GPUs of one pod.
    """
    roles = (
        role("prefill", 4 * scale, scale, 4, shape(prefill), required="rack"),
        role("decode", 2 * scale, scale, 8, shape(decode), required="rack"),
    )
    return Gang("default", "gang", 0, roles, TOPOLOGY.name, required="block")


def named(gang: Gang, name: str) -> Gang:
    """The same gang under another name, its pods' keys with it."""
    roles = tuple(
        replace(
            found,
            replicas=tuple(
                replace(one, pods=tuple(replace(pod, key=f"{name}/{pod.key}") for pod in one.pods))
                for one in found.replicas
            ),
        )
        for found in gang.roles
    )
    return replace(gang, name=name, roles=roles)


def shapes_by_key(gang: Gang) -> Mapping[str, Shape]:
    """The shape of each pod of a gang."""
    return {pod.key: pod.shape for found in gang.roles for one in found.replicas for pod in one.pods}


@dataclass
class Floor:
    """An inventory, what strangers hold in it, and the random source that moves them."""

    nodes: int
    #: Occupancy of a rack is drawn from this range.
    occupied: tuple[float, float] = (0.5, 0.97)
    source: random.Random = field(default_factory=lambda: random.Random(1))
    inventory: Inventory = field(default_factory=lambda: Inventory([TOPOLOGY]))
    held: dict[str, tuple[str, Shape]] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    gangs: deque[list[str]] = field(default_factory=deque)
    ticket: int = 0

    def __post_init__(self) -> None:
        load = 0.0
        for number in range(self.nodes):
            if number % NODES_PER_RACK == 0:
                load = self.source.uniform(*self.occupied)
            self.inventory.set_node(node(number))
            while self.used[f"n{number:05}"] < round(GPUS * load + self.source.uniform(-0.5, 0.5)):
                self._arrive(f"n{number:05}")

    def _arrive(self, name: str) -> None:
        room = GPUS - self.used[name]
        gpus = self.source.choice([size for size in (1, 1, 2, 4, 8) if size <= room] or [0])
        if gpus:
            self.ticket += 1
            self.hold(f"stranger-{self.ticket}", name, shape(gpus))

    def hold(self, key: str, name: str, wants: Shape) -> None:
        """A pod takes its place."""
        self.held[key] = (name, wants)
        self.used[name] += dict(wants.requests).get(GPU, 0)
        self.inventory.hold(key, name, wants)

    def release(self, key: str) -> None:
        """A pod goes."""
        name, wants = self.held.pop(key)
        self.used[name] -= dict(wants.requests).get(GPU, 0)
        self.inventory.release(key)

    def admit(self, gang: Gang, assignments: Iterable[Assignment]) -> None:
        """A gang takes its places; what the oldest plan placed goes when there is enough."""
        shapes = shapes_by_key(gang)
        keys = []
        for assignment in assignments:
            self.hold(assignment.pod, assignment.node, shapes[assignment.pod])
            keys.append(assignment.pod)
        self.gangs.append(keys)
        if len(self.gangs) > PLANS_KEPT:
            for key in self.gangs.popleft():
                self.release(key)

    def churn(self, pod_events: int = POD_EVENTS) -> None:
        """Strangers come and go, nodes report: as many go as come, so that the load stays what it was."""
        held = list(self.held)
        for key in self.source.sample(held, min(pod_events // 2, len(held))):
            if key.startswith("stranger"):
                name = self.held[key][0]
                self.release(key)
                self._arrive(name)
        for _ in range(NODE_EVENTS):
            self.ticket += 1
            self.inventory.set_node(node(self.source.randrange(self.nodes), str(self.ticket)))
