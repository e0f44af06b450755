"""What is free where, kept up to date event by event.

A node or pod event touches one node and its ancestors in each topology, never more: at 5,000 nodes an event costs
microseconds. Each domain carries a version, so that a planner recomputes only the domains that changed since it last
looked (``memo`` is where it keeps what it learned).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from typing import Any, Final

from covey.api import core
from covey.placement import masks, resources
from covey.placement.domains import DomainNode, DomainTree
from covey.placement.model import Path, Shape, Topology
from covey.placement.shape import conflict

UNKNOWN_NODE: Final = "node not found"
HOST_PORTS: Final = "host port"
ANTI_AFFINITY: Final = "pod anti-affinity"
#: Shapes whose answer each node remembers.
_REMEMBERED: Final = 64
#: The tree without levels, for gangs that ask for none.
NO_TOPOLOGY: Final = Topology("", ())


class NodeState:
    """One node: its facts as last seen, what is free on it, and who holds the rest."""

    __slots__ = ("_causes", "allocatable", "free", "guards", "held", "in_use", "leaves", "node", "version")

    def __init__(self, node: core.Node, held: dict[str, Shape]) -> None:
        self.node = node
        self.held = held
        self.allocatable = resources.amounts(node.status.allocatable)
        self.free = dict(self.allocatable)
        #: Held shapes that keep others off the host (host ports, anti-affinity), by the holder's key.
        self.guards: dict[str, Shape] = {}
        self.in_use = 0
        self.leaves: dict[str, DomainNode] = {}
        self.version = 0
        self._causes: dict[Shape, str | None] = {}
        for key, shape in held.items():
            self._count(key, shape, 1)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def full(self) -> bool:
        """Whether the limit of pods is reached."""
        return self.free.get(resources.PODS, 0) < 1

    def static_cause(self, shape: Shape) -> str | None:
        """Why the shape may never use this node as it is now (taint, selector, cordon …), or None."""
        try:
            return self._causes[shape]
        except KeyError:
            if len(self._causes) >= _REMEMBERED:
                self._causes.clear()
            cause = self._causes[shape] = masks.static_cause(shape, self.node)
            return cause

    def conflict(self, shape: Shape) -> str | None:
        """Why a holder on this node keeps the shape off it, or None."""
        if any(conflict(shape, guard) for guard in self.guards.values()):
            return HOST_PORTS if shape.host_ports and not shape.anti_affinity else ANTI_AFFINITY
        return None

    def short(self, shape: Shape) -> str | None:
        """The first resource that is too short for one pod of the shape, or None."""
        missing = [name for name, wanted in shape.requests if self.free.get(name, 0) < wanted]
        return min(missing, key=resources.rank) if missing else None

    def devices(self) -> bool:
        """Whether the node has resources beyond the ordinary ones (GPUs and the like)."""
        return any(value > 0 and name not in resources.ORDINARY for name, value in self.allocatable.items())

    def _count(self, key: str, shape: Shape, sign: int) -> None:
        for name, value in shape.requests:
            self.free[name] = self.free.get(name, 0) - sign * value
        self.in_use += sign * _uses(shape, devices=self.devices())
        if shape.host_ports or shape.anti_affinity or shape.labels:
            if sign > 0:
                self.guards[key] = shape
            else:
                self.guards.pop(key, None)


class Inventory:
    """Incremental capacity of nodes by topology. Single-threaded."""

    def __init__(self, topologies: Iterable[Topology] = ()) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.topologies: dict[str, Topology] = {}
        self.trees: dict[str, DomainTree] = {}
        #: What planners remember between plans; emptied when the topologies change.
        self.memo: dict[Hashable, Any] = {}
        #: Changes with every node that appears, changes or goes; not with pods.
        self.facts = 0
        #: How many nodes have no room for a further pod, whatever it asks.
        self.full = 0
        self._holds: dict[str, tuple[str, Shape]] = {}
        self._on: dict[str, dict[str, Shape]] = {}
        self._versions = count(1)
        self.set_topologies(topologies)

    def set_topologies(self, topologies: Iterable[Topology]) -> None:
        """Replace the topologies; the trees are rebuilt when they differ from the present ones."""
        wanted = {topology.name: topology for topology in (NO_TOPOLOGY, *topologies)}
        if wanted == self.topologies:
            return
        self.topologies = wanted
        self.trees = {name: DomainTree(topology) for name, topology in wanted.items()}
        self.memo.clear()
        for state in self.nodes.values():
            state.leaves = {}
            self._join(state)

    def set_node(self, node: core.Node) -> None:
        """Take over a node as it is now. Nearly free when nothing changed that placements depend on."""
        name = node.metadata.name
        known = self.nodes.get(name)
        if known is not None:
            if _same(known.node, node):
                known.node = node
                return
            self._leave(known)
        state = NodeState(node, self._on.setdefault(name, {}))
        self.nodes[name] = state
        self._join(state)

    def remove_node(self, name: str) -> None:
        """Forget a node. What is held there stays known, in case the node comes back."""
        state = self.nodes.pop(name, None)
        if state is not None:
            self._leave(state)
            if not self._on[name]:
                del self._on[name]

    def hold(self, key: str, node: str, shape: Shape) -> None:
        """Capacity that a pod holds on a node, known or not; the same key again moves it."""
        if key in self._holds:
            if self._holds[key] == (node, shape):
                return
            self.release(key)
        self._holds[key] = (node, shape)
        self._on.setdefault(node, {})[key] = shape
        self._charge(node, key, shape, 1)

    def release(self, key: str) -> None:
        """Give back what a pod held; unknown keys are ignored."""
        held = self._holds.pop(key, None)
        if held is None:
            return
        node, shape = held
        del self._on[node][key]
        if not self._on[node] and node not in self.nodes:
            del self._on[node]
        self._charge(node, key, shape, -1)

    def holder(self, key: str) -> str | None:
        """The node on which a key holds capacity, or None."""
        held = self._holds.get(key)
        return held[0] if held else None

    def fits(self, shape: Shape, node: str) -> str | None:
        """None when one more pod of the shape fits the node now; else the cause."""
        state = self.nodes.get(node)
        if state is None:
            return UNKNOWN_NODE
        cause = state.static_cause(shape) or state.conflict(shape)
        if cause is not None:
            return cause
        short = state.short(shape)
        return None if short is None else f"insufficient {short}"

    def free(self, node: str) -> Mapping[str, int]:
        """What is free on a node, in integers; negative where it is over-committed, empty when it is unknown."""
        state = self.nodes.get(node)
        return {} if state is None else state.free

    def path(self, topology: str, node: str) -> Path:
        """The node's domain path, one value for each level; empty when node or topology is unknown."""
        state = self.nodes.get(node)
        leaf = state.leaves.get(topology) if state else None
        return leaf.path if leaf else ()

    def warnings(self, topology: str) -> tuple[str, ...]:
        """What a person should know about the labels: values under several parents, levels that nodes lack."""
        tree = self.trees[topology]
        found: list[str] = []
        for depth, level in enumerate(tree.topology.levels):
            parents: dict[str, set[Path]] = {}
            lacking = 0
            for domain in tree.root.descend(depth + 1):
                value = domain.path[-1]
                if value is None:
                    lacking += len(domain.nodes)
                else:
                    parents.setdefault(value, set()).add(domain.path[:-1])
            split = sorted(value for value, paths in parents.items() if len(paths) > 1)
            if split:
                found.append(
                    f"labels do not nest: {level.name} {split[0]!r}"
                    + (f" and {len(split) - 1} more values lie" if len(split) > 1 else " lies")
                    + " under several broader domains; they are taken as different domains"
                )
            if lacking and not level.optional:
                found.append(f"{lacking} of {len(self.nodes)} nodes have no level {level.name}")
        return tuple(found)

    def _join(self, state: NodeState) -> None:
        labels = state.node.metadata.labels or {}
        version = state.version = self.facts = next(self._versions)
        self.full += state.full
        for name, tree in self.trees.items():
            leaf = tree.domain(path_of(tree.topology, labels))
            state.leaves[name] = leaf
            for domain in leaf.ancestors():
                domain.nodes[state.name] = state
                domain.version = version
                domain.broken += bool(state.in_use)
                for resource, value in state.free.items():
                    domain.free[resource] = domain.free.get(resource, 0) + value

    def _leave(self, state: NodeState) -> None:
        version = self.facts = next(self._versions)
        self.full -= state.full
        for name, leaf in state.leaves.items():
            for domain in leaf.ancestors():
                del domain.nodes[state.name]
                domain.version = version
                domain.broken -= bool(state.in_use)
                for resource, value in state.free.items():
                    domain.free[resource] -= value
            self.trees[name].drop_empty(leaf)

    def _charge(self, node: str, key: str, shape: Shape, sign: int) -> None:
        state = self.nodes.get(node)
        if state is None:
            return
        used_before, full_before = bool(state.in_use), state.full
        state._count(key, shape, sign)  # noqa: SLF001 - the node's sums and its domains' change together
        flipped = bool(state.in_use) - used_before
        self.full += state.full - full_before
        version = state.version = next(self._versions)
        for leaf in state.leaves.values():
            domain: DomainNode | None = leaf
            while domain is not None:
                domain.version = version
                domain.broken += flipped
                free = domain.free
                for name, value in shape.requests:
                    free[name] = free.get(name, 0) - sign * value
                domain = domain.parent


def path_of(topology: Topology, labels: Mapping[str, str]) -> Path:
    """The domain path of a node with these labels: of each level's keys the first one present counts."""
    return tuple(next((labels[key] for key in level.keys if labels.get(key)), None) for level in topology.levels)


def _uses(shape: Shape, *, devices: bool) -> bool:
    """Whether a pod breaks into a wholly free node.

    On a node with devices only one that takes a device does, or every node with a DaemonSet would count as used.
    """
    return not devices or any(name not in resources.ORDINARY for name, _ in shape.requests)


def _same(old: core.Node, new: core.Node) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.status.allocatable == new.status.allocatable
        and old.spec == new.spec
        and masks.state_cause(old) == masks.state_cause(new)
    )
