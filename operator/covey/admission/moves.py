"""Moves of replicas one after another, each from the state that those before it have left: pure.

A move is surge first: the successor of a replica has its places while the old one still holds its own, and only then the
old one leaves. So each prefix of the moves is a state that may stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from covey.admission.growth import rename_pods, without_place
from covey.admission.nodes import Key
from covey.admission.reprieve import Judge, least_of
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Member, Plan, ReplicaRequest, RoleRequest
from covey.placement.overlay import Overlay, overlay
from covey.placement.planner import LIMIT, plan_minimum

#: Plans of one sequence.
PLANS: Final = 256
#: The cause for which nodes are closed to successors.
KEPT: Final = "is to be free"


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A replica and the nodes of its pods, before and after; ``together`` where all of its unit moves at once."""

    unit: Key
    resource: str
    number: int
    role: str
    replica: int
    surplus: bool
    source: tuple[str, ...]
    target: tuple[str, ...]
    together: bool = False


class StuckError(Exception):
    """Some replica has no other place, or all plans were made."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        super().__init__()
        self.keys = frozenset(keys)


@dataclass(frozen=True, slots=True)
class Mover:
    """A replica that may move; ``keys`` are those of its pods."""

    unit: Key
    role: str
    replica: int
    keys: tuple[str, ...]
    devices: int
    surplus: bool


@dataclass(slots=True)
class Run:
    """Moves one after another, each from the state that those before it have left."""

    inventory: Inventory
    changes: Overlay
    gangs: dict[Key, Gang]
    movers: Mapping[str, Mover]
    #: The replicas that would have to leave for a gang to have room, but for some.
    helpers: Callable[[Gang, Collection[str]], Sequence[Mover]]
    plans: int = 0
    moves: list[ReplicaMove] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def clear(self, movers: Sequence[Mover], closed: Mapping[str, str], *, help_: bool = True) -> None:
        """Move all of some replicas, none of them to closed nodes.

        Raises:
            StuckError: one has no other place.
        """
        left = sorted(
            movers, key=lambda mover: (-mover.devices, -len(mover.keys), not mover.surplus, mover.unit, mover.role)
        )
        while left:
            stuck = [mover for mover in left if mover.keys[0] not in self.gone and not self._move(mover, closed)]
            if len(stuck) == len(left):
                self._make_room(stuck[0], closed, {key for mover in left for key in mover.keys}, help_=help_)
            left = stuck

    def _move(self, mover: Mover, closed: Mapping[str, str]) -> bool:
        """Move a replica, or its unit where it may not leave that."""
        gang = self.gangs[mover.unit]
        if self.try_move(mover.unit, {(mover.role, mover.replica)}, closed):
            return True
        every = {(role.name, replica.replica) for role in gang.roles for replica in role.replicas if replica.placed}
        fresh = all(pod.key in self.movers for role in gang.roles for replica in role.replicas for pod in replica.pods)
        return gang.required is not None and len(every) > 1 and fresh and self.try_move(mover.unit, every, closed)

    def _make_room(self, mover: Mover, closed: Mapping[str, str], spared: set[str], *, help_: bool) -> None:
        """Move others out of the way of a replica that has no other place yet."""
        asked = _ask(self.gangs[mover.unit], {(mover.role, mover.replica)}, closed)
        helpers = self.helpers(asked, spared | self.gone) if help_ and self.plans < PLANS else []
        if not helpers:
            raise StuckError(mover.keys)
        keys = [key for helper in helpers for key in helper.keys]
        with overlay(self.inventory) as kept:
            nodes = keep_room(asked, self.inventory, kept, keys)
        self.clear(helpers, {**closed, **dict.fromkeys(nodes, KEPT)}, help_=False)
        if not self._move(mover, closed):
            raise StuckError(mover.keys)

    def try_move(self, unit: Key, members: Collection[Member], closed: Mapping[str, str]) -> bool:
        """Move some replicas of a unit together; returns whether they have another place outside closed nodes.

        Raises:
            StuckError: all plans were made.
        """
        if self.plans >= PLANS:
            raise StuckError
        self.plans += 1
        gang = self.gangs[unit]
        asked = _ask(gang, members, closed)
        plan = plan_minimum(asked, self.inventory, reasons=False)
        if not isinstance(plan, Plan):
            return False
        nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
        roles = []
        for role, new in zip(gang.roles, asked.roles, strict=True):
            came = {replica.replica: replica for replica in new.replicas}
            replicas = []
            for moved in role.replicas:
                if (role.name, moved.replica) in members:
                    there = _placed_at(came[moved.replica], nodes)
                    self._record(unit, gang, role, (moved, there), together=len(members) > 1)
                    moved = there  # noqa: PLW2901 - the successor stands for it from here on
                replicas.append(moved)
            roles.append(replace(role, replicas=tuple(replicas)))
        self.gangs[unit] = replace(gang, roles=tuple(roles))
        return True

    def _record(
        self, unit: Key, gang: Gang, role: RoleRequest, pair: tuple[ReplicaRequest, ReplicaRequest], *, together: bool
    ) -> None:
        old, new = pair
        for pod in new.pods:
            assert pod.node is not None
            self.changes.hold(pod.key, pod.node, pod.shape, pod.meta)
        self.changes.remove(pod.key for pod in old.pods)
        self.gone |= {pod.key for pod in old.pods}
        surplus = sum(replica.placed for replica in role.replicas) > role.minimum
        source, target = (tuple(pod.node or "" for pod in replica.pods) for replica in (old, new))
        self.moves.append(
            ReplicaMove(unit, gang.name, gang.unit, role.name, old.replica, surplus, source, target, together)
        )


def _ask(gang: Gang, members: Collection[Member], closed: Mapping[str, str]) -> Gang:
    """The gang with all that has places, and successors of some replicas that have none yet."""

    def ask(role: RoleRequest) -> RoleRequest:
        kept = tuple(
            rename_pods(without_place(replica), "moved/{}".format)
            if (role.name, replica.replica) in members
            else replica
            for replica in role.replicas
            if replica.placed
        )
        return replace(role, replicas=kept, minimum=len(kept), desired=len(kept), missing=None, free=False)

    roles = tuple(map(ask, gang.roles))
    there = {(role.name, replica.replica) for role in roles for replica in role.replicas}
    rules = tuple(
        replace(rule, members=tuple(member for member in rule.members if member in there)) for rule in gang.rules
    )
    return least_of(replace(gang, roles=roles, rules=rules, excluded_nodes={**gang.excluded_nodes, **closed}))


def _placed_at(replica: ReplicaRequest, nodes: Mapping[str, str]) -> ReplicaRequest:
    return replace(replica, pods=tuple(replace(pod, node=nodes[pod.key]) for pod in replica.pods))


def keep_room(gang: Gang, inventory: Inventory, changes: Overlay, keys: Iterable[str]) -> tuple[str, ...]:
    """Hold the room that a gang will have once some holders are gone; until then its nodes are over-committed.

    Raises:
        StuckError: it has none.
    """
    plan = Judge(least_of(gang), inventory, LIMIT, 1).plan(keys)
    if not isinstance(plan, Plan):
        raise StuckError
    pods = {pod.key: pod for role in gang.roles for replica in role.replicas for pod in replica.pods}
    for assignment in plan.assignments:
        changes.hold(f"kept/{assignment.pod}", assignment.node, pods[assignment.pod].shape, pods[assignment.pod].meta)
    return tuple(sorted({assignment.node for assignment in plan.assignments}))
