"""Refusals of what Volcano cannot carry, given before anything is created: it would ignore most of it in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from covey.api.inference import DisaggregatedInferenceSpec, GangSettings
from covey.api.roles import Role
from covey.backends.extender_only import refused_starts, refused_vectors
from covey.backends.hypernodes import HyperNodes, find_inverted_levels
from covey.backends.volcano.min_resources import requests_of
from covey.compile import Levels
from covey.compile.revision import Template

_ELSE: Final = "or use backend Extender"


_NO_PREFERENCE: Final = f"Volcano knows no preferred levels (soft means anywhere): remove it, {_ELSE}"


def refusals_of(spec: DisaggregatedInferenceSpec, levels: Levels, hyper_nodes: HyperNodes | None) -> Iterator[str]:
    """One sentence for each field; about levels only where it is known which HyperNodes there are."""
    if hyper_nodes is not None:
        yield from _levels(spec, levels, hyper_nodes)
    if spec.topology.preferred:
        yield f"spec.topology.preferred: {_NO_PREFERENCE}"
    if spec.proximity:
        instead = "remove it, and set spec.topology.required where all roles of a unit shall lie together"
        yield f"spec.proximity: Volcano has no domain for some of a PodGroup's roles: {instead}, {_ELSE}"
    if spec.spread is not None:
        yield f"spec.spread: Volcano does not keep PodGroups apart: remove it, {_ELSE}"
    if spec.gang.timeout_seconds != GangSettings().timeout_seconds:
        yield f"spec.gang.timeoutSeconds: Volcano binds a minimum at once, and has no time-out: remove it, {_ELSE}"
    if spec.disruption is not None and spec.disruption.hold_seconds:
        yield f"spec.disruption.holdSeconds: Volcano holds no capacity for what was lost: remove it, {_ELSE}"
    if spec.disruption_mode is not None:
        yield "spec.disruptionMode: Volcano preempts pod by pod: remove it, or use backend Kubernetes"
    if spec.preemption is not None:
        yield f"spec.preemption: Volcano preempts by its own rules: remove it, {_ELSE}"
    yield from refused_vectors(spec, "Volcano plans no replicas that are still to come")
    yield from refused_starts(spec, "Volcano")
    for role in spec.roles:
        yield from _of_role(role, confined=spec.topology.required is not None)


def _of_role(role: Role, *, confined: bool) -> Iterator[str]:
    path = f"spec.roles[{role.name}]"
    if role.topology.preferred:
        yield f"{path}.topology.preferred: {_NO_PREFERENCE}"
    if confined and not role.topology.follow_unit:
        yield f"{path}.topology.followUnit: Volcano keeps every role in the unit's domain: remove it, {_ELSE}"
    templates: Mapping[str, Template | None] = {"template": role.template, "leaderTemplate": role.leader_template}
    for name, template in templates.items():
        if template is not None and requests_of(template) == {}:
            yield (
                f"{path}.{name}: Volcano counts a pod without resource requests as placed before it is, and heeds no "
                "group when it places it: give its containers requests"
            )


def _levels(spec: DisaggregatedInferenceSpec, levels: Levels, hyper_nodes: HyperNodes) -> Iterator[str]:
    named = {"spec.topology.required": spec.topology.required}
    named |= {f"spec.roles[{role.name}].topology.required": role.topology.required for role in spec.roles}
    known: dict[str, int] = {}
    for path, level in named.items():
        if level is None:
            continue
        tier = hyper_nodes.tier(level, levels)
        if isinstance(tier, int):
            known[level] = tier
        else:
            yield f"{path} {level}: {tier}, {_ELSE}"
    if wrong := find_inverted_levels(levels, known):
        broad, narrow = wrong
        yield (
            f"spec.topology: level {broad} is broader than {narrow}, and its HyperNodes have tier {known[broad]} and "
            f"{known[narrow]}: give it the higher one, {_ELSE}"
        )
