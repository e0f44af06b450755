"""Demands of a gang: what is still to be placed of it, and what its placed members fix.

Exactly ``minimum`` replicas of a role count as the minimum: those that are placed, then those that are partly placed,
then the lowest numbers. A replica that is partly placed keeps its domain: its missing pods are a fixed demand there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Path, PodRequest, ReplicaRequest, RoleRequest, Rule, Shape


@dataclass(frozen=True, slots=True)
class Demand:
    """A replica that lacks places. ``minimum``: the gang cannot start without it."""

    role: int
    replica: ReplicaRequest
    minimum: bool

    @property
    def missing(self) -> tuple[PodRequest, ...]:
        """The pods without a node."""
        return tuple([pod for pod in self.replica.pods if pod.node is None])

    @property
    def partial(self) -> bool:
        """Tell whether some pods of the replica are placed already."""
        return [pod.node for pod in self.replica.pods].count(None) < len(self.replica.pods)


def minimum_of(role: RoleRequest) -> frozenset[int]:
    """The numbers of the replicas that count as the role's minimum."""
    if not 0 < role.minimum < len(role.replicas):
        return frozenset(replica.replica for replica in role.replicas) if role.minimum else frozenset()

    def rank(replica: ReplicaRequest) -> tuple[bool, bool, bool, int]:
        without = [pod.node for pod in replica.pods].count(None)
        return (without > 0, without == len(replica.pods), replica.replica not in role.first, replica.replica)

    ranked = sorted(role.replicas, key=rank)
    return frozenset(replica.replica for replica in ranked[: role.minimum])


def minimum_replicas(role: RoleRequest) -> list[ReplicaRequest]:
    """The replicas that count as the role's minimum."""
    numbers = minimum_of(role)
    return [replica for replica in role.replicas if replica.replica in numbers]


def followers(gang: Gang) -> list[int]:
    """The roles that must lie in the unit's domain."""
    return [i for i, role in enumerate(gang.roles) if role.follow_unit]


def minimum_demands(gang: Gang) -> list[Demand]:
    """Return what the minimum lacks, together with what is marked to come with it; by role, then number."""
    minimum = {(i, number) for i, role in enumerate(gang.roles) for number in minimum_of(role)}
    missing = [(i, r) for i, role in enumerate(gang.roles) for r in role.replicas if not r.placed]
    marks = {r.together for i, r in missing if r.together is not None and (i, r.replica) in minimum}
    return [Demand(i, r, minimum=True) for i, r in missing if (i, r.replica) in minimum or r.together in marks]


def surplus_demands(gang: Gang) -> list[Demand]:
    """Return what is missing beyond `minimum_demands` and may come now.

    The order is by role, partly placed replicas first, then by number.

    What is surplus of a replica may come once that one is placed.
    """
    needed = {(demand.role, demand.replica.replica) for demand in minimum_demands(gang)}
    whole = {(role.name, replica.replica) for role in gang.roles for replica in role.replicas if replica.placed}
    rest = [
        Demand(i, replica, minimum=False)
        for i, role in enumerate(gang.roles)
        for replica in role.replicas
        if not replica.placed and (i, replica.replica) not in needed and whole.issuperset(replica.after)
    ]
    return sorted(rest, key=lambda d: (d.role, not d.partial, d.replica.replica))


def in_view(gang: Gang) -> list[Demand]:
    """The surplus that a domain for the minimum is chosen with: whole replicas that may come as soon as it is there.

    What must lie next to pods that have no place yet is not among it, unless its rule holds those pods too.
    """
    whole = {(role.name, replica.replica) for role in gang.roles for replica in role.replicas if replica.placed}
    soon_whole = whole | {(gang.roles[d.role].name, d.replica.replica) for d in minimum_demands(gang)}
    beside = {member for rule in gang.rules if rule.beside for member in rule.members}
    soon = [
        Demand(i, replica, minimum=False)
        for i, role in enumerate(gang.roles)
        for replica in role.replicas
        if not replica.placed
        and not whole.issuperset(replica.after)
        and soon_whole.issuperset(replica.after)
        and (role.name, replica.replica) not in beside
    ]
    surplus = [demand for demand in surplus_demands(gang) if not demand.partial]
    return sorted([*surplus, *soon], key=lambda d: (d.role, d.replica.replica))


def lacking_pods(gang: Gang) -> Counter[Shape]:
    """Count the pods, by shape, that the gang lacks in its unit's domain: the whole of what is asked for.

    Replicas that are not created yet are taken to be like the last one of their role.
    """
    shapes = Counter[Shape]()
    for role in (gang.roles[i] for i in followers(gang)):
        shapes.update(pod.shape for replica in role.replicas for pod in replica.pods if pod.node is None)
        for pod in role.replicas[-1].pods if role.replicas else ():
            shapes[pod.shape] += max(role.desired - len(role.replicas), 0)
    return +shapes


