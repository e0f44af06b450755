"""Domains that may not exist yet in which a whole minimum would fit, by the planner's own count. Pure.

One domain holds what several requests cannot say of each other: pods of unlike shapes that have to lie together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.groups import Levels
from covey.operator.model.observed import Observed
from covey.placement.cluster.elastic import ElasticDomain
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.node_filters import static_cause
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Plan, PodRequest, ReplicaRequest, RoleRequest, Shape
from covey.placement.planner import LIMIT, plan_minimum

#: A plan is made on the event loop: it may take a fraction of what Covey's scheduler allows itself.
_LIMIT: Final = LIMIT // 10
#: The pods of each replica, by role.
Pods = Mapping[str, Sequence[Sequence[core.Pod]]]


def find_domains(
    pods: Pods, spec: DisaggregatedInferenceSpec, levels: Levels, observed: Observed, unit: int
) -> Iterator[ElasticDomain]:
    """Find the domains that a unit may ask for, in order.

    Units of a resource begin with different ones: what spreads them apart is not in a request.

    Args:
        pods: what has to lie together; none of the unit has a place.
        spec: of the resource.
        levels: of its topology, from broad to narrow.
        observed: the snapshot, with the domains that may come.
        unit: the number of the unit.
    """
    domains, order = observed.elastic.get(spec.topology.name or "", ()), list(levels)
    asked = {spec.topology.required, *(role.topology.required for role in spec.roles if role.name in pods)} - {None}
    if not domains or not pods or not asked or not asked <= levels.keys():
        return
    narrowest = max(order.index(level) for level in asked if level)
    shapes = {shape_of(pod) for replicas in pods.values() for replica in replicas for pod in replica}
    fits: dict[int, bool] = {}
    first = unit % len(domains)
    for domain in (*domains[first:], *domains[:first]):
        # Domains of one declaration differ in their labels alone, which pods may select.
        if order.index(domain.level) < narrowest or not _admits(domain, shapes):
            continue
        if id(domain.kind) not in fits:
            fits[id(domain.kind)] = _fits(pods, domain)
        if fits[id(domain.kind)]:
            yield domain


def _admits(domain: ElasticDomain, shapes: Iterable[Shape]) -> bool:
    node = next(domain.make_nodes())
    return all(static_cause(shape, node) is None for shape in shapes)


def _fits(pods: Pods, domain: ElasticDomain) -> bool:
    inventory = Inventory()
    # The nodes are alike: no plan needs more of them than there are pods.
    for node in islice(domain.make_nodes(), sum(map(len, chain.from_iterable(pods.values())))):
        inventory.set_node(node)
    roles = tuple(
        RoleRequest(name, len(role_pods), len(role_pods), _replicas(role_pods)) for name, role_pods in pods.items()
    )
    return isinstance(plan_minimum(Gang("", "", 0, roles), inventory, _LIMIT, reasons=False), Plan)


def _replicas(replicas: Sequence[Sequence[core.Pod]]) -> tuple[ReplicaRequest, ...]:
    return tuple(
        ReplicaRequest(
            number,
            tuple(
                PodRequest(pod.metadata.uid, index, shape_of(pod), meta=pod.metadata) for index, pod in enumerate(pods)
            ),
        )
        for number, pods in enumerate(replicas)
    )
