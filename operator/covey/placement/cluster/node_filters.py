"""Nodes that a shape may use, whatever is free there: cordons, readiness, taints, selectors, node affinity, features.

The rules are kube-scheduler's filters NodeUnschedulable, TaintToleration, NodeAffinity and NodeDeclaredFeatures, with one
addition: cordoned and NotReady nodes are out whatever is tolerated, because a gang must not be planned onto them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from covey.api import core
from covey.placement.model import Shape

CORDONED: Final = "cordoned"


NOT_READY: Final = "not ready"


NODE_SELECTOR: Final = "node selector"


NODE_AFFINITY: Final = "node affinity"


#: Taints that mirror a state which is read from the node itself; no toleration lifts them for a gang.
_STATE_TAINTS: Final = {
    "node.kubernetes.io/unschedulable": CORDONED,
    "node.kubernetes.io/not-ready": NOT_READY,
    "node.kubernetes.io/unreachable": NOT_READY,
}


_HARD: Final = ("NoSchedule", "NoExecute")


def state_cause(node: core.Node) -> str | None:
    """Return why no gang may use a node (it is cordoned or NotReady), or None.

    A node without a Ready condition counts as ready.
    """
    if node.spec.unschedulable:
        return CORDONED
    ready = core.condition(node.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        return NOT_READY
    return next(
        (_STATE_TAINTS[t.key] for t in node.spec.taints or () if t.effect in _HARD and t.key in _STATE_TAINTS), None
    )


def static_cause(shape: Shape, node: core.Node) -> str | None:
    """Return why a shape may not use a node, or None: the cause as it is counted in reasons."""
    return state_cause(node) or shape_cause(shape, node)


def shape_cause(shape: Shape, node: core.Node) -> str | None:
    """Return why a shape may not use a node whose state lets gangs use it, or None."""
    return taint_cause(shape, node) or selector_cause(shape, node) or _feature_cause(shape, node)


def selector_cause(shape: Shape, node: core.Node) -> str | None:
    """Return why a shape's node selector or node affinity leaves a node out, or None."""
    return _selector_cause(shape, node.metadata.labels or {}) or _affinity_cause(shape, node)


def taint_cause(shape: Shape, node: core.Node) -> str | None:
    """Return the taint of a node that a shape does not tolerate, or None."""
    for taint in node.spec.taints or ():
        if taint.effect in _HARD and not any(tolerates(toleration, taint) for toleration in shape.tolerations):
            return f"taint {taint.key}:{taint.effect}"
    return None


def tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    """Tell whether it matches this taint (``ToleratesTaint`` of ``k8s.io/api/core/v1``), for ever or for a time."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Gt" | "Lt" as operator:  # KEP-5471, alpha: without its gate the API server refuses such pods
            return _compare(operator, taint.value, (toleration.value,))
        case operator:
            return operator in {"Equal", ""} and toleration.value == taint.value


def _selector_cause(shape: Shape, labels: Mapping[str, str]) -> str | None:
    met = all(labels.get(key) == value for key, value in shape.node_selector)
    return None if met else NODE_SELECTOR


def _affinity_cause(shape: Shape, node: core.Node) -> str | None:
    if shape.node_affinity is None:
        return None
    met = any(_term_met(term, node) for term in shape.node_affinity.node_selector_terms)
    return None if met else NODE_AFFINITY


def _feature_cause(shape: Shape, node: core.Node) -> str | None:
    lacking = [name for name in shape.features if name not in (node.status.declared_features or ())]
    return f"undeclared feature {lacking[0]}" if lacking else None


def _term_met(term: core.NodeSelectorTerm, node: core.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term matches nothing
    labels = node.metadata.labels or {}
    fields = {"metadata.name": node.metadata.name}
    return all(_requirement_met(r, labels.get(r.key)) for r in term.match_expressions or ()) and all(
        _requirement_met(r, fields.get(r.key)) for r in term.match_fields or ()
    )


def _requirement_met(requirement: core.Requirement, value: str | None) -> bool:
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return value is not None and _compare(operator, value, values)
        case _:
            return False


def _compare(operator: str, value: str, values: tuple[str, ...]) -> bool:
    try:
        have, bound = int(value), int(values[0])
    except (ValueError, IndexError):
        return False
    return have > bound if operator == "Gt" else have < bound
