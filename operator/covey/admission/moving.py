"""Would a gang that found no room fit if it did not have to stay where its members are? Pure.

Bound members pin their domains, and a plan never moves them. Where the rest finds no room there, only whoever made the
pods can help, by giving some up. What to give up is said here: nothing, if that would not help; else the roles that have
fewer replicas than their minimum, if that is enough; else all of the unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, RoleRequest
from covey.placement.planner import LIMIT, plan_minimum

#: The roles that have fewer replicas than their minimum, and the whole unit: reasons of the condition ``Movable``.
ROLE: Final = "Role"
UNIT: Final = "Unit"


def smallest_move(gang: Gang, inventory: Inventory, bound: Collection[str], limit: int = LIMIT) -> str:
    """Find what has to be given up for the gang to fit: ``Role``, ``Unit``, or nothing where that would not help.

    Args:
        gang: a gang whose minimum was refused.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        bound: keys of its pods that are bound: only they can be given up.
        limit: see `plan_minimum`.
    """
    short = {role.name for role in gang.roles if sum(replica.placed for replica in role.replicas) < role.minimum}
    some, all_of_it = _held(gang, bound, short), _held(gang, bound, {role.name for role in gang.roles})
    for step, keys in ((ROLE, some), (UNIT, all_of_it)):
        if not keys or (step == ROLE and keys == all_of_it):
            continue
        with _given_up(gang, inventory, keys) as freed:
            if isinstance(plan_minimum(freed, inventory, limit), Plan):
                return step
    return ""


def _held(gang: Gang, bound: Collection[str], names: Collection[str]) -> set[str]:
    """The bound pods of some roles, by key."""
    replicas = (replica for role in gang.roles if role.name in names for replica in role.replicas)
    return {pod.key for replica in replicas for pod in replica.pods if pod.key in bound}


@contextmanager
def _given_up(gang: Gang, inventory: Inventory, keys: Collection[str]) -> Iterator[Gang]:
    """The gang as if these pods had no nodes, and the inventory without them."""
    pods = [pod for role in gang.roles for replica in role.replicas for pod in replica.pods if pod.key in keys]
    for pod in pods:
        inventory.release(pod.key)
    try:
        yield replace(gang, roles=tuple(_without_nodes(role, keys) for role in gang.roles))
    finally:
        for pod in pods:
            if pod.node is not None:
                inventory.hold(pod.key, pod.node, pod.shape, pod.meta)


def _without_nodes(role: RoleRequest, keys: Collection[str]) -> RoleRequest:
    return replace(
        role,
        replicas=tuple(
            replace(replica, pods=tuple(replace(pod, node=None) if pod.key in keys else pod for pod in replica.pods))
            for replica in role.replicas
        ),
    )


__all__ = ["ROLE", "UNIT", "smallest_move"]
