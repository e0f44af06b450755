"""Nodes, and the tree of domains that one topology makes of them.

A domain is identified by the path of label values from the broadest level down: ``rack-1`` may exist in two blocks.
A node that lacks a level has None there; it still counts for the coarser levels, but what stands for the missing
level is no domain: nothing that requires the level may use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from covey.api import core
from covey.placement.cluster import resources
from covey.placement.cluster.node_filters import shape_cause, state_cause
from covey.placement.cluster.shape import ANTI_AFFINITY, OFF_DEVICES, cause_of_conflict
from covey.placement.model import Path, Shape, Topology

#: Shapes whose answer each node remembers.
_REMEMBERED: Final = 64


class DomainTree:
    """All domains of one topology; the root (empty path) holds every node."""

    __slots__ = ("by_path", "changes", "counts", "root", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.root = DomainNode((), None)
        self.by_path: dict[Path, DomainNode] = {(): self.root}
        #: How many domains have come or gone; nodes may come and go without.
        self.changes = 0
        #: How many domains each depth has, the root not counted.
        self.counts = [0] * len(topology.levels)

    def domain(self, path: Path) -> DomainNode:
        """The domain of a path, made when it is new."""
        node = self.by_path.get(path)
        if node is None:
            parent = self.domain(path[:-1])
            node = self.by_path[path] = DomainNode(path, parent)
            parent.children[path[-1]] = node
            self.counts[node.depth] += 1
            self.changes += 1
        return node

    def drop_empty(self, domain: DomainNode) -> None:
        """Take out a domain without nodes, and its ancestors that become empty by it."""
        parent = domain.parent
        if parent is not None and not domain.nodes:
            del parent.children[domain.path[-1]]
            del self.by_path[domain.path]
            self.counts[domain.depth] -= 1
            self.changes += 1
            self.drop_empty(parent)

    def at(self, depth: int) -> Iterator[DomainNode]:
        """The real domains of a level (``depth`` 0 = broadest; -1 = the root)."""
        return (domain for domain in self.root.descend(depth + 1) if domain.real)


class DomainNode:
    """One domain: its children, all nodes below it, and running sums over those."""

    __slots__ = ("broken", "children", "depth", "free", "nodes", "parent", "path", "real", "version")

    def __init__(self, path: Path, parent: DomainNode | None) -> None:
        self.path = path
        #: The level's index, 0 = broadest; -1 for the root.
        self.depth = len(path) - 1
        self.parent = parent
        self.children: dict[str | None, DomainNode] = {}
        self.nodes: dict[str, NodeState] = {}
        #: Changes whenever anything below does.
        self.version = 0
        #: Free capacity, summed over the nodes; one that is over-committed has none, and takes nothing from the others.
        self.free: dict[str, int] = {}
        #: How many nodes are in use; 0 = wholly free.
        self.broken = 0
        #: Whether nodes carry this level; the root is real.
        self.real = not path or path[-1] is not None

    def ancestors(self) -> Iterator[DomainNode]:
        """Yield this domain and all above it, from here to the root."""
        domain: DomainNode | None = self
        while domain is not None:
            yield domain
            domain = domain.parent

    def descend(self, levels: int) -> Iterator[DomainNode]:
        """Yield the domains that many levels below, those without a label value included."""
        if levels == 0:
            yield self
        else:
            for child in self.children.values():
                yield from child.descend(levels - 1)


class Held(NamedTuple):
    """Holder of room: a pod's shape, and the labels (with its namespace) that others' anti-affinity looks at."""

    shape: Shape
    meta: core.Meta | None = None


class NodeState:
    """One node: its facts as last seen, what is free on it, and who holds the rest."""

    __slots__ = (
        "_causes",
        "_state",
        "allocatable",
        "devices",
        "facts",
        "free",
        "guards",
        "held",
        "in_use",
        "leaves",
        "node",
        "version",
    )

    def __init__(self, node: core.Node, held: dict[str, Held]) -> None:
        self.node = node
        self.held = held
        self.allocatable = resources.amounts(node.status.allocatable)
        self.free = dict(self.allocatable)
        #: What it is measured by: it is wholly free while nothing of that is taken (``resources.find_devices``).
        self.devices = devices_of(node)
        #: Held shapes that keep others off the host (host ports, anti-affinity), by the holder's key.
        self.guards: dict[str, Shape] = {}
        self.in_use = 0
        self.leaves: dict[str, DomainNode] = {}
        #: Changes whenever anything about the node does, and with the node itself alone; nodes have none in common.
        self.version = 0
        self.facts = 0
        self._causes: dict[Shape, str | None] = {}
        self._state = state_cause(node)
        for key, occupant in held.items():
            self._count(key, occupant.shape, 1)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def full(self) -> bool:
        """Tell whether the limit of pods is reached."""
        return self.free.get(resources.PODS, 0) < 1

    def admit_as(self, node: core.Node) -> None:
        """Admit pods as another state of the same node does, with the same capacity."""
        self.node = node
        self._state = state_cause(node)
        self._causes.clear()

    def static_cause(self, shape: Shape) -> str | None:
        """Return why the shape may never use this node as it is now (taint, selector, cordon …), or None."""
        try:
            return self._causes[shape]
        except KeyError:
            if len(self._causes) >= _REMEMBERED:
                self._causes.clear()
            cause = self._state or shape_cause(shape, self.node)
            if cause is None and shape.off_devices and self.devices:
                cause = OFF_DEVICES
            self._causes[shape] = cause
            return cause

    def conflict(self, shape: Shape, meta: core.Meta | None = None, without: Collection[str] = ()) -> str | None:
        """Return why a holder on this node keeps the shape off it, or None.

        Args:
            shape: what a pod is.
            meta: its labels, where ``shape.matched`` does not tell yet which terms speak of it.
            without: keys of holders that do not count.
        """
        for key, guard in self.guards.items():
            if key in without:
                continue
            cause = cause_of_conflict(shape, guard)
            if cause is not None:
                return cause
            if meta is not None and any(term.matches(meta) for term in guard.anti_affinity):
                return ANTI_AFFINITY
        for term in shape.anti_affinity:
            others = (occupant.meta for key, occupant in self.held.items() if key not in without)
            if any(meta is not None and term.matches(meta) for meta in others):
                return ANTI_AFFINITY
        return None

    def short(self, shape: Shape, without: Collection[str] = ()) -> str | None:
        """Return the first resource that is too short for one pod of the shape, or None.

        ``without`` is as for `conflict`.
        """
        free = self.free
        if without:
            free = Counter(free)
            for key in without:
                if key in self.held:
                    free.update(dict(self.held[key].shape.requests))
        missing = [name for name, wanted in shape.requests if free.get(name, 0) < wanted]
        return min(missing, key=resources.rank) if missing else None

    def is_used_by(self, shape: Shape) -> bool:
        """Tell whether a pod of this shape breaks into the node while it is wholly free.

        On a node with devices only one that takes a device does, or every node with a DaemonSet would count as used.
        """
        return not self.devices or any(name in self.devices and value > 0 for name, value in shape.requests)

    def _count(self, key: str, shape: Shape, sign: int) -> None:
        for name, value in shape.requests:
            self.free[name] = self.free.get(name, 0) - sign * value
        self.in_use += sign * self.is_used_by(shape)
        if shape.host_ports or shape.anti_affinity:
            if sign > 0:
                self.guards[key] = shape
            else:
                self.guards.pop(key, None)


def devices_of(node: core.Node) -> frozenset[str]:
    """The devices by which a node is measured (``resources.find_devices``)."""
    offered = resources.amounts(node.status.allocatable)
    return resources.find_devices(node.metadata.labels or {}, (name for name, value in offered.items() if value > 0))
