"""What a resource asks for and no feature of the list honours: said by name, with reason ``Unsupported``.

This is the no-op of every feature that is left out. Core does the plain thing without it: an edit moves nothing, a lost
pod is made again without a policy, a replica goes without a drain. Where that ignores what somebody has asked for,
``BackendSupported`` is False. A feature names what it honours (``Feature.HONOURS``) in the words of this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from covey.api import constants as names
from covey.api.roles import Role
from covey.operator.feature import Features, PlanInput
from covey.operator.intent import Intent
from covey.operator.model.outcome import Outcome, Remark

_IsAsked = Callable[[PlanInput, Intent], object]


def _is_set(field: Callable[[Role], object]) -> _IsAsked:
    return lambda given, _: any(map(field, given.spec.roles))


def _is_annotated(key: str) -> _IsAsked:
    return lambda given, _: key in (given.inference.metadata.annotations or {})


def _declares_gate(role: Role) -> bool:
    templates = (template for template in (role.template, role.leader_template) if template is not None)
    gates = (gate for template in templates for gate in (template.get("spec") or {}).get("readinessGates") or ())
    return any(gate.get("conditionType") == names.GATE_SERVING for gate in gates)


#: All that features honour, and whether it is asked for: fields, annotations, and what others want of the resource.
ASKED: Final[Mapping[str, _IsAsked]] = {
    "spec.disruption.allowBelowMinimum": lambda given, _: (
        given.spec.disruption is not None and given.spec.disruption.allow_below_minimum is not None
    ),
    "spec.disruption.evacuateAfterSeconds": lambda given, _: (
        given.spec.disruption is not None and given.spec.disruption.evacuate_after_seconds is not None
    ),
    "spec.gang.terminationDelaySeconds": lambda given, _: given.spec.gang.termination_delay_seconds is not None,
    "spec.rollout": lambda given, _: given.spec.rollout,
    "spec.rollout.routing": lambda given, _: given.spec.rollout is not None and given.spec.rollout.routing,
    "spec.routing.pool": lambda given, _: given.spec.routing is not None and given.spec.routing.pool,
    "spec.scaling": lambda given, _: given.spec.scaling,
    "spec.roles[].dependsOn": _is_set(lambda role: role.depends_on),
    "spec.roles[].drainSeconds": _is_set(lambda role: role.drain_seconds),
    "spec.roles[].restart": _is_set(lambda role: role.restart),
    "spec.roles[].scaling.mode External": _is_set(lambda role: role.is_scaled),
    "spec.roles[].scaling.mode Together": _is_set(lambda role: role.is_exchanged),
    "spec.roles[].serves": _is_set(lambda role: role.serves),
    "spec.roles[].startDeadlineSeconds": _is_set(lambda role: role.start_deadline_seconds),
    "spec.roles[].startup": _is_set(lambda role: role.startup),
    "spec.roles[].update": _is_set(lambda role: role.update),
    "spec.roles[].update.inPlace": _is_set(lambda role: role.update is not None and role.update.in_place),
    f"the readiness gate {names.GATE_SERVING}": _is_set(_declares_gate),
    f"the annotation {names.ANNOTATION_HEADROOM}": _is_annotated(names.ANNOTATION_HEADROOM),
    f"the annotation {names.ANNOTATION_HEADROOM_SECONDS}": _is_annotated(names.ANNOTATION_HEADROOM_SECONDS),
    f"the annotation {names.ANNOTATION_REMAKE}": _is_annotated(names.ANNOTATION_REMAKE),
    "edits of rolled fields": lambda given, intent: any(
        revision.hash != given.in_force.roles[role].hash for (_, role, _), revision in intent.running.items()
    ),
    "nodes that are to be empty": lambda given, _: given.observed.notices,
    "Evictions of its pods": lambda given, _: given.observed.evictions,
    "preemption of its replicas": lambda given, _: given.observed.claims,
    "ResourceQuotas of its namespace": lambda given, _: given.observed.quotas,
    "requests for nodes": lambda given, _: given.observed.capacity,
}


def find_unsupported(features: Features, given: PlanInput, intent: Intent) -> Outcome:
    """Say what is asked for that no feature of a list honours, whether or not it applies to the resource."""
    lacking = ASKED.keys() - frozenset().union(*(feature.HONOURS for feature in features))
    ignored = [what for what, is_asked in ASKED.items() if what in lacking and is_asked(given, intent)]
    if not ignored:
        return Outcome()
    message = f"this operator runs without the features that honour {', '.join(ignored)}: take that back, or list them"
    return Outcome(remarks=(Remark(names.BACKEND_SUPPORTED, names.REASON_UNSUPPORTED, message, holds=False),))
