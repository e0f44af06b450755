"""Growth of units, as opposed to replacement, and what of a gang would have to go for the rest to fit: pure.

Room that is kept for a gang (``reservations``) is closed to growth alone. What a unit had when the keeping began it may
have again; and a replica that takes the place of another one, which still runs, is no growth either: the surge of a
rollout, the successor of a replica that drains or whose node is about to go. Successors of what a claim took are growth:
the room was made for somebody else.

Bound members pin their domains, and a plan never moves them. Where the rest finds no room there, only whoever made the
pods can help, by giving some up. What to give up is said here: nothing, if that would not help; else the roles that
have fewer replicas than their minimum, if that is enough; else all of the unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from covey.admission import losses
from covey.admission.gangs import wants_minimum
from covey.admission.roles import Replica
from covey.admission.tree import Unit, replica_met
from covey.api import core
from covey.api.constants import LABEL_DRAINING, LABEL_REVISION
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Part, Plan, PodRequest, ReplicaRequest, RoleRequest, Shape
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.refusal.exclusions import RESERVED

#: Role → replicas that have their nodes.
Footprint = Mapping[str, int]
NO_PLACES: Final[Mapping[str, str]] = {}


def footprint(unit: Unit) -> Footprint:
    """Count the replicas of a unit that are bound and give way to nobody, by role."""

    def stays(pod: core.Pod) -> bool:
        return podstate.occupies_node(pod) and not podstate.gives_way(pod)

    counts: Counter[str] = Counter()
    for role in unit.roles:
        counts[role.name] += sum(replica_met(replica, stays) for replica in role.replicas)
    return counts


def without_growth(
    gang: Gang,
    unit: Unit,
    had: Footprint,
    leaves: Callable[[str], bool],
    claimed: Collection[str] = (),
    assumed: Mapping[str, str] = NO_PLACES,
) -> Gang:
    """A gang with no more surplus than replaces something.

    Args:
        gang: the gang whose surplus is to be planned.
        unit: its unit.
        had: what the unit had when the keeping began, without what claims took.
        leaves: whether a node is about to go.
        claimed: UIDs of pods that give way to others; those that are marked for it do in any case.
        assumed: nodes decided a moment ago, by the pod's UID: who has a place needs none that is not growth.
    """
    return with_surplus(gang, _allowed_replicas(unit, had, leaves, claimed, assumed))


def with_surplus(gang: Gang, allowed: Mapping[str, int]) -> Gang:
    """A gang with what has its places, and so many replicas of each role that wait."""
    roles = []
    for role in gang.roles:
        room = allowed.get(role.name, 0)
        placed = [replica for replica in role.replicas if replica.placed]
        waiting = [replica for replica in role.replicas if not replica.placed]
        chosen = {replica.replica for replica in [*placed, *waiting[: max(room, 0)]]}
        roles.append(replace(role, replicas=tuple(replica for replica in role.replicas if replica.replica in chosen)))
    return replace(gang, roles=tuple(roles))


def _allowed_replicas(
    unit: Unit,
    had: Footprint,
    leaves: Callable[[str], bool],
    claimed: Collection[str],
    assumed: Mapping[str, str],
) -> Mapping[str, int]:
    """Replicas of each role that may get places without being growth."""
    allowed: dict[str, int] = {}

    def has_place(pod: core.Pod) -> bool:
        return podstate.place_of(pod, assumed) is not None

    def gives_way(pod: core.Pod) -> bool:
        return pod.metadata.uid in claimed or podstate.gives_way(pod)

    for role in unit.roles:
        there = [replica for replica in role.replicas if replica_met(replica, has_place)]
        placed = [replica for replica in there if not any(map(gives_way, replica.pods))]
        waiting = [replica for replica in role.replicas if not replica_met(replica, has_place)]
        revisions = {pod.metadata.label(LABEL_REVISION) for replica in waiting for pod in replica.pods}
        going = sum(_goes(replica, revisions, leaves, assumed) for replica in placed)
        lost = sum(any(map(losses.room_said, replica.pods)) for replica in waiting)
        allowed[role.name] = max(had.get(role.name, 0) + going - len(placed), lost)
    return allowed


def _goes(
    replica: Replica, revisions: set[str | None], leaves: Callable[[str], bool], assumed: Mapping[str, str]
) -> bool:
    """A replica that has its places is about to give them up."""
    return any(
        pod.metadata.deletion_timestamp is not None
        or podstate.drains_until(pod) is not None
        or _is_old(pod, revisions)
        or leaves(podstate.place_of(pod, assumed) or "")
        for pod in replica.pods
    )


def _is_old(pod: core.Pod, revisions: set[str | None]) -> bool:
    """Successors of another revision wait."""
    return bool(revisions) and pod.metadata.label(LABEL_REVISION) not in revisions


def find_room_beside(gang: Gang, inventory: Inventory, *, freeing: Collection[str], surplus: bool) -> frozenset[str]:
    """Nodes where successors would lie once others are gone; none where these leave enough room, or too little.

    Args:
        gang: with the successors, and nothing else to be placed.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        freeing: keys of the holders that go.
        surplus: whether the successors are surplus.
    """
    home = {hold[0] for key in freeing if (hold := inventory.hold_of(key)) is not None}
    beyond = dict.fromkeys(inventory.nodes.keys() - home, RESERVED)
    planner = plan_surplus if surplus else plan_minimum

    def find_nodes(excluded: Mapping[str, str]) -> list[str]:
        answer = planner(replace(gang, excluded_nodes={**excluded, **gang.excluded_nodes}), inventory)
        return [assignment.node for assignment in answer.assignments] if isinstance(answer, Plan) else []

    with overlay(inventory) as changes:
        changes.remove(freeing)
        nodes = find_nodes({})
        return frozenset() if home.issuperset(nodes) or len(find_nodes(beyond)) >= len(nodes) else frozenset(nodes)


#: The roles that have fewer replicas than their minimum, and the whole unit: reasons of the condition ``Movable``.
ROLE: Final = "Role"
UNIT: Final = "Unit"


def smallest_move(gang: Gang, inventory: Inventory, bound: Collection[str]) -> str:
    """Find what has to be given up for the gang to fit: ``Role``, ``Unit``, or nothing where that would not help.

    Args:
        gang: a gang whose minimum was refused.
        inventory: what is free; nobody else may look at it meanwhile, and it is as it was afterwards.
        bound: keys of its pods that are bound: only they can be given up.
    """
    short = {role.name for role in gang.roles if sum(replica.placed for replica in role.replicas) < role.minimum}
    every = {role.name for role in gang.roles}
    some, all_of_it = _bound_pods_of(gang, bound, short), _bound_pods_of(gang, bound, every)
    for step, keys in ((ROLE, some), (UNIT, all_of_it)):
        if not keys or (step == ROLE and keys == all_of_it):
            continue
        with _given_up(gang, inventory, keys) as freed:
            if isinstance(plan_minimum(freed, inventory), Plan):
                return step
    return ""


def _bound_pods_of(gang: Gang, bound: Collection[str], names: Collection[str]) -> set[str]:
    """The bound pods of some roles, by key."""
    replicas = (replica for role in gang.roles if role.name in names for replica in role.replicas)
    return {pod.key for replica in replicas for pod in replica.pods if pod.key in bound}


@contextmanager
def _given_up(gang: Gang, inventory: Inventory, keys: Collection[str]) -> Iterator[Gang]:
    """The gang as if these pods had no nodes, and the inventory without them."""
    with overlay(inventory) as changes:
        changes.remove(keys)
        yield replace(gang, roles=tuple(_without_nodes(role, keys) for role in gang.roles))


def _without_nodes(role: RoleRequest, keys: Collection[str]) -> RoleRequest:
    return replace(
        role,
        replicas=tuple(
            replace(replica, pods=tuple(replace(pod, node=None) if pod.key in keys else pod for pod in replica.pods))
            for replica in role.replicas
        ),
    )


@dataclass(frozen=True, slots=True)
class Site:
    """One unit of the resource, as its surplus would be planned now.

    ``lacks``: groups or pods of its minimum do not exist yet.
    """

    gang: Gang
    lacks: bool = False

    @property
    def is_open(self) -> bool:
        """Its minimum has its places, so that more may come."""
        return not self.lacks and not wants_minimum(self.gang)

    def request(self, role: str) -> RoleRequest | None:
        """The request of the unit for a role; None where it has none of that name."""
        return next((candidate for candidate in self.gang.roles if candidate.name == role), None)


@dataclass(frozen=True, slots=True)
class Own:
    """The role in one unit: how many of its replicas are assigned nodes, and those that wait for one by themselves."""

    request: RoleRequest
    placed: int
    waiting: tuple[ReplicaRequest, ...]

    @classmethod
    def of(cls, request: RoleRequest) -> Own:
        """The role as it is asked for now."""
        staying = [replica for replica in request.replicas if not is_draining(replica)]
        # What comes together with others, or after others, is not placed alone.
        waiting = [
            replica for replica in staying if not replica.placed and replica.together is None and not replica.after
        ]
        waiting.sort(key=lambda replica: (all(pod.node is None for pod in replica.pods), replica.replica))
        return cls(request, sum(replica.placed for replica in staying), tuple(waiting))

    def candidates(self, count: int, template: ReplicaRequest) -> list[ReplicaRequest]:
        """So many replicas that might come: those that wait, then further ones."""
        own = list(self.waiting[:count])
        return own + [self.clone(number, template) for number in range(count - len(own))]

    def clone(self, number: int, template: ReplicaRequest) -> ReplicaRequest:
        """A further replica; ``number`` tells it from others."""
        last = max((replica.replica for replica in self.request.replicas), default=-1)
        keys = {pod.key: f"more/{last + 1 + number}/{place}" for place, pod in enumerate(template.pods)}
        return replace(rename_pods(template, keys.__getitem__), replica=last + 1 + number)

    def asking(self, site: Site, candidates: Sequence[ReplicaRequest], *, must: bool = False) -> Gang:
        """The unit's gang with these candidates and nothing else to be placed; ``must``: all of them or none."""
        gang = site.gang
        asked, known = (
            {candidate.replica for candidate in candidates},
            {replica.replica for replica in self.request.replicas},
        )
        there = [
            kept
            for replica in self.request.replicas
            if replica.replica not in asked and (kept := _placed_part(replica))
        ]
        replicas = (*there, *candidates)
        grown = replace(
            self.request,
            replicas=replicas,
            minimum=len(replicas) if must else self.request.minimum,
            desired=max(self.request.desired, len(replicas)),
            missing=None,
        )
        roles = tuple(grown if role is self.request else _without_waiting(role) for role in gang.roles)
        new = [(self.request.name, number) for number in sorted(asked - known)]
        beside = {(self.request.name, number) for number in known}
        rules = tuple(
            replace(rule, members=(*rule.members, *new)) if beside and beside.issubset(rule.members) else rule
            for rule in gang.rules
        )
        return replace(gang, roles=roles, rules=rules)


