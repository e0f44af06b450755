"""Topologies that ship with Covey, and which one to use.

Nothing is standard beyond region, zone and hostname; each preset is one vendor's labels, from broad to narrow, under
the common names region, zone, superblock, block, subblock, leaf, rack, subrack, host. Note that AWS numbers its layers
from far to near and Topograph its tiers from near to far.

Every tier that a vendor labels is a level of its own, and optional unless it is the finest that all of its nodes carry:
how many tiers a node has depends on its machine type and on the fabric, and a node without one of the keys keeps the
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from covey.api import constants, core
from covey.placement.cluster import resources
from covey.placement.model import Level, Topology

REGION: Final = Level("region", ("topology.kubernetes.io/region",), optional=True)
ZONE: Final = Level("zone", ("topology.kubernetes.io/zone",), optional=True)
HOST: Final = Level("host", (constants.HOSTNAME_LABEL,))


def _level(name: str, *keys: str, optional: bool = False) -> Level:
    return Level(name, keys, optional)


#: Most specific first: `detect` takes the first one whose own labels are on the nodes.
PRESETS: Final[tuple[Topology, ...]] = (
    Topology(
        "topograph",
        (
            ZONE,
            # A fabric has as many tiers as it has; these are all that a topology of ten levels has room for.
            _level("tier-5", "fabric.topograph.run/tier-5", optional=True),
            _level("tier-4", "fabric.topograph.run/tier-4", optional=True),
            _level("tier-3", "fabric.topograph.run/tier-3", optional=True),
            _level("superblock", "fabric.topograph.run/tier-2", optional=True),
            _level("block", "fabric.topograph.run/tier-1", optional=True),
            _level("subblock", "fabric.topograph.run/tier-0"),
            _level("rack", "accelerator.topograph.run/domain", optional=True),
            _level("subrack", "accelerator.topograph.run/sub-domain", optional=True),
            HOST,
        ),
    ),
    Topology(
        "topograph-legacy",
        (
            ZONE,
            _level("superblock", "network.topology.nvidia.com/core", optional=True),
            _level("block", "network.topology.nvidia.com/spine", optional=True),
            _level("subblock", "network.topology.nvidia.com/leaf"),
            _level("rack", "network.topology.nvidia.com/accelerator", optional=True),
            HOST,
        ),
    ),
    Topology(
        "kueue",
        (
            ZONE,
            _level("block", "cloud.provider.com/topology-block", optional=True),
            _level("rack", "cloud.provider.com/topology-rack"),
            HOST,
        ),
    ),
    Topology(
        "gke",
        (
            ZONE,
            _level("block", "cloud.google.com/gce-topology-block", optional=True),
            _level("subblock", "cloud.google.com/gce-topology-subblock"),
            _level("host", "cloud.google.com/gce-topology-host", constants.HOSTNAME_LABEL),
        ),
    ),
    Topology(
        "aws",
        (
            ZONE,
            _level("superblock", "topology.k8s.aws/network-node-layer-1", optional=True),
            _level("block", "topology.k8s.aws/network-node-layer-2", optional=True),
            _level("subblock", "topology.k8s.aws/network-node-layer-3"),
            _level("leaf", "topology.k8s.aws/network-node-layer-4", optional=True),
            # An UltraServer: HyperPod sets its name; EC2, and so node feature discovery, knows its capacity block.
            _level("rack", "topology.k8s.aws/ultraserver-id", "topology.k8s.aws/capacity-block-id", optional=True),
            HOST,
        ),
    ),
    Topology(
        "oci",
        (
            _level("zone", "oci.oraclecloud.com/rdma.hpc_island_id", optional=True),
            _level("block", "oci.oraclecloud.com/rdma.network_block_id", optional=True),
            _level("subblock", "oci.oraclecloud.com/rdma.local_block_id"),
            _level("rack", "oci.oraclecloud.com/host.rack_id", optional=True),
            HOST,
        ),
    ),
    Topology(
        "coreweave",
        (
            REGION,
            # The number of a superpod is one within its fabric. `ib.` is what InfiniBand nodes had first.
            _level("superblock", "backend.coreweave.cloud/fabric", "ib.coreweave.cloud/fabric", optional=True),
            _level("block", "backend.coreweave.cloud/superpod", "ib.coreweave.cloud/superpod", optional=True),
            _level("subblock", "backend.coreweave.cloud/leafgroup", "ib.coreweave.cloud/leafgroup"),
            _level("rack", "ds.coreweave.com/nvlink.domain", optional=True),
            HOST,
        ),
    ),
    Topology("nvidia-clique", (ZONE, _level("rack", "nvidia.com/gpu.clique"), HOST)),
    Topology("kubernetes", (REGION, ZONE, HOST)),
)

_COMMON: Final = frozenset({*REGION.keys, *ZONE.keys, *HOST.keys})
#: All labels that any preset knows.
_KEYS: Final = frozenset(key for preset in PRESETS for level in preset.levels for key in level.keys)


class LabelCounts:
    """Counts of nodes by label, of the labels that presets know; kept, as thousands of nodes have dozens of labels each.

    ``present`` counts all nodes, ``on_devices`` those that have devices.
    """

    def __init__(self, nodes: Iterable[core.Node] = ()) -> None:
        self.present: Counter[str] = Counter()
        self.on_devices: Counter[str] = Counter()
        self._labels: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        for node in nodes:
            self.note(node.metadata.name, node)

    def note(self, name: str, node: core.Node | None) -> bool:
        """Take over a node as it is now, None once it is gone. Returns whether any count has changed."""
        labels = (node.metadata.labels if node else None) or {}
        carried = frozenset(key for key in labels.keys() & _KEYS if labels[key])
        now = (carried, carried if node is not None and _has_devices(node) else frozenset())
        before = self._labels.pop(name, (frozenset(), frozenset()))
        if carried:
            self._labels[name] = now
        for count, new, old in zip((self.present, self.on_devices), now, before, strict=True):
            count.update(new - old)
            count.subtract(old - new)
        return now != before


def _has_devices(node: core.Node) -> bool:
    offered = node.status.allocatable or {}
    return any(resources.is_device(name) and str(amount) != "0" for name, amount in offered.items())


def detect(nodes: Iterable[core.Node] | LabelCounts, in_use: Mapping[str, int] | None = None) -> Topology | None:
    """The preset that the labels of nodes show; None without any label.

    It is one in use whose labels are still there, else the most specific one that has at least half as many nodes as
    any other: nodes get the labels of two vendors at different moments.

    Args:
        nodes: the nodes, or their labels.
        in_use: running units by the preset that they keep (``admission.topologies``). One node that joins with labels of
            another preset decides nothing while anything runs. What counts are nodes with devices, where there are any.
    """
    counts = nodes if isinstance(nodes, LabelCounts) else LabelCounts(nodes)
    kept = in_use or {}
    standing = +counts.on_devices or counts.present
    used = [preset for preset in PRESETS if kept.get(preset.name) and _coverage(preset, standing)]
    if used:
        return max(used, key=lambda preset: kept[preset.name])
    coverage = {preset: _coverage(preset, counts.present) for preset in PRESETS[:-1]}
    most = max(coverage.values())
    if most > 0:
        return next(preset for preset, covered in coverage.items() if 2 * covered >= most)
    return PRESETS[-1] if any(counts.present.get(key) for key in _COMMON) else None


def topology_of(resource: core.ClusterTopology) -> Topology:
    """A ClusterTopology as the planner's value."""
    levels = tuple(Level(level.name, level.keys, level.optional) for level in resource.spec.levels)
    return Topology(resource.metadata.name, levels)


