"""Checks of a spec that CEL cannot do: fields that are not built yet, levels that the topology does not have."""

from __future__ import annotations

from collections.abc import Sequence

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec, UnitTopology
from covey.api.roles import RoleTopology
from covey.api.support import in_circles, unsupported
from covey.compile.groups import levels_named
from covey.compile.membership import Levels
from covey.operator.terms.problem import Problem
from covey.placement.cluster import presets


def find_unsupported(spec: DisaggregatedInferenceSpec) -> Problem | None:
    """Report fields that are accepted and not honoured yet, and roles that wait for each other."""
    if found := unsupported(spec):
        return Problem(names.REASON_UNSUPPORTED, "; ".join(found))
    if circle := in_circles(spec):
        roles = ", ".join(circle)
        return Problem(names.REASON_INVALID, f"dependsOn: {roles} depend on each other in a circle: break it")
    return None


def resolve_topology(
    spec: DisaggregatedInferenceSpec, topologies: Sequence[core.ClusterTopology], recorded: str | None = None
) -> tuple[str | None, Levels | None, Problem | None]:
    """Return the topology in use, its levels with their keys, and the problem with levels that the spec names.

    None for the first two when there is no ClusterTopology to choose: the scheduler process then detects a preset from
    the labels of the nodes, and any level that some preset knows is let pass here.

    Args:
        spec: what is wanted.
        topologies: those of the cluster.
        recorded: the one that was chosen before; it is chosen again as long as it exists, whatever is marked now.
    """
    if not topologies and not spec.topology.name:
        known = tuple(dict.fromkeys(level.name for preset in presets.PRESETS for level in preset.levels))
        return None, None, _unknown(spec, known, "any topology that Covey can detect")
    defaults = [
        item.metadata.name
        for item in topologies
        if item.metadata.annotation(names.ANNOTATION_DEFAULT_TOPOLOGY) == "true"
    ]
    there = recorded if any(item.metadata.name == recorded for item in topologies) else None
    try:
        chosen = presets.choose(
            spec.topology.name or there, [presets.topology_of(item) for item in topologies], defaults, nodes=()
        )
    except LookupError as error:
        return None, None, Problem(names.REASON_INVALID_TOPOLOGY, str(error), retry=True)
    known = tuple(level.name for level in chosen.levels)
    levels = {level.name: tuple(level.keys) for level in chosen.levels}
    return chosen.name, levels, _unknown(spec, known, f"topology {chosen.name}") or _inverted(spec, known)


def _unknown(spec: DisaggregatedInferenceSpec, known: Sequence[str], where: str) -> Problem | None:
    missing = [level for level in levels_named(spec) if level not in known]
    if not missing:
        return None
    message = f"level {', '.join(missing)} is not in {where}, which has {', '.join(known)}"
    return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)


def _inverted(spec: DisaggregatedInferenceSpec, levels: Sequence[str]) -> Problem | None:
    """Report a preferred level that is coarser than the required one: it can never matter."""
    scopes: list[tuple[str, UnitTopology | RoleTopology]] = [("spec.topology", spec.topology)]
    scopes += [(f"spec.roles[{role.name}].topology", role.topology) for role in spec.roles]
    for path, topology in scopes:
        required, preferred = topology.required, topology.preferred
        if required and preferred and levels.index(preferred) < levels.index(required):
            message = f"{path}: preferred level {preferred} is coarser than the required {required}"
            return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)
    return None
