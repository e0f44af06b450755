"""Room of lost pods that is held for their successors: pure.

A bound member that ends or is gone while its unit wants one in its place leaves a *hold*: its shape on its node, which
counts as taken for all but the unit. The hold ends when a pod of that place has its node, when the role has all
replicas that are wanted, when nobody makes a successor, or when its time (``holdSeconds`` on the root, capped) is over.

A process that saw the pod go knows all of that. One that comes later reads it from the successor, which says where its
predecessor was (``ANNOTATION_ROOM``).

A pod that is being deleted holds its node itself until it is gone. What will be held then is reckoned from its deletion
on, for the unit's quota: what was given to others meanwhile could not be held for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from covey.admission.nodes import Key
from covey.admission.roles import UnitRole
from covey.admission.tree import Unit, replica_met
from covey.api import core
from covey.api.constants import ANNOTATION_ROOM, LABEL_INDEX, LABEL_POD_GROUP, LABEL_REPLICA
from covey.model import podstate
from covey.placement.model import Shape


class Place(NamedTuple):
    """A member's place: its PodGroup, and the numbers of its replica and of itself (None where nobody gave any)."""

    leaf: str
    replica: str | None
    number: str | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Room for the successor of a pod.

    ``key`` names the hold among those that hold room; ``meta`` is the lost pod's; ``until`` is monotonic, in seconds.
    ``unbroken``: the unit has been charged for it ever since the pod had its node, so nobody was given that quota.
    """

    key: str
    root: Key
    place: Place
    node: str
    shape: Shape
    meta: core.Meta
    until: float
    unbroken: bool = False


def place_of(pod: core.Pod) -> Place:
    """The place that a member fills, or filled."""
    label = pod.metadata.label
    return Place(label(LABEL_POD_GROUP) or "", label(LABEL_REPLICA), label(LABEL_INDEX))


def hold_for(
    pod: core.Pod, node: str, root: core.Group, key: Key, shape: Shape, *, now: float, longest: float, age: float = 0.0
) -> Hold | None:
    """The hold on the room that a pod had; None where the root wants none, or its time is over.

    Args:
        pod: the lost pod, or the successor that says where it was.
        node: where.
        root: of its unit.
        key: the root's.
        shape: the pod's.
        now: monotonic seconds.
        longest: seconds for which room is ever held, whatever the root says.
        age: seconds since the loss.
    """
    seconds = min(float(root.spec.hold_seconds or 0), longest) - max(age, 0.0)
    if seconds <= 0 or root.metadata.deletion_timestamp is not None:
        return None
    return Hold(f"held/{pod.metadata.uid}", key, place_of(pod), node, shape, pod.metadata, now + seconds)


def room_said(pod: core.Pod) -> str | None:
    """The node where a waiting successor says its predecessor was."""
    said = pod.metadata.annotation(ANNOTATION_ROOM)
    return said if said and podstate.counts(pod) and podstate.is_gated(pod) else None


def age_of(pod: core.Pod, wall: float) -> float:
    """Seconds since a pod was created, by the API server's clock; at least nothing."""
    return max(wall - (core.seconds(pod.metadata.creation_timestamp) or wall), 0.0)


def find_wanted(holds: Iterable[Hold], unit: Unit | None, assumed: Mapping[str, str]) -> list[Hold]:
    """Find the holds for whose places their unit still lacks a pod.

    Args:
        holds: of one unit.
        unit: as it is; None when it is gone.
        assumed: nodes decided a moment ago, by the pod's UID.
    """
    if unit is None or unit.root.metadata.deletion_timestamp is not None:
        return []

    def is_placed(pod: core.Pod) -> bool:
        return podstate.occupies_node(pod) or podstate.pinned_node(pod) is not None or pod.metadata.uid in assumed

    filled = {
        role.name: {place_of(pod) for replica in role.replicas for pod in replica.pods if is_placed(pod)}
        for role in unit.roles
        if sum(replica_met(replica, is_placed) for replica in role.replicas) < role.desired
    }
    roles = roles_by_leaf(unit)
    return [
        hold
        for hold in holds
        if (role := roles.get(hold.place.leaf)) is not None
        and role.name in filled
        and (hold.place.number is None or hold.place not in filled[role.name])
    ]


def has_successor(hold: Hold, unit: Unit) -> bool:
    """A pod waits for the place; where places have no numbers, any of the group does."""
    pods = (pod for role in unit.roles for replica in role.replicas for pod in replica.pods)
    return any(place_of(pod) == hold.place and podstate.counts(pod) and not podstate.occupies_node(pod) for pod in pods)


def is_of_same_replica(hold: Hold, pod: core.Pod) -> bool:
    """A pod is of the replica that the lost one was of."""
    place = place_of(pod)
    return (place.leaf, place.replica) == (hold.place.leaf, hold.place.replica)


def roles_by_leaf(unit: Unit) -> dict[str, UnitRole]:
    """The roles of a unit by the names of their PodGroups; of several the first."""
    found: dict[str, UnitRole] = {}
    for role in unit.roles:
        for group in (role.group, *(replica.group for replica in role.replicas)):
            if group.kind == "PodGroup":
                found.setdefault(group.metadata.name, role)
    return found
