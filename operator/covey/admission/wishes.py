"""The parts of a gang that quota is asked for, its minimum and its surplus replica by replica, and what it lets them have.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from covey.admission.entitlement import Entitlement, PodsTogether, judge_minimum, judge_surplus, may_lie
from covey.admission.ledger import Amounts, Flavor, Ledger, Policy, Pool
from covey.admission.nodes import Key
from covey.placement.model import Gang, PodRequest, ReplicaRequest, RoleRequest, Shape
from covey.placement.question.demands import minimum_demands, surplus_demands
from covey.placement.refusal.exclusions import OVER_QUOTA

#: A replica that is asked for, and its role.
Asked = tuple[RoleRequest, ReplicaRequest]


def surplus_groups(gang: Gang) -> list[list[Asked]]:
    """The surplus that lacks places, in the planner's order: replicas that come together as one."""
    together: dict[object, list[Asked]] = {}
    for demand in surplus_demands(gang):
        role, replica = gang.roles[demand.role], demand.replica
        together.setdefault(replica.together or (role.name, replica.replica), []).append((role, replica))
    return list(together.values())


def surplus_pods(gang: Gang) -> list[PodRequest]:
    """All pods of a gang's surplus that lack places."""
    return [pod for members in surplus_groups(gang) for pod in missing_pods(members)]


def without(gang: Gang, out: Collection[tuple[str, int]]) -> Gang:
    """A gang without some replicas, by role and number."""
    return replace(
        gang,
        roles=tuple(
            replace(
                role, replicas=tuple(replica for replica in role.replicas if (role.name, replica.replica) not in out)
            )
            for role in gang.roles
        ),
    )


def missing_pods(members: Sequence[Asked]) -> list[PodRequest]:
    """The pods of some replicas that lack places."""
    return [pod for _, replica in members for pod in replica.pods if pod.node is None]


def shapes_of(pods: Sequence[PodRequest]) -> list[Shape]:
    """The shapes of some pods."""
    return [pod.shape for pod in pods]


def minimum_shapes(gang: Gang) -> list[Shape]:
    """The shapes of the pods that a minimum lacks; where any replicas will do, of those that ask for most."""
    found = [(demand.role, demand.missing) for demand in minimum_demands(gang)]
    shapes = [pod.shape for role, missing in found if not gang.roles[role].free for pod in missing]
    for number, role in enumerate(gang.roles):
        count = sum(other == number for other, _ in found)
        if role.free and count:
            rest = [shapes_of(missing_pods([(role, replica)])) for replica in role.replicas if not replica.placed]
            rest.sort(key=lambda shapes: sum(amount for shape in shapes for _, amount in shape.requests), reverse=True)
            shapes += [shape for shapes in rest[:count] for shape in shapes]
    return shapes


def is_charged(policy: Policy, shapes: Sequence[Shape]) -> bool:
    """Tell whether pods of some shapes are charged for anything on any flavor."""
    return any(True for shape in shapes for flavor in policy.flavors for _ in policy.chargeable(flavor, shape.requests))


def first_choice(policy: Policy, shapes: Sequence[Shape]) -> Amounts:
    """The charge of some pods, each on the first flavor that it may lie on."""
    amounts = Counter[Pool]()
    for shape in shapes:
        flavor = next((own for own in policy.flavors if may_lie(shape, own)), None)
        amounts.update(dict(policy.chargeable(flavor, shape.requests)) if flavor is not None else {})
    return amounts


def judge_gang(
    ledger: Ledger, queue: str, root: Key, gang: Gang, *, surplus: bool, free: bool, borrows: bool = True
) -> Entitlement | None:
    """Judge the minimum of a gang, or its surplus; None where it has no surplus that lacks places.

    Args:
        ledger: all charges.
        queue: of the unit.
        root: of the unit.
        gang: as it is to be planned.
        surplus: whether its minimum has its places.
        free: whether there are nodes of no flavor.
        borrows: whether it may have more than what is within nominal: it gives back what is borrowed.
    """
    own = ledger.of(root)
    if not surplus:
        minimum = next((charge for charge in own if charge.member is None), None)
        return judge_minimum(ledger, queue, minimum_shapes(gang), minimum, free=free, borrows=borrows)
    spare = {charge.member: dict(charge.spare) for charge in own}
    groups = {
        number: (
            members[0][0].name,
            PodsTogether(
                shapes_of(missing_pods(members)),
                sum((Counter(spare.get((r.name, replica.replica), {})) for r, replica in members), Counter()),
            ),
        )
        for number, members in enumerate(surplus_groups(gang))
    }
    return judge_surplus(ledger, queue, groups, free=free, borrows=borrows) if groups else None


def confine_gang(
    gang: Gang, entitled: Entitlement, nodes: Mapping[Flavor | None, Collection[str]], *, surplus: bool
) -> Gang:
    """The part of a gang for which there is quota, on the nodes where there is; ``nodes`` are those of each flavor."""
    closed = {node: OVER_QUOTA for flavor in entitled.closed for node in sorted(nodes.get(flavor, ()))}
    if closed:
        gang = replace(gang, excluded_nodes={**closed, **gang.excluded_nodes})
    if not surplus:
        return gang
    out = {
        (role.name, replica.replica)
        for number, members in enumerate(surplus_groups(gang))
        for role, replica in (members if number not in entitled.taken else ())
    }
    return without(gang, out) if out else gang


def count_room(ledger: Ledger, queue: str, shapes: Sequence[Shape], *, free: bool) -> int | None:
    """The most further replicas of these pods that quota leaves to a queue, whatever nodes there are; None for any.

    Args:
        ledger: all charges.
        queue: whose.
        shapes: of the pods of a replica.
        free: whether there are nodes of no flavor.
    """
    policy, room, total = ledger.policies[queue], ledger.room(queue), 0
    if free or not is_charged(policy, shapes):
        return None
    for flavor in policy.flavors:
        if all(may_lie(shape, flavor) for shape in shapes):
            need = Counter[Pool]()
            for shape in shapes:
                need.update(dict(policy.chargeable(flavor, shape.requests)))
            if not need:
                return None
            total += max(0, min(room[pool] // amount for pool, amount in need.items()))
    return total
