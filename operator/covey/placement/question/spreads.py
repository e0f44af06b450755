"""Required spread of pods over a node label: over which domains, and what that leaves to a plan.

A plan keeps a spread exactly when each domain that gets pods has at most ``max_skew`` more than the one with the fewest
has afterwards: the pods can then come one after another as kube-scheduler would let them. So the number of the fewest is
chosen first (``floor``). It bounds each domain from above, and from below: what a domain lacks of it is fixed there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from covey.placement.anti_affinity import PodSpread
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.node_filters import selector_cause, taint_cause
from covey.placement.cluster.shape import with_shapes
from covey.placement.model import Gang, Path, PodRequest, Shape
from covey.placement.question.demands import Demand

#: Shapes whose domains are remembered.
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class SpreadDomains:
    """The domains of a depth over which pods are spread, with the pods that count in each.

    ``outside`` names the nodes that no pod may use, as they lack the label.
    """

    depth: int
    pods: Mapping[Path, int]
    outside: frozenset[str]


def find_domains(shape: Shape, topology: str, inventory: Inventory) -> SpreadDomains | None:
    """Find the domains of a shape's spread; None where no level of the topology has the label's values as domains."""
    spread = shape.pod_spread
    assert spread is not None, "only of pods that are spread"
    tree = inventory.trees[topology]
    tolerations = shape.tolerations if spread.heeds_taints else ()
    key = (topology, replace(spread, floor=None), shape.node_selector, shape.node_affinity, tolerations)
    memo: dict[object, tuple[int, SpreadDomains | None]] = inventory.memo.setdefault("pod spreads", {})
    known = memo.get(key)
    if known is None or known[0] != tree.root.version:
        if len(memo) >= _REMEMBERED:
            memo.clear()
        known = memo[key] = (tree.root.version, _find_domains(shape, spread, topology, inventory))
    return known[1]


def _find_domains(shape: Shape, spread: PodSpread, topology: str, inventory: Inventory) -> SpreadDomains | None:
    values: dict[str, str] = {}
    outside: set[str] = set()
    for name, state in inventory.nodes.items():
        value = state.node.metadata.label(spread.term.key)
        if value is None:
            outside.add(name)
        elif selector_cause(shape, state.node) is None and not (
            spread.heeds_taints and taint_cause(shape, state.node) is not None
        ):
            values[name] = value
    for depth, level in enumerate(inventory.topologies[topology].levels):
        if spread.term.key not in level.keys:
            continue
        paths = {name: inventory.path(topology, name)[: depth + 1] for name in values}
        pairs = {(path, values[name]) for name, path in paths.items()}
        if len(pairs) != len(set(paths.values())) or len(pairs) != len(set(values.values())):
            continue
        pods = Counter(dict.fromkeys(paths.values(), 0))
        for name, path in paths.items():
            for held in inventory.nodes[name].held.values():
                meta = held.meta
                pods[path] += meta is not None and meta.deletion_timestamp is None and spread.term.matches(meta)
        return SpreadDomains(depth, pods, frozenset(outside))
    return None


def spread_pods(gang: Gang) -> list[PodRequest]:
    """The pods without a node that are spread."""
    pods = (pod for role in gang.roles for replica in role.replicas for pod in replica.pods)
    return [pod for pod in pods if pod.shape.pod_spread is not None and pod.node is None]


def without_spread(gang: Gang, pods: Iterable[PodRequest]) -> Gang:
    """Return the gang with these pods free of their spread."""
    return with_shapes(gang, {pod.key: replace(pod.shape, pod_spread=None) for pod in pods})


def with_floors(gang: Gang, inventory: Inventory, needed: Sequence[Demand]) -> Iterator[Gang]:
    """Yield the gang with each choice of floors under which what is needed may fit, the lowest first.

    Args:
        gang: all its spreads have domains.
        inventory: what is there.
        needed: what the plan must place.
    """
    shapes = {pod.shape.pod_spread: pod.shape for pod in spread_pods(gang)}
    count = Counter(pod.shape.pod_spread for demand in needed for pod in demand.missing)
    ranges = []
    for spread, shape in shapes.items():
        domains = find_domains(shape, gang.topology, inventory)
        assert spread is not None
        assert domains is not None
        ranges.append(_floors([*domains.pods.values()], count[spread], spread.max_skew))
    for floors in product(*ranges):
        chosen = dict(zip(shapes, floors, strict=True))
        made = {
            shape: replace(shape, pod_spread=replace(spread, floor=chosen[spread]))
            for shape in {pod.shape for pod in spread_pods(gang)}
            if (spread := shape.pod_spread) is not None
        }
        yield with_shapes(gang, {pod.key: made[pod.shape] for pod in spread_pods(gang)})


def _floors(pods: Sequence[int], count: int, max_skew: int) -> range:
    """The numbers that the domain with the fewest may have once so many more pods have come."""
    low = min(pods, default=0)
    while pods and sum(max(low + max_skew - had, 0) for had in pods) < count:
        low += 1
    high = low
    while pods and sum(max(high + 1 - had, 0) for had in pods) <= count:
        high += 1
    return range(low, high + 1)


def fix_floors(gang: Gang, inventory: Inventory, demands: Sequence[Demand]) -> dict[tuple[int, int], Path]:
    """Choose what of the minimum goes to which domain, so that each has its floor: domains by role and replica."""
    paths: dict[tuple[int, int], Path] = {}
    open_demands: dict[PodSpread, list[Demand]] = {}
    for demand in demands:
        pods = demand.replica.pods
        if demand.minimum and len(pods) == 1 and pods[0].shape.pod_spread is not None:
            open_demands.setdefault(pods[0].shape.pod_spread, []).append(demand)
    for spread, own in open_demands.items():
        domains = find_domains(own[0].replica.pods[0].shape, gang.topology, inventory)
        lacking = domains.pods.items() if domains is not None and spread.floor is not None else ()
        places = (path for path, had in lacking for _ in range((spread.floor or 0) - had))
        paths |= {(demand.role, demand.replica.replica): path for demand, path in zip(own, places, strict=False)}
    return paths


def count_spread(gang: Gang, inventory: Inventory, pod: PodRequest, nodes: Mapping[str, str]) -> Mapping[Path, int]:
    """Count by domain the pods among which a pod is spread, once these pods (by key) have their nodes."""
    domains = find_domains(pod.shape, gang.topology, inventory)
    if domains is None:
        return {}
    pods = Counter(domains.pods)
    for other in spread_pods(gang):
        if other.key in nodes and other.shape.pod_spread == pod.shape.pod_spread:
            pods[inventory.path(gang.topology, nodes[other.key])[: domains.depth + 1]] += 1
    return pods


def keeps_spread(gang: Gang, inventory: Inventory, nodes: Mapping[str, str]) -> bool:
    """Tell whether the pods that get these nodes (by key) are spread as they must be."""
    for spread, pod in {pod.shape.pod_spread: pod for pod in spread_pods(gang) if pod.key in nodes}.items():
        domains = find_domains(pod.shape, gang.topology, inventory)
        after = count_spread(gang, inventory, pod, nodes)
        if spread is None or domains is None or after.keys() != domains.pods.keys():
            return False
        fewest = min(after.values())
        if any(count > domains.pods[path] and count - fewest > spread.max_skew for path, count in after.items()):
            return False
    return True
