"""The tree of domains that one topology makes of the nodes.

A domain is identified by the path of label values from the broadest level down: ``rack-1`` may exist in two blocks.
A node that lacks a level has None there; it still counts for the coarser levels, but what stands for the missing
level is no domain: nothing that requires the level may use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from covey.placement.model import Path, Topology

if TYPE_CHECKING:
    from covey.placement.cluster.inventory import NodeState


class DomainTree:
    """All domains of one topology; the root (empty path) holds every node."""

    __slots__ = ("by_path", "counts", "root", "topology")

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.root = DomainNode((), None)
        self.by_path: dict[Path, DomainNode] = {(): self.root}
        #: How many domains each depth has, the root not counted.
        self.counts = [0] * len(topology.levels)

    def domain(self, path: Path) -> DomainNode:
        """The domain of a path, made when it is new."""
        found = self.by_path.get(path)
        if found is None:
            parent = self.domain(path[:-1])
            found = self.by_path[path] = DomainNode(path, parent)
            parent.children[path[-1]] = found
            self.counts[found.depth] += 1
        return found

    def drop_empty(self, domain: DomainNode) -> None:
        """Take out a domain without nodes, and its ancestors that become empty by it."""
        parent = domain.parent
        if parent is not None and not domain.nodes:
            del parent.children[domain.path[-1]]
            del self.by_path[domain.path]
            self.counts[domain.depth] -= 1
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
        """This domain and all above it, from here to the root."""
        domain: DomainNode | None = self
        while domain is not None:
            yield domain
            domain = domain.parent

    def descend(self, levels: int) -> Iterator[DomainNode]:
        """The domains so many levels below, those without a label value included."""
        if levels == 0:
            yield self
        else:
            for child in self.children.values():
                yield from child.descend(levels - 1)
