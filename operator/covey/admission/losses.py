"""Room that pods take, and room of lost pods that is held for their successors: pure.

A bound member that ends or is gone while its unit wants one in its place leaves a *hold*: its shape on its node, which
counts as taken for all but the unit. The hold ends when a pod of that place has its node, when the role has all
replicas that are wanted, when nobody makes a successor, or when its time (``holdSeconds`` on the root, capped) is over.

A process that saw the pod go knows all of that. One that comes later reads it from the successor, which says where its
predecessor was (``ANNOTATION_ROOM``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from covey.admission.nodes import counted_spec
from covey.admission.tree import Key, Role, Unit, replica_met
from covey.admission.volumes import Volumes
from covey.api import core
from covey.api.constants import ANNOTATION_ROOM, LABEL_INDEX, LABEL_POD_GROUP, LABEL_REPLICA
from covey.model import podstate
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Shape


def counted_shape(pod: core.Pod, volumes: Volumes | None = None) -> Shape:
    """A pod's shape with all that counts: resizes under way, and where its volumes are, as far as they are known."""
    spec = counted_spec(pod)
    if volumes is not None:
        spec = volumes.confine_to_volumes(pod, spec)
    return shape_of(pod if spec is pod.spec else replace(pod, spec=spec))


def hold_all(inventory: Inventory, pods: Iterable[core.Pod], shape: Callable[[core.Pod], Shape]) -> None:
    """Count what bound, pinned and nominated pods hold; a pod that comes twice holds once."""
    for pod in pods:
        node = podstate.holding(pod) or podstate.nominated_node(pod)
        if node is not None:
            inventory.hold(pod.metadata.uid, node, shape(pod), pod.metadata)


class Place(NamedTuple):
    """A member's place: its PodGroup, and the numbers of its replica and of itself (None where nobody gave any)."""

    leaf: str
    replica: str | None
    number: str | None


@dataclass(frozen=True, slots=True)
class Hold:
    """Room for the successor of a pod.

    ``key`` names the hold among those that hold room; ``meta`` is the lost pod's; ``until`` is monotonic, in seconds.
    """

    key: str
    root: Key
    place: Place
    node: str
    shape: Shape
    meta: core.Meta
    until: float


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


def is_wanted(hold: Hold, unit: Unit | None, assumed: Mapping[str, str]) -> bool:
    """The unit still lacks a pod in that place.

    Args:
        hold: the hold.
        unit: its unit as it is; None when it is gone.
        assumed: nodes decided a moment ago, by the pod's UID.
    """
    if unit is None or unit.root.metadata.deletion_timestamp is not None:
        return False
    placed = _make_placed_check(assumed)
    role = role_of_leaf(unit, hold.place.leaf)
    if role is None or sum(replica_met(replica, placed) for replica in role.replicas) >= role.desired:
        return False
    pods = (pod for replica in role.replicas for pod in replica.pods)
    return not any(place_of(pod) == hold.place and placed(pod) for pod in pods if hold.place.number is not None)


def has_successor(hold: Hold, unit: Unit) -> bool:
    """A pod waits for the place; where places have no numbers, any of the group does."""
    pods = (pod for role in unit.roles for replica in role.replicas for pod in replica.pods)
    return any(place_of(pod) == hold.place and podstate.counts(pod) and not podstate.occupies_node(pod) for pod in pods)


def is_of_same_replica(hold: Hold, pod: core.Pod) -> bool:
    """A pod is of the replica that the lost one was of."""
    place = place_of(pod)
    return (place.leaf, place.replica) == (hold.place.leaf, hold.place.replica)


def role_of_leaf(unit: Unit, leaf: str) -> Role | None:
    """The role that a PodGroup belongs to."""
    return next((role for role in unit.roles if _has(role, leaf)), None)


def _has(role: Role, leaf: str) -> bool:
    groups = (role.group, *(replica.group for replica in role.replicas))
    return any(group.kind == "PodGroup" and group.metadata.name == leaf for group in groups)


def _make_placed_check(assumed: Mapping[str, str]) -> Callable[[core.Pod], bool]:
    def is_placed(pod: core.Pod) -> bool:
        return podstate.occupies_node(pod) or podstate.pinned_node(pod) is not None or pod.metadata.uid in assumed

    return is_placed


__all__ = [
    "Hold",
    "Place",
    "age_of",
    "has_successor",
    "hold_for",
    "is_of_same_replica",
    "is_wanted",
    "place_of",
    "role_of_leaf",
    "room_said",
]
