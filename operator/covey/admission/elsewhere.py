"""Another domain for a unit whose surplus is stuck in the one that a required level pins it to: pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from covey.admission.growth import rename_pods, without_place
from covey.admission.reprieve import least_of
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import sum_requests
from covey.placement.model import Gang, Path, Plan, RoleRequest, Shape, where
from covey.placement.planner import plan_minimum
from covey.placement.question.demands import unit_anchor

#: What keys of pods begin with that stand for pods elsewhere.
MOVED = "moved/"


def plan_elsewhere(gang: Gang, inventory: Inventory) -> Plan | None:
    """Plan all replicas of a unit, its surplus too, into another domain, while they hold what they have; None without a plan.

    Roles that need not follow the unit stay where they are.

    Args:
        gang: the unit; its minimum has its places.
        inventory: what is free.
    """
    topology = inventory.topologies.get(gang.topology)
    if gang.required is None or topology is None:
        return None
    depth = topology.depth(gang.required)
    anchor = unit_anchor(gang, inventory, depth)
    tree = inventory.trees[gang.topology]
    if anchor is None or anchor not in tree.by_path:
        return None
    moving = {role.name for role in gang.roles if role.follow_unit}
    pods = Counter[Shape](
        pod.shape for role in gang.roles if role.name in moving for replica in role.replicas for pod in replica.pods
    )
    wanted = sum_requests(pods).items()
    others = (domain for domain in tree.at(depth) if domain.path != anchor)
    if not any(all(domain.free.get(name, 0) >= amount for name, amount in wanted) for domain in others):
        return None  # most of the time
    closed = dict.fromkeys(tree.by_path[anchor].nodes, "is where the unit is")

    def ask(role: RoleRequest) -> RoleRequest:
        if role.name in moving:
            replicas = tuple(rename_pods(without_place(replica), f"{MOVED}{{}}".format) for replica in role.replicas)
        else:
            replicas = tuple(replica for replica in role.replicas if replica.placed)
        count = len(replicas)
        return replace(role, replicas=replicas, minimum=count, desired=count, missing=None, free=False)

    roles = tuple(map(ask, gang.roles))
    asked = replace(gang, roles=roles, excluded_nodes={**gang.excluded_nodes, **closed})
    answer = plan_minimum(least_of(asked), inventory, reasons=False)
    return answer if isinstance(answer, Plan) else None


def domain_of(plan: Plan, gang: Gang) -> Path:
    """The domain of a unit's required level in which a plan has it."""
    return next((domain.path for domain in plan.placement if domain.level == gang.required), ())


def tell_elsewhere(gang: Gang, inventory: Inventory) -> str:
    """Say which domain would hold all of a unit whose surplus is stuck; empty where none would."""
    plan = plan_elsewhere(gang, inventory)
    if plan is None:
        return ""
    path = where(domain_of(plan, gang))
    return (
        f"{gang.required} {path} would hold all of the unit, which does not move by itself:"
        f" covey plan --cluster --defrag --for {gang.namespace}/{gang.name} has the moves"
    )
