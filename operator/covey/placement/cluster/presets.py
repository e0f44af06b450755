"""Resources of nodes and pods, and the presets of topologies.

Topologies that ship with Covey, and which one to use.

Nothing is standard beyond region, zone and hostname; each preset is one vendor's labels, from broad to narrow, under
the common names region, zone, superblock, block, subblock, leaf, rack, subrack, host. Note that AWS numbers its layers
from far to near and Topograph its tiers from near to far.

Every tier that a vendor labels is a level of its own, and optional unless it is the finest that all of its nodes carry:
how many tiers a node has depends on its machine type and on the fabric, and a node without one of the keys keeps the
others.

Quantities as integers, and what a pod asks of its node.

kube-scheduler counts cpu in milli-units and everything else in whole units (bytes, devices), both rounded up; so does
Covey, or the two would disagree about the last pod on a node. Every quantity is parsed once: the same few strings
come back on thousands of objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from covey.api import constants, core
from covey.placement.model import Level, Topology

CPU: Final = "cpu"
PODS: Final = "pods"
#: Resources that every node has; all others are devices, which are what placements are short of.
ORDINARY: Final = frozenset({CPU, "memory", "ephemeral-storage", PODS})
#: Counted in bytes.
BYTES: Final = frozenset({"memory", "ephemeral-storage"})

Quantity = str | int | float

#: The largest quantity that the API takes; what is written above it is cut down to it before it is stored.
LARGEST: Final = 2**63 - 1
#: Powers of ten and characters beyond which a quantity is not worked out: no API server stores such a one.
_EXPONENT: Final = 40
_LENGTH: Final = 64

_PATTERN: Final = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)")
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


@lru_cache(maxsize=16_384)
def parse_quantity(quantity: Quantity) -> Fraction:
    """The exact value of a quantity: plain, with a decimal or binary suffix, or with an exponent.

    Raises:
        ValueError: when it is none, or one that is far beyond what the API takes.
    """
    text = str(quantity).strip()
    match = _PATTERN.fullmatch(text) if len(text) <= _LENGTH else None
    if match is None:
        raise ValueError(f"{text[:_LENGTH]!r} is not a quantity")
    digits, exponent, suffix = match.groups()
    if exponent and (len(exponent) > len("e+40") or abs(int(exponent[1:])) > _EXPONENT):
        raise ValueError(f"{text!r} is out of range")
    return Fraction(digits + exponent) if exponent else Fraction(digits) * _SUFFIXES[suffix or ""]


@lru_cache(maxsize=16_384)
def amount(resource: str, quantity: Quantity) -> int:
    """A quantity as the integer that is counted: milli-units for cpu, else whole units; rounded up.

    Raises:
        ValueError: when it is no quantity.
    """
    value = parse_quantity(quantity)
    return ceil(value * 1000) if resource == CPU else ceil(value)


def amounts(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """All quantities of a resource list as integers."""
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def is_device(resource: str) -> bool:
    """Tell whether a resource is an extended one: a plugin offers it under a domain of its own, as GPUs are."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def text(resource: str, value: int) -> str:
    """Return an integer as the API writes it: cpu in milli-units (``m``), bytes with the largest suffix that fits."""
    if resource == CPU:
        return f"{value}m"
    if resource in BYTES and value:
        for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{suffix}"
    return str(value)


def rank(resource: str) -> tuple[int, str]:
    """Sort key that names devices before cpu, memory and the rest: they are what people look for first."""
    order = {CPU: 1, "memory": 2, "ephemeral-storage": 3, PODS: 4}
    return (order.get(resource, 0), resource)


def pod_requests(pod: core.Pod) -> dict[str, int]:
    """Compute what a pod takes from its node, ``pods`` = 1 included, zeros left out.

    The rule is kube-scheduler's: the larger of what runs together (containers and sidecars) and of the init containers
    one after another, each together with the sidecars started before it; pod-level resources stand above that; overhead
    is added.
    """
    spec = pod.spec
    running = _sum(_requests(container.resources) for container in spec.containers)
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _requests(container.resources)
        if container.restart_policy == "Always":
            sidecars = _sum((sidecars, own))
            starting = _larger(starting, sidecars)
        else:
            starting = _larger(starting, _sum((sidecars, own)))
    total = _larger(_sum((running, sidecars)), starting)
    total |= _pod_level(spec.resources, total)
    total = _sum((total, amounts(spec.overhead)))
    total[PODS] = 1
    return {name: value for name, value in total.items() if value > 0}


def _requests(resources: core.Resources | None) -> dict[str, int]:
    """A container's requests; a limit without a request is the request."""
    return {} if resources is None else amounts({**(resources.limits or {}), **(resources.requests or {})})


def _pod_level(resources: core.Resources | None, containers: Mapping[str, int]) -> dict[str, int]:
    """Return pod-level requests; a limit counts only where no container asks for the resource (the API's default)."""
    if resources is None:
        return {}
    limits = {name: value for name, value in amounts(resources.limits).items() if name not in containers}
    return limits | amounts(resources.requests)


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}


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


def detect(nodes: Iterable[core.Node]) -> Topology | None:
    """The preset that most nodes' labels match, the more specific first among equals; None without any label."""
    present: dict[str, int] = {}
    for node in nodes:
        for key, value in (node.metadata.labels or {}).items():
            present[key] = present.get(key, 0) + bool(value)
    best = max(PRESETS[:-1], key=lambda preset: _coverage(preset, present))
    if _coverage(best, present) > 0:
        return best
    return PRESETS[-1] if any(present.get(key) for key in _COMMON) else None


def topology_of(resource: core.ClusterTopology) -> Topology:
    """A ClusterTopology as the planner's value."""
    levels = tuple(Level(level.name, level.keys, level.optional) for level in resource.spec.levels)
    return Topology(resource.metadata.name, levels)


def choose(
    name: str | None,
    topologies: Mapping[str, Topology] | Sequence[Topology],
    defaults: Sequence[str],
    nodes: Iterable[core.Node],
) -> Topology:
    """The topology of a resource: the one it names, else the default, else the only one, else what the labels show.

    Args:
        name: what ``spec.topology.name`` says.
        topologies: the ClusterTopologies there are.
        defaults: names of those marked default.
        nodes: nodes to detect a preset from when there is no ClusterTopology.

    Raises:
        LookupError: when the choice is not clear; the message says why.
    """
    known = topologies if isinstance(topologies, Mapping) else {topology.name: topology for topology in topologies}
    if name:
        found = known.get(name) or next((preset for preset in PRESETS if preset.name == name), None)
        if found is None:
            raise LookupError(f"there is no ClusterTopology {name!r}; there are: {', '.join(sorted(known)) or 'none'}")
        return found
    marked = sorted(default for default in defaults if default in known)
    if len(marked) > 1:
        raise LookupError(f"several ClusterTopologies are marked default: {', '.join(marked)}")
    if marked:
        return known[marked[0]]
    if len(known) > 1:
        raise LookupError(f"several ClusterTopologies and none marked default: {', '.join(sorted(known))}")
    return next(iter(known.values()), None) or detect(nodes) or PRESETS[-1]


def _coverage(preset: Topology, present: Mapping[str, int]) -> int:
    """On how many nodes the best covered of the preset's own labels is."""
    return max((present.get(key, 0) for level in preset.levels for key in level.keys if key not in _COMMON), default=0)
