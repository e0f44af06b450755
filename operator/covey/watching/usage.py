"""Devices used, free and stranded, by topology level (``placement.cluster.devices`` defines them).

Much free and much stranded means fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from covey.picture.floor import Ground, main_resource
from covey.picture.names import path_order
from covey.placement.cluster.devices import CLUSTER, share
from covey.placement.model import Path, Topology


class Usage(msgspec.Struct, rename="camel", frozen=True):
    """One domain, or the whole cluster (level ``cluster``). Counts are of the report's resource."""

    level: str
    domain: str
    path: tuple[str | None, ...]
    nodes: int
    capacity: int
    used: int
    free: int
    stranded: int


class UsageReport(msgspec.Struct, rename="camel", frozen=True):
    """Report of ``covey top``."""

    topology: str
    resource: str
    domains: tuple[Usage, ...]


def measure(
    grounds: Sequence[Ground], topology: Topology, resource: str | None = None, levels: Iterable[str] | None = None
) -> UsageReport:
    """Count a resource by domain, each domain after the one it lies in.

    Args:
        grounds: every node with what is used of it.
        topology: where levels come from.
        resource: what to count; the commonest device when left out.
        levels: names of the levels to tell; all but those where every node is alone when left out.
    """
    counted = resource or main_resource((), grounds)
    depths = _depths(topology, grounds, set(levels) if levels is not None else None)
    found = [_usage(CLUSTER, "", (), grounds, counted)]
    members: dict[Path, list[Ground]] = {}
    for ground in grounds:
        for depth in depths:
            if len(ground.path) > depth and ground.path[depth] is not None:
                members.setdefault(ground.path[: depth + 1], []).append(ground)
    for path in sorted(members, key=path_order):
        level = topology.levels[len(path) - 1].name
        found.append(_usage(level, str(path[-1]), path, members[path], counted))
    return UsageReport(topology.name, counted, tuple(found))


def _depths(topology: Topology, grounds: Sequence[Ground], levels: set[str] | None) -> list[int]:
    if levels is not None:
        return [depth for depth, level in enumerate(topology.levels) if level.name in levels]
    found = []
    for depth in range(len(topology.levels)):
        domains = {ground.path[: depth + 1] for ground in grounds if len(ground.path) > depth}
        if len(domains) < len(grounds):
            found.append(depth)
    return found


def _usage(level: str, domain: str, path: Path, grounds: Sequence[Ground], resource: str) -> Usage:
    capacity = used = free = stranded = 0
    for ground in grounds:
        has, taken = ground.capacity.get(resource, 0), ground.used.get(resource, 0)
        left = share(has, taken, closed=ground.closed is not None)
        capacity, used, free = capacity + has, used + taken, free + left.free
        stranded += left.stranded
    return Usage(level, domain, path, len(grounds), capacity, used, free, stranded)
