"""Capacity that surplus may take although minimums are about to come, as it keeps none of them from its own: pure.

Each of those minimums is given wholly free nodes that nobody else needs: one for each of its pods, in a wholly free
domain of the level that it requires. A pod of surplus breaks into one of them at most, so as many pods as there are
such nodes, or domains, beyond what the minimums need may go anywhere. That is a lower bound, and 0 where it says nothing,
as of several levels. Pods of a minimum that nobody has created yet are taken for like those that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice

from covey.admission.fit_counts import room_for
from covey.admission.tree import Unit
from covey.placement.anti_affinity import is_host
from covey.placement.cluster.domains import NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import with_terms
from covey.placement.model import Gang, PodRequest, Shape


def count_spare(coming: Collection[tuple[Unit, Gang]], inventory: Inventory, most: int) -> int:
    """Count the pods that may take any place and keep none of these minimums from its own, up to ``most``.

    Args:
        coming: units whose minimum has no place, and their gangs.
        inventory: what is free.
        most: where to stop counting.
    """
    gangs = [with_terms(gang, inventory.terms) for _, gang in coming]
    demands = {(gang.topology, gang.required) if gang.required else None for gang in gangs}
    shapes = {pod.shape for gang in gangs for pod in _minimum_pods(gang)}
    if len(demands) != 1 or not shapes or any(unit.absent for unit, _ in coming) or not all(map(_is_plain, gangs)):
        return 0
    sizes = [
        sum(role.minimum * max((replica.size for replica in role.replicas), default=1) for role in unit.roles)
        for unit, _ in coming
    ]
    closed = {name for gang in gangs for name in gang.excluded_nodes}

    def usable(state: NodeState) -> bool:
        return not state.in_use and state.name not in closed and all(room_for(state, shape) > 0 for shape in shapes)

    (demand,) = demands
    if demand is None:
        needed, found = sum(sizes), (state for state in inventory.nodes.values() if usable(state))
        return max(0, sum(1 for _ in islice(found, needed + most)) - needed)
    domains = _find_free_domains(inventory, *demand, max(sizes), usable)
    return max(0, sum(1 for _ in islice(domains, len(gangs) + most)) - len(gangs))


def _find_free_domains(
    inventory: Inventory, topology: str, level: str, size: int, usable: Callable[[NodeState], bool]
) -> Iterator[None]:
    """Yield once for each wholly free domain of a level with so many usable nodes."""
    tree = inventory.trees[topology]
    for domain in tree.at(tree.topology.depth(level)):
        nodes = (state for state in domain.nodes.values() if usable(state))
        if not domain.broken and sum(1 for _ in islice(nodes, size)) == size:
            yield


def _minimum_pods(gang: Gang) -> Iterator[PodRequest]:
    """The pods that exist of the roles of the minimum; those to come are taken for like them."""
    return (pod for role in gang.roles if role.minimum for replica in role.replicas for pod in replica.pods)


def _is_plain(gang: Gang) -> bool:
    """Tell whether a gang asks for nothing but nodes for its pods, in one domain of the unit's level."""
    if gang.guessed or any(rule.required for rule in gang.proximity) or any(rule.required for rule in gang.rules):
        return False
    if gang.spread is not None and gang.spread.required:
        return False
    for role in (role for role in gang.roles if role.minimum):
        if role.required or role.free or any(replica.parts for replica in role.replicas):
            return False
    pods = [*_minimum_pods(gang)]
    return all(_is_free(pod.shape) for pod in pods) and not (gang.required and any(pod.node for pod in pods))


def _is_free(shape: Shape) -> bool:
    """Tell whether a pod may go to a node whatever lies on others."""
    return not (shape.clique or shape.exclusive_clique or shape.pod_spread or shape.wide_terms) and all(
        map(is_host, shape.matched)
    )
