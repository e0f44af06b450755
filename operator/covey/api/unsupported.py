"""Fields of a spec that the API server takes, and that this version or the planner does not honour."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from covey.api import core
from covey.api.constants import LABEL_ROLE
from covey.api.inference import BackendName, DisaggregatedInferenceSpec
from covey.api.spread import find_kept_spread, is_switched_off


def unsupported_fields(spec: DisaggregatedInferenceSpec) -> list[str]:
    """One sentence for every field set that this version does not honour; empty when there is none.

    A field that is set to what happens anyway (``startup: Parallel``) is not refused.
    """
    sentences = []
    if spec.queue is not None and spec.backend is BackendName.KUBERNETES:
        remedy = "use backend Extender or Volcano, which have queues, or remove it"
        sentences.append(f"spec.queue with spec.backend {spec.backend} is not supported yet: {remedy}")
    return sentences


def unkept_constraints(spec: DisaggregatedInferenceSpec) -> list[str]:
    """One sentence for every constraint of a template that nobody keeps with the spec's backend (``api.spread``).

    Covey's planner keeps one of a role whose replicas are one pod, if it selects these pods and no other role's.
    """
    if spec.effective_backend is not BackendName.EXTENDER:
        return []
    templates = [
        (role, name, template)
        for role in spec.roles
        for name, template in (("template", role.template), ("leaderTemplate", role.leader_template))
        if template is not None
    ]
    labels = [{**_labels(template), LABEL_ROLE: role.name} for role, _, template in templates]
    sentences: dict[str, None] = {}
    for number, (role, name, template) in enumerate(templates):
        spreads = _spreads(template)
        kept = find_kept_spread(spreads, labels[number]) if role.size == 1 and name == "template" else None
        others = [other for place, other in enumerate(labels) if place != number]
        if kept is not None and any(
            core.selects(kept.label_selector or core.LabelSelector(), other) for other in others
        ):
            kept = None
        for spread in spreads:
            if is_switched_off(spread) and spread is not kept:
                where = f"spec.roles[{role.name}].{name}: topologySpreadConstraints over {spread.topology_key}"
                sentences[f"{where} {_SPREAD_REMEDY}"] = None
    return [*sentences]


_SPREAD_REMEDY: Final = (
    "with whenUnsatisfiable DoNotSchedule are kept by nobody, as each pod is pinned to one node: Covey keeps one of a role of"
    " size 1 whose labelSelector selects its pods, and no other role's, by labels of the template, without minDomains and"
    " matchLabelKeys; else write ScheduleAnyway, or nodeAffinityPolicy Ignore; keep pods off one host by podAntiAffinity,"
    " units off one domain by spec.spread"
)


def _labels(template: Mapping[str, Any]) -> Mapping[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


def _spreads(template: Mapping[str, Any]) -> list[core.TopologySpread]:
    """The spread constraints of a template, but for those that are none, which the API server refuses."""
    written = (template.get("spec") or {}).get("topologySpreadConstraints")
    spreads = []
    for constraint in written if isinstance(written, list) else ():
        with suppress(msgspec.ValidationError):
            spreads.append(msgspec.convert(constraint, core.TopologySpread))
    return spreads
