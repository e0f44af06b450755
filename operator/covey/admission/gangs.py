"""A unit as the planner sees it: pure.

Only whole replicas are shown to the planner, and only if every pod of them may be planned; of the others the first
missing thing is told. A pod's place is a fact when it is bound, pinned, or decided a moment ago (``assumed``: the
patch is under way); such places are never moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from covey.admission import podstate
from covey.admission.requests import Reader, UnplannableError, known, levels, place_of, requests
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import REASON_INVALID, REASON_UNSUPPORTED
from covey.placement.model import Gang, Path, Proximity, Shape, Spread, Topology


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The input of a gang from outside its own groups and pods.

    ``occupied`` counts the sibling units in each domain of the spread level. ``obstacle`` says why an unbound pod must not be
    planned.
    """

    priority: int = 0
    assumed: Mapping[str, str] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    occupied: Mapping[Path, int] = field(default_factory=dict)
    obstacle: Callable[[core.Pod], str | None] = podstate.obstacle


def build_gang(unit: Unit, topology: Topology, shape: Callable[[core.Pod], Shape], around: Surroundings) -> Gang:
    """The planner's request for a unit.

    Raises:
        UnplannableError: when the groups ask for something that the topology or the planner does not have.
    """
    if unit.problem is not None:
        raise UnplannableError(REASON_UNSUPPORTED, unit.problem)
    constraints = unit.root.spec.scheduling_constraints or core.SchedulingConstraints()
    required, preferred = levels(unit.root, topology)
    meta = unit.root.metadata
    reference = unit.root.spec.workload_ref
    roles, rules = requests(unit, Reader(topology, shape, around.assumed, around.obstacle))
    return Gang(
        namespace=meta.namespace,
        # Units of one age are taken by number; by their roots' names llm-10 would come before llm-2.
        name=(reference.workload_name if reference else "") or meta.name,
        unit=unit.index,
        roles=roles,
        topology=topology.name,
        required=required,
        preferred=preferred,
        proximity=tuple(
            Proximity(each.roles, known(each.level, topology), each.mode == "Required")
            for each in constraints.proximity or ()
        ),
        rules=rules,
        spread=_spread(constraints.spread, topology, around),
        priority=around.priority,
        # Not the Workload's: that is there while no unit wants places, and would keep one in the queue for nothing. A unit that
        # gets other pods keeps its own.
        created=meta.creation_timestamp,
        uid=meta.uid,
        excluded_nodes=dict(around.excluded),
        guessed=unit.guessed,
    )


def missing(unit: Unit, gang: Gang) -> str | None:
    """The reason for which a unit's minimum cannot be planned yet: groups or pods that are not there, or not ours to plan."""
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


def _spread(spread: core.SpreadConstraint | None, topology: Topology, around: Surroundings) -> Spread | None:
    if spread is None:
        return None
    if spread.max_per_domain < 1:
        raise UnplannableError(REASON_INVALID, "spread.maxPerDomain must be at least 1")
    level = known(spread.level, topology)
    return Spread(level, spread.mode == "Required", spread.max_per_domain, dict(around.occupied))


__all__ = [
    "Surroundings",
    "UnplannableError",
    "build_gang",
    "missing",
    "place_of",
    "wants_minimum",
    "wants_surplus",
]
