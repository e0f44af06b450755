"""Places: devices used, free and stranded by topology level, a running resource's floor, and nodes in words.

``placement.cluster.devices`` defines used, free and stranded; much free and much stranded means fragmentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from covey.admission.nodes import number
from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_REPLICA, LABEL_ROLE, LABEL_UNIT
from covey.api.inference import DisaggregatedInference
from covey.model import podstate
from covey.picture.floor import Floor, NodeUsage, Spot, build_floor, main_resource
from covey.picture.short_names import path_order
from covey.placement.cluster import resources
from covey.placement.cluster.devices import CLUSTER, share
from covey.placement.cluster.inventory import Inventory, path_of
from covey.placement.model import Path, Topology
from covey.planning.answer import Teller
from covey.planning.drawing import survey
from covey.planning.facts import ClusterFacts


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
    grounds: Sequence[NodeUsage], topology: Topology, resource: str | None = None, levels: Iterable[str] | None = None
) -> UsageReport:
    """Count a resource by domain, each domain after the one it lies in.

    Args:
        grounds: every node with what is used of it.
        topology: where levels come from.
        resource: what to count; the device that nodes offer when left out (``resources.measure``).
        levels: names of the levels to tell; all but those where every node is alone when left out.
    """
    counted = resource or main_resource((), grounds)
    depths = _depths(topology, grounds, set(levels) if levels is not None else None)
    usages = [_usage(CLUSTER, "", (), grounds, counted)]
    members: dict[Path, list[NodeUsage]] = {}
    for ground in grounds:
        for depth in depths:
            if len(ground.path) > depth and ground.path[depth] is not None:
                members.setdefault(ground.path[: depth + 1], []).append(ground)
    for path in sorted(members, key=path_order):
        level = topology.levels[len(path) - 1].name
        usages.append(_usage(level, str(path[-1]), path, members[path], counted))
    return UsageReport(topology.name, counted, tuple(usages))


def _depths(topology: Topology, grounds: Sequence[NodeUsage], levels: set[str] | None) -> list[int]:
    if levels is not None:
        return [depth for depth, level in enumerate(topology.levels) if level.name in levels]
    depths = []
    for depth in range(len(topology.levels)):
        domains = {ground.path[: depth + 1] for ground in grounds if len(ground.path) > depth}
        if len(domains) < len(grounds):
            depths.append(depth)
    return depths


def _usage(level: str, domain: str, path: Path, grounds: Sequence[NodeUsage], resource: str) -> Usage:
    capacity = used = free = stranded = 0
    for ground in grounds:
        has, taken = ground.capacity.get(resource, 0), ground.used.get(resource, 0)
        left = share(has, taken, closed=ground.closed is not None)
        capacity, used, free = capacity + has, used + taken, free + left.free
        stranded += left.stranded
    return Usage(level, domain, path, len(grounds), capacity, used, free, stranded)


def find_topology_name(inference: DisaggregatedInference, groups: Iterable[core.Group]) -> str | None:
    """The topology in which a resource is planned, as the roots of its units tell; else the one that it names.

    Args:
        inference: the resource.
        groups: of its namespace.
    """
    uid = inference.metadata.uid
    roots = [
        group
        for group in groups
        if group.status.topology is not None and (owner := group.metadata.controller) is not None and owner.uid == uid
    ]
    first = min(roots, key=lambda root: number(root.metadata.label(LABEL_UNIT)), default=None)
    return first.status.topology if first is not None else inference.spec.topology.name


def whereabouts(name: str | None, facts: ClusterFacts) -> Callable[[Sequence[str]], str]:
    """A function from nodes to words; it says nothing where the topology is not clear.

    Args:
        name: the topology of the resource (``find_topology_name``).
        facts: the cluster.
    """
    try:
        topology = facts.topology_choice().choose(name)
    except LookupError:
        return lambda _nodes: ""
    paths = {node.metadata.name: path_of(topology, node.metadata.labels or {}) for node in facts.nodes}
    teller = Teller(topology, lambda node: paths.get(node, ()), {})

    def words(nodes: Sequence[str]) -> str:
        shared = teller.shared_domains(node for node in nodes if node in paths)
        return ", ".join(f"{domain.level} {domain.domain}" for domain in shared if domain.level != "host")

    return words


def floor_now(inferences: Sequence[DisaggregatedInference], facts: ClusterFacts) -> Floor:
    """The floor with the pods of some resources in colour, bound ones and pinned ones.

    Raises:
        LookupError: which topology to draw is not clear.
    """
    name = find_topology_name(inferences[0], facts.groups) if inferences else None
    topology = facts.topology_choice().choose(name)
    inventory = Inventory([topology])
    for node in facts.nodes:
        inventory.set_node(node)
    titles = {
        inference.metadata.uid: f"{inference.metadata.namespace}/{inference.metadata.name}" for inference in inferences
    }
    ours = [pod for pod in facts.pods if (owner := pod.metadata.controller) and owner.uid in titles]
    spots = [spot for pod in ours if (spot := _spot(pod, titles)) is not None]
    drawn = {pod.metadata.uid for pod in ours}
    return build_floor(
        topology,
        survey(facts.nodes, facts.pods, partial(inventory.path, topology.name), drawn),
        spots,
        title=", ".join(titles.values()),
        wanted=[resources.pod_requests(pod) for pod in ours],
        roles=[
            (titles[inference.metadata.uid], role.name) for inference in inferences for role in inference.spec.roles
        ],
    )


def _spot(pod: core.Pod, titles: dict[str, str]) -> Spot | None:
    node, owner, meta = podstate.holding(pod), pod.metadata.controller, pod.metadata
    if node is None or owner is None:
        return None
    return Spot(
        titles[owner.uid],
        number(meta.label(LABEL_UNIT)),
        meta.label(LABEL_ROLE) or "",
        number(meta.label(LABEL_REPLICA)),
        number(meta.label(LABEL_INDEX)),
        meta.name,
        node,
        resources.pod_requests(pod),
    )
