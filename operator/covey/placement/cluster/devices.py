"""Devices: used, free and stranded, and how large a gang would still fit. Pure.

One definition for the metrics of the scheduler process and for ``covey top``:

* a *device* is here whatever a node plugin offers: an extended name such as ``nvidia.com/gpu``, network cards included,
  each kind by itself;
* a node is *closed* when no gang may use it: it is cordoned or not ready;
* what is free of a resource is *whole* on a node that is not closed and of which none is used, *partial* on one of
  which some is used, and *closed* on a closed one. Partial and closed together are *stranded*: free devices that a pod
  which wants a whole node cannot have.

All of it is about devices alone. That CPU or memory of a node is short, or that its taints and labels suit only some
gangs, is not looked at. Over-committed nodes have nothing free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from covey.placement.cluster import resources
from covey.placement.model import Path

#: The broadest level: everything.
CLUSTER: Final = "cluster"


class Kind(NamedTuple):
    """A kind of device: its resource, and the product as a node label names it; empty where none does."""

    resource: str
    product: str = ""


class Share(NamedTuple):
    """Devices of one kind on one node or several. ``used`` is at most the number of devices."""

    used: int = 0
    whole: int = 0
    partial: int = 0
    closed: int = 0

    @property
    def total(self) -> int:
        """Number of devices on the nodes."""
        return sum(self)

    @property
    def free(self) -> int:
        """Devices that nobody has, whether a gang could use them or not."""
        return self.whole + self.partial + self.closed

    @property
    def stranded(self) -> int:
        """Devices that are free and of no use to a pod that wants a whole node."""
        return self.partial + self.closed

    def plus(self, other: Share) -> Share:
        """Return the sum of both."""
        return Share(*map(sum, zip(self, other, strict=True)))


class NodeDevices(NamedTuple):
    """The devices of one node: its domain path, whether it is closed, and what it has of each kind."""

    path: Path
    closed: bool
    shares: Mapping[Kind, Share]


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One kind at one level, in devices.

    Attributes:
        largest_gang: the most that are whole in one domain of the level.
        stranded: what is free outside of wholly free domains: those with no used device of the kind, and in which no
            node that has the kind is closed. What is free on nodes without the level is stranded too.
        fragmentation: by how much smaller the largest gang is than it could be, from 0 to 1: 1 - ``largest_gang`` / the
            smaller one of all that is free on open nodes, and of what the largest domain of the level has on them. 0
            when nothing is free.
        free_domains: those that are wholly free.
    """

    largest_gang: int
    stranded: int
    fragmentation: float
    free_domains: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """All kinds that are reported, those with most devices first; ``dropped`` says how many are not.

    ``levels`` is by kind and name of the level, ``cluster`` included.
    """

    shares: Mapping[Kind, Share] = field(default_factory=dict)
    levels: Mapping[tuple[Kind, str], LevelReport] = field(default_factory=dict)
    dropped: int = 0


def share(has: int, taken: int, *, closed: bool) -> Share:
    """Compute the devices of one resource on a node, by their use.

    Args:
        has: what is allocatable, in devices.
        taken: what pods hold of it; may be more.
        closed: no gang may use the node.
    """
    left = max(0, has - taken)
    if closed:
        return Share(has - left, closed=left)
    return Share(has - left, partial=left) if taken else Share(whole=left)


def kind_of(resource: str, labels: Mapping[str, str]) -> Kind:
    """The kind of a resource's devices on a node with these labels."""
    return Kind(resource, resources.product_of(resource, labels))


def devices_of(
    path: Path, labels: Mapping[str, str], allocatable: Mapping[str, int], free: Mapping[str, int], *, closed: bool
) -> NodeDevices:
    """The devices of a node.

    Args:
        path: its domain path.
        labels: its labels.
        allocatable: what it has, by resource.
        free: what is free of it, negative where it is over-committed.
        closed: no gang may use it.
    """
    shares = {
        kind_of(name, labels): share(has, has - free.get(name, 0), closed=closed)
        for name, has in allocatable.items()
        if has > 0 and resources.is_extended(name)
    }
    return NodeDevices(path, closed, shares)


def report(nodes: Collection[NodeDevices], levels: Sequence[str], most: int) -> Report:
    """Count the devices of a cluster.

    Args:
        nodes: all of them, their paths in a topology of these levels.
        levels: from broad to narrow. One of the name ``cluster`` is not reported.
        most: kinds to tell.
    """
    totals: dict[Kind, Share] = {}
    for node in nodes:
        for kind, share in node.shares.items():
            totals[kind] = totals.get(kind, Share()).plus(share)
    ranked = sorted(totals, key=lambda kind: (-totals[kind].total, kind))
    shown = {kind: totals[kind] for kind in ranked[:most]}
    named = {CLUSTER: -1} | {name: depth for depth, name in enumerate(levels) if name != CLUSTER}
    by_level: dict[tuple[Kind, str], LevelReport] = {}
    for name, depth in named.items():
        sums = _sums(nodes, depth, shown)
        by_level |= {(kind, name): _at_level(shown[kind], sums.get(kind, {}).values()) for kind in shown}
    return Report(shown, by_level, len(ranked) - len(shown))


def _sums(nodes: Iterable[NodeDevices], depth: int, kinds: Collection[Kind]) -> dict[Kind, dict[Path, list[int]]]:
    """Sums by kind and domain: what is whole, what is used, what open nodes have, and whether a node is closed."""
    by_kind: dict[Kind, dict[Path, list[int]]] = {kind: {} for kind in kinds}
    for path, closed, shares in nodes:
        if depth >= 0 and (len(path) <= depth or path[depth] is None):
            continue
        domain = path[: depth + 1]
        for kind, share in shares.items():
            if kind in by_kind:
                sums = by_kind[kind].setdefault(domain, [0, 0, 0, 0])
                sums[0] += share.whole
                sums[1] += share.used
                sums[2] += 0 if closed else share.total
                sums[3] += closed
    return by_kind


def _at_level(total: Share, domains: Iterable[Sequence[int]]) -> LevelReport:
    largest = widest = intact = free = 0
    for whole, used, has, closed in domains:
        largest, widest = max(largest, whole), max(widest, has)
        intact += 0 if used or closed else whole
        free += not used and not closed and whole > 0
    could = min(total.whole + total.partial, widest)
    return LevelReport(largest, total.free - intact, 1 - largest / could if could else 0.0, free)
