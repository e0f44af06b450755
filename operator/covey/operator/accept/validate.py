"""Checks of a spec that CEL cannot do: fields that are not built yet, levels that the topology does not have.

The backend of a resource, and its dialect: chosen once, recorded, and kept while anything of it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec, UnitTopology
from covey.api.roles import RoleTopology
from covey.api.rules import in_circles, unsupported_fields
from covey.backends import Backend, Cluster, choose, find, newest
from covey.compile.groups import Levels, levels_named
from covey.operator.model.accepted import Resolved
from covey.operator.model.problem import Problem
from covey.placement.cluster import presets


def resolve_backend(
    spec: DisaggregatedInferenceSpec, recorded: Resolved | None, cluster: Cluster, *, is_there: bool
) -> tuple[Backend | None, Problem | None]:
    """Return the backend, None where there is none to work with, and the problem that stands in its way.

    Args:
        spec: what is wanted.
        recorded: what was chosen before.
        cluster: what the cluster has; what it lacks may come later, which is noticed.
        is_there: there are pods or groups of the resource.
    """
    name = recorded.backend if recorded is not None else spec.effective_backend
    former = find(recorded.backend, recorded.dialect) if recorded is not None else None
    # 1. The operator was started without it: nobody has asked the cluster about it.
    if name not in cluster.enabled:
        remedy = "add it to its --backends (value backends of the chart)"
        return former or newest(name), Problem(
            names.REASON_UNSUPPORTED, f"the operator runs without backend {name}: {remedy}"
        )
    # 2. What was chosen before, and still can be had. A field that nobody can be asked about now was kept then.
    why = former.absent(_with_unprobed(cluster) if is_there else cluster) if former is not None else None
    if former is not None and why is None:
        return former, None
    # 3. It cannot be had any more: what runs is left alone.
    if recorded is not None and is_there:
        lost = why or f"this release of Covey has no backend {_backend_text(recorded)}"
        remedy = "what runs is left alone; set spec.suspend to true and then to false to have it made anew"
        return former, Problem(names.REASON_UNSUPPORTED, f"{lost}; {remedy}")
    # 4. Nothing runs: the newest that the cluster can do. It stays, so what decides which one it is has to be answered.
    chosen, hoped = choose(name, cluster), choose(name, _with_unprobed(cluster))
    if hoped is not None and hoped is not chosen:
        return hoped, Problem(names.REASON_UNSUPPORTED, hoped.absent(cluster) or "", retry=True)
    if chosen is None:
        latest = newest(name)
        why = latest.absent(cluster) if latest is not None else f"this release of Covey has no backend {name}"
        return latest, Problem(names.REASON_UNSUPPORTED, why or "")
    return chosen, None


def _with_unprobed(cluster: Cluster) -> Cluster:
    """The cluster as if it kept the fields about which probes have no answer."""
    return replace(cluster, kept=cluster.kept | cluster.unprobed.keys(), unprobed={})


def find_refused(
    backend: Backend, spec: DisaggregatedInferenceSpec, levels: Levels | None, cluster: Cluster
) -> Problem | None:
    """Report the parts of a spec that a backend cannot carry; ``retry`` where only a probe has no answer."""
    refused = backend.refusals(spec, levels, cluster)
    if not refused:
        return None
    may_pass = not backend.refusals(spec, levels, _with_unprobed(cluster))
    return Problem(names.REASON_UNSUPPORTED, "; ".join(refused), retry=may_pass)


def _backend_text(recorded: Resolved) -> str:
    return f"{recorded.backend} {recorded.dialect}".strip()


def find_unsupported(spec: DisaggregatedInferenceSpec) -> Problem | None:
    """Report fields that are accepted and not honoured yet, and roles that wait for each other."""
    if found := unsupported_fields(spec):
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
    return chosen.name, levels, _unknown(spec, known, f"topology {chosen.name}") or _find_inverted_level(spec, known)


def _unknown(spec: DisaggregatedInferenceSpec, known: Sequence[str], where: str) -> Problem | None:
    missing = [level for level in levels_named(spec) if level not in known]
    if not missing:
        return None
    message = f"level {', '.join(missing)} is not in {where}, which has {', '.join(known)}"
    return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)


def _find_inverted_level(spec: DisaggregatedInferenceSpec, levels: Sequence[str]) -> Problem | None:
    """Report a preferred level that is coarser than the required one: it can never matter."""
    scopes: list[tuple[str, UnitTopology | RoleTopology]] = [("spec.topology", spec.topology)]
    scopes += [(f"spec.roles[{role.name}].topology", role.topology) for role in spec.roles]
    for path, topology in scopes:
        required, preferred = topology.required, topology.preferred
        if required and preferred and levels.index(preferred) < levels.index(required):
            message = f"{path}: preferred level {preferred} is coarser than the required {required}"
            return Problem(names.REASON_INVALID_TOPOLOGY, message, retry=True)
    return None
