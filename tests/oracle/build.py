"""Builders of small cases by hand: whole nodes in racks and blocks, roles that ask for whole nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from covey.api import core
from covey.placement.model import Gang, Level, PodRequest, ReplicaRequest, RoleRequest, Shape, Topology
from oracle.case import Case, Hold
from oracle.written import node, shape

BLOCKS = "example.com/block"
RACKS = "example.com/rack"
TOPOLOGY = Topology("floor", (Level("block", (BLOCKS,)), Level("rack", (RACKS,))))

#: A pod that fills a node of eight GPUs.
WHOLE = shape(8)


def nodes(*, blocks: int = 1, racks: int = 1, per_rack: int = 1, **more: Any) -> list[core.Node]:
    """Nodes ``b0-r0-n0`` …; the racks of every block have the same names."""
    return [
        node(f"b{block}-r{rack}-n{number}", {BLOCKS: f"b{block}", RACKS: f"r{rack}"}, **more)
        for block in range(blocks)
        for rack in range(racks)
        for number in range(per_rack)
    ]


def role(
    name: str,
    *,
    size: int = 1,
    minimum: int = 1,
    desired: int | None = None,
    wants: Shape = WHOLE,
    leader: Shape | None = None,
    placed: Mapping[tuple[int, int], str] | None = None,
    together: Mapping[int, str] | None = None,
    **rules: Any,
) -> RoleRequest:
    """A role whose replicas all exist. ``placed``: the nodes of (replica, pod) that are bound."""
    desired = minimum if desired is None else desired
    replicas = tuple(
        ReplicaRequest(
            replica,
            tuple(
                PodRequest(
                    f"{name}-{replica}-{index}",
                    index,
                    leader if leader and index == 0 else wants,
                    (placed or {}).get((replica, index)),
                )
                for index in range(size)
            ),
            (together or {}).get(replica),
        )
        for replica in range(desired)
    )
    return RoleRequest(name, minimum, desired, replicas, **rules)


def case(found: Iterable[core.Node], roles: Sequence[RoleRequest], *, holds: Iterable[Hold] = (), **rules: Any) -> Case:
    """A case on the floor of blocks and racks. Bound members hold what they ask for."""
    gang = Gang("default", "gang", 0, tuple(roles), TOPOLOGY.name, **rules)
    members = [
        Hold(pod.key, pod.node, pod.shape)
        for asked in roles
        for replica in asked.replicas
        for pod in replica.pods
        if pod.node is not None
    ]
    return Case(gang, TOPOLOGY, tuple(found), (*holds, *members))


def full(*names: str) -> list[Hold]:
    """A stranger that fills each of these nodes."""
    return [Hold(f"stranger-{name}", name, WHOLE) for name in names]
