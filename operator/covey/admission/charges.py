"""The charges of a unit: its minimum, and each surplus replica, from where its pods have their nodes. Pure.

Nodes are filed under the flavors of a queue, whatever is charged there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from covey.admission.ledger import NOT_YET, Amounts, Charge, Flavor, Ledger, Policy, Pool, flavor_of
from covey.admission.losses import Hold, Place, place_of, roles_by_leaf
from covey.admission.nodes import Key
from covey.admission.roles import Member, Replica
from covey.admission.tree import Unit, minimum_replicas
from covey.api import core
from covey.api.constants import ADMITTED

#: A replica: its PodGroup, and its number.
_Which = tuple[str, str | None]


@dataclass(slots=True)
class Land:
    """The nodes of each flavor of queues that have the same ones; None for those of no flavor."""

    flavors: tuple[Flavor, ...]
    flavor: dict[str, Flavor | None] = field(default_factory=dict)
    nodes: dict[Flavor | None, set[str]] = field(default_factory=dict)

    def file_node(self, node: str, labels: Mapping[str, str]) -> bool:
        """File a node; returns whether it was in another flavor before."""
        new = flavor_of(self.flavors, labels)
        moved = node in self.flavor and self.flavor[node] != new
        self.drop(node)
        self.flavor[node] = new
        self.nodes.setdefault(new, set()).add(node)
        return moved

    def drop(self, node: str) -> None:
        """Take a node out of those where pods may go; what is charged there stays where it was."""
        for each in self.nodes.values():
            each.discard(node)


@dataclass(frozen=True, slots=True)
class Ground:
    """The facts on which a unit's charges depend, beside the unit.

    ``place``: the node that a pod has. ``flavor``: of a node. ``requests``: of a pod. ``held``: the room that is held for
    pods of the unit that were lost, or will be for those that are being deleted.
    """

    policy: Policy
    place: Callable[[core.Pod], str | None]
    flavor: Callable[[str], Flavor | None]
    requests: Callable[[core.Pod], Iterable[tuple[str, int]]]
    held: Sequence[Hold] = ()
    priority: int = 0


def charges(unit: Unit, ground: Ground) -> tuple[Charge, ...]:
    """The charges of a unit."""
    minimum, spare = Counter[Pool](), Counter[Pool]()
    found: list[Charge] = []
    there = {place_of(pod)[:2] for pod in unit.pods() if ground.place(pod) is not None} if ground.held else set()
    held, lost = _held_replicas(unit, ground, there), _held_places(ground, there)
    for role in unit.roles:
        least = {id(each) for each in minimum_replicas(role, lambda pod: ground.place(pod) is not None)}
        lacking = role.minimum
        for replica in role.replicas:
            amounts, lacks = _of_replica(replica, ground)
            places = {place_of(pod) for pod in replica.pods} if lost else set[Place]()
            for which in {place[:2] for place in places} & lost.keys():
                for place, more in lost[which]:
                    amounts.update(more if place not in places else {})
                    lacks.update(more if place not in places else {})
            if amounts and id(replica) in least:
                lacking -= 1
                minimum.update(amounts)
                spare.update(lacks)
            elif amounts:
                newest = max(pod.metadata.creation_timestamp for pod in replica.pods)
                found.append(_charge(unit, ground, (role.name, replica.number), (amounts, lacks), newest))
        for number, amounts in enumerate(held.get(role.name, ()), start=1):
            if number <= lacking:
                minimum.update(amounts)
                spare.update(amounts)
            else:
                found.append(_charge(unit, ground, (role.name, -number), (amounts, amounts), ""))
    if minimum:
        admitted = core.condition(unit.root.status.conditions, ADMITTED)
        since = admitted.last_transition_time if admitted is not None and admitted.status == "True" else None
        found.insert(0, _charge(unit, ground, None, (minimum, spare), since or NOT_YET))
    return tuple(found)


def charge_left(root: Key, pods: Iterable[core.Pod], ground: Ground) -> tuple[Charge, ...]:
    """The charge of pods of which groups are gone: as of one replica, which cannot be taken by itself."""
    amounts = Counter[Pool]()
    for pod in pods:
        node = ground.place(pod)
        flavor = ground.flavor(node) if node is not None else None
        amounts.update(dict(ground.policy.chargeable(flavor, ground.requests(pod))) if flavor is not None else {})
    charged = tuple(sorted(amounts.items()))
    return (Charge(ground.policy.name, root, ("", -1), charged, priority=ground.priority),) if charged else ()


def _held_replicas(unit: Unit, ground: Ground, there: Container[_Which]) -> Mapping[str, list[Counter[Pool]]]:
    """Room that is held for replicas of which no pod has a node, by role."""
    lost: dict[tuple[str, _Which], Counter[Pool]] = {}
    roles = roles_by_leaf(unit) if ground.held else {}
    for hold in ground.held:
        flavor, role = ground.flavor(hold.node), roles.get(hold.place.leaf)
        if flavor is not None and role is not None and hold.place[:2] not in there:
            amounts = lost.setdefault((role.name, hold.place[:2]), Counter())
            amounts.update(dict(ground.policy.chargeable(flavor, hold.shape.requests)))
    found: dict[str, list[Counter[Pool]]] = {}
    for (name, _), amounts in lost.items():
        found.setdefault(name, []).extend([amounts] if amounts else [])
    return found


def _held_places(ground: Ground, there: Container[_Which]) -> Mapping[_Which, list[tuple[Place, Amounts]]]:
    """The room that is held for lost pods of replicas of which others have their nodes."""
    found: dict[_Which, list[tuple[Place, Amounts]]] = {}
    for hold in ground.held:
        flavor = ground.flavor(hold.node)
        if flavor is not None and hold.place[:2] in there:
            amounts = dict(ground.policy.chargeable(flavor, hold.shape.requests))
            found.setdefault(hold.place[:2], []).append((hold.place, amounts))
    return found


def _charge(unit: Unit, ground: Ground, member: Member | None, amounts: tuple[Amounts, Amounts], since: str) -> Charge:
    charged, spare = (tuple(sorted(each.items())) for each in amounts)
    return Charge(ground.policy.name, unit.key, member, charged, spare, ground.priority, since or NOT_YET)


def _of_replica(replica: Replica, ground: Ground) -> tuple[Counter[Pool], Counter[Pool]]:
    """The charge of a replica, and the part of it that is for pods without a node; nothing where none has one."""
    nodes = [ground.place(pod) for pod in replica.pods]
    flavors = [None if node is None else ground.flavor(node) for node in nodes]
    known = next((each for each in flavors if each is not None), None)
    amounts, spare = Counter[Pool](), Counter[Pool]()
    for pod, node, flavor in zip(replica.pods, nodes, flavors, strict=True):
        where = known if node is None else flavor
        for pool, amount in ground.policy.chargeable(where, ground.requests(pod)) if where is not None else ():
            amounts[pool] += amount
            spare[pool] += amount if node is None else 0
    return amounts, +spare


def charges_of_pods(units: Iterable[Unit], ledger: Ledger) -> dict[str, Charge]:
    """Charges by the UID of a pod of some units: that of its replica, or of the minimum."""
    found: dict[str, Charge] = {}
    for unit in units:
        of = {each.member: each for each in ledger.of(unit.key)}
        for role in unit.roles:
            for replica in role.replicas:
                charge = of.get((role.name, replica.number)) or of.get(None)
                found |= {pod.metadata.uid: charge for pod in replica.pods if charge is not None}
    return found
