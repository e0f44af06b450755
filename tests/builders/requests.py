"""Builders of nodes, pods and gangs, small enough to read in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, PodRequest, ReplicaRequest, RoleRequest, Shape, Topology

GPU = "nvidia.com/gpu"
TOPOLOGY = Topology(
    "dc",
    (
        Level("zone", ("zone",)),
        Level("block", ("block",)),
        Level("rack", ("rack",)),
        Level("host", ("kubernetes.io/hostname",)),
    ),
)


def make_node(
    name: str,
    gpus: int = 8,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[core.Taint] = (),
    cordoned: bool = False,
    ready: bool = True,
    pods: int = 110,
    extra: Mapping[str, Any] | None = None,
) -> core.Node:
    return core.Node(
        metadata=core.Meta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
        spec=core.NodeSpec(unschedulable=cordoned, taints=tuple(taints) or None),
        status=core.NodeStatus(
            allocatable={"cpu": "64", "memory": "1Ti", "pods": pods, GPU: gpus, **(extra or {})},
            conditions=(core.Condition(type="Ready", status="True" if ready else "False"),),
        ),
    )


def make_shape(gpus: int = 8, **more: Any) -> Shape:
    requests = {"pods": 1, **({GPU: gpus} if gpus else {}), **more.pop("extra", {})}
    return Shape(requests=tuple(sorted(requests.items())), **more)


def make_role(
    name: str,
    replicas: int,
    minimum: int | None = None,
    *,
    size: int = 1,
    shape: Shape | None = None,
    leader: Shape | None = None,
    marks: Mapping[int, str] | None = None,
    **more: Any,
) -> RoleRequest:
    shape = shape or make_shape()
    return RoleRequest(
        name=name,
        minimum=replicas if minimum is None else minimum,
        desired=replicas,
        replicas=tuple(
            ReplicaRequest(
                number,
                tuple(
                    PodRequest(f"{name}-{number}-{index}", index, leader if leader and index == 0 else shape)
                    for index in range(size)
                ),
                (marks or {}).get(number),
            )
            for number in range(replicas)
        ),
        **more,
    )


def make_gang(*roles: RoleRequest, name: str = "g", **more: Any) -> Gang:
    return Gang(namespace="ns", name=name, unit=0, roles=roles, topology=more.pop("topology", "dc"), **more)


def place(gang: Gang, nodes: Mapping[str, str]) -> Gang:
    """The gang with these pods (by key) on these nodes."""
    return replace(
        gang,
        roles=tuple(
            replace(
                role,
                replicas=tuple(
                    replace(r, pods=tuple(replace(p, node=nodes.get(p.key, p.node)) for p in r.pods))
                    for r in role.replicas
                ),
            )
            for role in gang.roles
        ),
    )


def make_inventory(racks: Mapping[str, Sequence[int]], topology: Topology = TOPOLOGY) -> Inventory:
    """Nodes by rack: ``{"b1/r1": [8, 8, 2]}`` are three nodes with so many GPUs free of 8."""
    inventory = Inventory([topology])
    for rack, free in racks.items():
        names = rack.split("/")
        block, value = ("b", names[0]) if len(names) == 1 else (names[0], names[1])
        for index, gpus in enumerate(free):
            name = f"{block}-{value}-n{index}"
            inventory.set_node(make_node(name, labels={"zone": "z", "block": block, "rack": value}))
            if gpus < 8:
                inventory.hold(f"held/{name}", name, make_shape(8 - gpus))
    return inventory