def note_outstanding(gang: Gang | None, inventory: Inventory, unit: Hashable) -> None:
    """Note in an inventory what a unit lacks in the domain that its required level pins it to.

    Args:
        gang: the unit as it is placed now; None where nothing can come of what it lacks.
        inventory: what plans are made from.
        unit: names the unit.
    """
    path, pods = None, Counter[Shape]()
    if gang is not None and gang.required is not None and gang.topology in inventory.topologies:
        path = unit_anchor(gang, inventory, inventory.topologies[gang.topology].depth(gang.required))
        pods = lacking_pods(gang)
    if gang is None or not path or not pods:
        inventory.outstanding.forget(unit)
    else:
        inventory.outstanding.note(unit, gang.topology, path, pods)


def admitted_counts(gang: Gang) -> list[int]:
    """Count the replicas of each role that are placed whole."""
    return [sum(replica.placed for replica in role.replicas) for role in gang.roles]


def common_domain(paths: Iterable[Path], depth: int) -> Path | None:
    """The domain of a depth that holds these nodes; None when none of them has one.

    Labels may have moved under placed pods; then the domain with the most of them counts, the first among equals.
    """
    counts = Counter(
        path[: depth + 1] for path in paths if len(path) > depth and (depth < 0 or path[depth] is not None)
    )
    if not counts:
        return None
    return min(counts, key=lambda path: (-counts[path], [value or "" for value in path]))


def placed_paths(gang: Gang, inventory: Inventory, roles: Iterable[int]) -> list[Path]:
    """The full paths of the nodes, as far as they still exist, on which these roles' pods are placed."""
    return [
        inventory.path(gang.topology, pod.node)
        for i in roles
        for replica in gang.roles[i].replicas
        for pod in replica.pods
        if pod.node is not None and pod.node in inventory.nodes
    ]


def replica_paths(gang: Gang, inventory: Inventory, replica: ReplicaRequest) -> list[Path]:
    """The full paths of the nodes, as far as they still exist, of one replica's placed pods."""
    nodes = [pod.node for pod in replica.pods if pod.node is not None and pod.node in inventory.nodes]
    return [inventory.path(gang.topology, node) for node in nodes]


def minimum_paths(gang: Gang, inventory: Inventory, roles: Iterable[int]) -> list[Path]:
    """The full paths of the nodes, as far as they still exist, of the minimum's placed pods of these roles."""
    replicas = [replica for i in sorted(roles) for replica in minimum_replicas(gang.roles[i])]
    return [path for replica in replicas for path in replica_paths(gang, inventory, replica)]


def rule_paths(gang: Gang, inventory: Inventory, rule: Rule, *, minimum: bool = False) -> list[Path]:
    """Return the full paths of the nodes, as far as they still exist, of a rule's placed pods, ``beside`` included.

    With ``minimum`` of its members only those that count as their role's minimum.
    """
    beside = [pod for pod in rule.beside if pod.node is not None]
    own = set(rule.members)
    for role in gang.roles:
        if not any(name == role.name for name, _ in own):
            continue
        numbers = minimum_of(role) if minimum else None
        for replica in role.replicas:
            if (role.name, replica.replica) in own and (numbers is None or replica.replica in numbers):
                beside += [pod for pod in replica.pods if pod.node is not None]
    nodes = [pod.node for pod in beside if pod.node is not None and pod.node in inventory.nodes]
    return [inventory.path(gang.topology, node) for node in nodes]


def together(parts: Iterable[Sequence[Path]], depth: int) -> bool:
    """Tell whether no part straddles domains of a depth, nor lies where the level is missing."""
    return all(
        len({path[: depth + 1] for path in part}) <= 1 and all(path[depth] is not None for path in part)
        for part in parts
    )


def place(gang: Gang, nodes: Mapping[str, str]) -> Gang:
    """The gang with these pods (by key) on these nodes."""
    return replace(
        gang,
        roles=tuple(_placed_role(role, nodes) for role in gang.roles),
        rules=tuple(_placed_rule(rule, nodes) for rule in gang.rules),
    )


def _placed_rule(rule: Rule, nodes: Mapping[str, str]) -> Rule:
    if not any(pod.key in nodes for pod in rule.beside):
        return rule
    return replace(rule, beside=tuple(replace(pod, node=nodes.get(pod.key, pod.node)) for pod in rule.beside))


def _placed_role(role: RoleRequest, nodes: Mapping[str, str]) -> RoleRequest:
    if not any(pod.key in nodes for replica in role.replicas for pod in replica.pods):
        return role
    replicas = tuple(
        replace(r, pods=tuple(replace(pod, node=nodes.get(pod.key, pod.node)) for pod in r.pods)) for r in role.replicas
    )
    return replace(role, replicas=replicas)


def unit_anchor(gang: Gang, inventory: Inventory, depth: int) -> Path | None:
    """The domain of a depth that the unit's placed members lie in."""
    return common_domain(placed_paths(gang, inventory, followers(gang)), depth)