def find(name: str, topologies: Mapping[str, Topology]) -> Topology | None:
    """The ClusterTopology of that name, else the preset."""
    return topologies.get(name) or next((preset for preset in PRESETS if preset.name == name), None)


def choose(
    name: str | None,
    topologies: Mapping[str, Topology] | Sequence[Topology],
    defaults: Sequence[str],
    nodes: Iterable[core.Node] | LabelCounts,
    in_use: Mapping[str, int] | None = None,
) -> Topology:
    """The topology of what has no pods yet: the one it names, the default, the only one, or what the labels show.

    Args:
        name: what ``spec.topology.name`` says.
        topologies: the ClusterTopologies there are.
        defaults: names of those marked default.
        nodes: nodes to detect a preset from when there is no ClusterTopology.
        in_use: running units by the preset that they keep.

    Raises:
        LookupError: when the choice is not clear; the message says why.
    """
    known = topologies if isinstance(topologies, Mapping) else {topology.name: topology for topology in topologies}
    if name:
        topology = find(name, known)
        if topology is None:
            raise LookupError(f"there is no ClusterTopology {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
        return topology
    marked = sorted(default for default in defaults if default in known)
    if len(marked) > 1:
        raise LookupError(f"several ClusterTopologies are marked default: {', '.join(marked)}")
    if marked:
        return known[marked[0]]
    if len(known) > 1:
        raise LookupError(f"several ClusterTopologies and none marked default: {', '.join(sorted(known))}")
    return next(iter(known.values()), None) or detect(nodes, in_use) or PRESETS[-1]


def _coverage(preset: Topology, present: Mapping[str, int]) -> int:
    """Nodes that have the best covered of the preset's own labels."""
    return max((present.get(key, 0) for level in preset.levels for key in level.keys if key not in _COMMON), default=0)
