"""The levels, the device and the scale that a view is drawn with: from nodes and topologies alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from covey.api import core
from covey.picture.floor import MOST_CELLS, device_word, levels_of, scale_of
from covey.placement.cluster import resources
from covey.placement.cluster.inventory import path_of
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Path, Topology
from covey.planning.facts import ClusterFacts
from covey.ui import contract
from covey.watching.usage import whereabouts


@dataclass(frozen=True, slots=True)
class ViewLayout:
    """The layout of a view. ``depths``: levels of the topology that are shown."""

    topology: contract.TopologyView
    depths: tuple[int, ...]
    whole: Topology | None
    resource: str
    scale: int
    facts: ClusterFacts
    warnings: tuple[str, ...]
    _words: dict[str | None, Callable[[Sequence[str]], str]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def device(self) -> str:
        """A word for the resource, such as ``GPU``."""
        return device_word(self.resource)

    def path(self, node: core.Node) -> Path:
        """A node's domain at each of the levels shown."""
        whole = path_of(self.whole, node.metadata.labels or {}) if self.whole else ()
        return tuple(whole[depth] for depth in self.depths)

    def cells(self, amount: int) -> int:
        """The number of cells for an amount of the resource; bounded, as a pod may ask for anything."""
        return min(-(-amount // self.scale), MOST_CELLS * MOST_CELLS)

    def whereabouts(self, topology: str | None) -> Callable[[Sequence[str]], str]:
        """Words for where nodes lie, in the topology that a resource names."""
        if topology not in self._words:
            self._words[topology] = whereabouts(topology, self.facts)
        return self._words[topology]


def lay_out(
    nodes: Iterable[core.Node], topologies: Iterable[core.ClusterTopology], groups: Iterable[core.Group] = ()
) -> ViewLayout:
    """The layout of these nodes.

    Args:
        nodes: all that the viewer may see.
        topologies: likewise.
        groups: likewise.
    """
    in_order = tuple(sorted(topologies, key=lambda topology: topology.metadata.name))
    facts = ClusterFacts(tuple(nodes), topologies=in_order, groups=tuple(groups))
    warnings: tuple[str, ...] = ()
    try:
        whole = facts.topology_choice().choose()
    except LookupError as error:
        whole, warnings = None, (f"{error.args[0]}; mark one as default",)
    paths = [path_of(whole, node.metadata.labels or {}) for node in facts.nodes] if whole else []
    shown, constant = levels_of(whole, paths) if whole else ([], [])
    capacities = [resources.amounts(node.status.allocatable) for node in facts.nodes]
    labels = (node.metadata.labels or {} for node in facts.nodes)
    resource = resources.measure({}, zip(labels, capacities, strict=True))
    levels = contract.TopologyView(whole.name if whole else "", tuple(name for _, name in shown), tuple(constant))
    depths = tuple(depth for depth, _ in shown)
    return ViewLayout(levels, depths, whole, resource, scale_of(resource, capacities), facts, warnings)


def matters(before: core.Node | None, node: core.Node | None) -> bool:
    """Tell whether the view is another with this node: kubelets write the status of every node all the time."""
    if before is None or node is None:
        return before is not node
    return (
        before.metadata.labels != node.metadata.labels
        or before.status.allocatable != node.status.allocatable
        or state_cause(before) != state_cause(node)
    )


def draw_node(node: core.Node, layout: ViewLayout, others: int) -> contract.NodeView:
    """A node; ``others``: how much of the resource strangers have of it."""
    capacity = resources.amounts(node.status.allocatable).get(layout.resource, 0)
    cells = layout.cells(capacity)
    return contract.NodeView(layout.path(node), cells, min(cells, layout.cells(others)), state_cause(node))