def template(requests: Sequence[RoleRequest], shape: Callable[[PodRequest], Shape]) -> ReplicaRequest | None:
    """The model of a further replica that is asked for alone: the one that was made last. None without any.

    Args:
        requests: the role in each unit.
        shape: of the pod of a further replica, from that of one that exists.
    """
    known = [replica for request in requests for replica in request.replicas if replica.pods]
    if not known:
        return None
    youngest = max(known, key=lambda replica: (_creation_time(replica), -replica.replica))
    return without_place(replace(youngest, pods=tuple(replace(pod, shape=shape(pod)) for pod in youngest.pods)))


def without_place(replica: ReplicaRequest) -> ReplicaRequest:
    """A replica to be placed alone, as if none of it had a node."""
    return replace(replica, pods=tuple(replace(pod, node=None) for pod in replica.pods), together=None, after=())


def _creation_time(replica: ReplicaRequest) -> str:
    return max(pod.meta.creation_timestamp if pod.meta is not None else "" for pod in replica.pods)


def rename_pods(replica: ReplicaRequest, rename: Callable[[str], str]) -> ReplicaRequest:
    """A replica whose pods have other keys."""

    def rename_part(part: Part) -> Part:
        return replace(part, pods=tuple(map(rename, part.pods)), parts=tuple(map(rename_part, part.parts)))

    pods = tuple(replace(pod, key=rename(pod.key)) for pod in replica.pods)
    return replace(replica, pods=pods, parts=tuple(map(rename_part, replica.parts)))


def is_draining(replica: ReplicaRequest) -> bool:
    """The replica is about to be taken away."""
    return any(pod.meta is not None and pod.meta.label(LABEL_DRAINING) == "true" for pod in replica.pods)


def _placed_part(replica: ReplicaRequest) -> ReplicaRequest | None:
    """The part of a replica that has its places; None for nothing."""
    if replica.placed:
        return replica
    pods = tuple(pod for pod in replica.pods if pod.node is not None)
    return replace(replica, pods=pods, together=None, parts=(), after=()) if pods else None


def _without_waiting(role: RoleRequest) -> RoleRequest:
    return replace(role, replicas=tuple(kept for replica in role.replicas if (kept := _placed_part(replica))))
