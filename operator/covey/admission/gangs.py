"""A unit as the planner sees it: pure.

Only whole replicas are shown to the planner, and only if every pod of them may be planned; of the others the first
missing thing is told. A pod's place is a fact when it is bound, pinned, or decided a moment ago (``assumed``: the
patch is under way); such places are never moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from covey.admission import podstate
from covey.admission.tree import Replica, Role, Unit, number
from covey.api import core
from covey.api.constants import LABEL_INDEX, REASON_INVALID, REASON_INVALID_TOPOLOGY, REASON_UNSUPPORTED
from covey.placement.model import (
    Gang,
    Path,
    PodRequest,
    Proximity,
    ReplicaRequest,
    RoleRequest,
    Shape,
    Spread,
    Topology,
)


class UnplannableError(Exception):
    """The unit cannot be shown to the planner. ``reason`` is a reason of ``Admitted``, the text is for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a gang takes from outside its own groups and pods.

    ``created`` is the Workload's creation, so that recreating a unit does not lose its place. ``occupied`` counts the
    sibling units in each domain of the spread level.
    """

    priority: int = 0
    created: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    occupied: Mapping[Path, int] = field(default_factory=dict)


def place_of(pod: core.Pod, assumed: Mapping[str, str]) -> str | None:
    """The node that a pod is bound to, pinned to, or was decided for."""
    return pod.spec.node_name or podstate.pinned(pod) or assumed.get(pod.metadata.uid)


def build_gang(unit: Unit, topology: Topology, shape: Callable[[core.Pod], Shape], around: Surroundings) -> Gang:
    """The planner's request for a unit.

    Raises:
        UnplannableError: when the groups ask for something that the topology or the planner does not have.
    """
    if unit.problem is not None:
        raise UnplannableError(REASON_UNSUPPORTED, unit.problem)
    constraints = unit.root.spec.scheduling_constraints or core.SchedulingConstraints()
    required, preferred = _levels(unit.root, topology)
    meta = unit.root.metadata
    reference = unit.root.spec.workload_ref
    return Gang(
        namespace=meta.namespace,
        # Units of one age are taken by number; by their roots' names llm-10 would come before llm-2.
        name=(reference.workload_name if reference else "") or meta.name,
        unit=unit.index,
        roles=tuple(_role(unit, role, topology, shape, around) for role in unit.roles),
        topology=topology.name,
        required=required,
        preferred=preferred,
        proximity=tuple(
            Proximity(each.roles, _known(each.level, topology), each.mode == "Required")
            for each in constraints.proximity or ()
        ),
        spread=_spread(constraints.spread, topology, around),
        priority=around.priority,
        created=around.created or meta.creation_timestamp,
        uid=meta.uid,
        excluded_nodes=dict(around.excluded),
    )


def missing(unit: Unit, gang: Gang) -> str | None:
    """Why a unit's minimum cannot be planned yet: groups or pods that are not there, or not ours to plan."""
    if unit.absent:
        return f"{unit.absent} of the unit's groups do not exist yet"
    texts = [
        f"{role.name}: {role.missing or f'{len(role.replicas)} of {role.minimum} replicas exist'}"
        for role in gang.roles
        if len(role.replicas) < role.minimum
    ]
    return "; ".join(texts) or None


def wants_minimum(gang: Gang) -> bool:
    """A replica of the minimum has no place yet."""
    return any(sum(replica.placed for replica in role.replicas) < role.minimum for role in gang.roles)


def wants_surplus(gang: Gang) -> bool:
    """A whole replica beyond the placed ones waits for a place."""
    return any(not replica.placed for role in gang.roles for replica in role.replicas)


def _role(
    unit: Unit, role: Role, topology: Topology, shape: Callable[[core.Pod], Shape], around: Surroundings
) -> RoleRequest:
    obstacles = {id(replica): _obstacle(replica, around.assumed) for replica in role.replicas}
    plannable = [replica for replica in role.replicas if obstacles[id(replica)] is None]
    first = next((text for text in obstacles.values() if text is not None), None)
    required, preferred = (None, None) if unit.root is role.group else _levels(role.group, topology)
    if role.composite:
        # What holds for each replica stands on the replicas' own groups; they all say the same.
        own = [_levels(replica.group, topology) for replica in role.replicas]
        required, preferred = next((each for each in own if each != (None, None)), (required, preferred))
    return RoleRequest(
        name=role.name,
        minimum=role.minimum,
        desired=role.desired,
        replicas=tuple(_replica(replica, shape, around.assumed) for replica in plannable),
        required=required,
        preferred=preferred,
        follow_unit=role.follows,
        missing=first if len(plannable) < role.minimum else None,
    )


def _replica(replica: Replica, shape: Callable[[core.Pod], Shape], assumed: Mapping[str, str]) -> ReplicaRequest:
    pods = tuple(
        PodRequest(
            pod.metadata.uid,
            number(pod.metadata.label(LABEL_INDEX), position),
            shape(pod),
            place_of(pod, assumed),
            pod.metadata,
        )
        for position, pod in enumerate(replica.pods)
    )
    return ReplicaRequest(replica.number, pods, replica.together)


def _obstacle(replica: Replica, assumed: Mapping[str, str]) -> str | None:
    if not replica.whole:
        return f"{len(replica.pods)} of {replica.size} pods of replica {replica.number} exist"
    return next(
        (
            text
            for pod in replica.pods
            if place_of(pod, assumed) is None and (text := podstate.obstacle(pod)) is not None
        ),
        None,
    )


def _levels(group: core.Group, topology: Topology) -> tuple[str | None, str | None]:
    """The narrowest required and the narrowest preferred level of a group."""
    constraints = group.spec.scheduling_constraints
    found: dict[str, str] = {}
    for each in (constraints.topology or ()) if constraints else ():
        level = _known(each.level, topology) if each.level else _by_key(each.key or "", topology)
        if each.mode not in found or topology.depth(level) > topology.depth(found[each.mode]):
            found[each.mode] = level
    return found.get("Required"), found.get("Preferred")


def _known(level: str, topology: Topology) -> str:
    try:
        topology.depth(level)
    except KeyError:
        names = ", ".join(each.name for each in topology.levels)
        raise UnplannableError(
            REASON_INVALID_TOPOLOGY,
            f"topology {topology.name} has no level {level} but {names}: use one of these, label the nodes for"
            f" {level}, or name a ClusterTopology that has it in spec.topology.name",
        ) from None
    return level


def _by_key(key: str, topology: Topology) -> str:
    for level in topology.levels:
        if key in level.keys:
            return level.name
    raise UnplannableError(REASON_INVALID_TOPOLOGY, f"no level of topology {topology.name} has the label key {key}")


def _spread(spread: core.SpreadConstraint | None, topology: Topology, around: Surroundings) -> Spread | None:
    if spread is None:
        return None
    if spread.max_per_domain < 1:
        raise UnplannableError(REASON_INVALID, "spread.maxPerDomain must be at least 1")
    level = _known(spread.level, topology)
    return Spread(level, spread.mode == "Required", spread.max_per_domain, dict(around.occupied))
