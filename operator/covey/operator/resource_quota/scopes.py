"""The scopes of ResourceQuotas: a pod is counted where all of them, and of the scope selector, hold.

The rules are those of ``podMatchesScopeFunc`` in Kubernetes (``pkg/quota/v1/evaluator/core/pods.go``).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from covey.api import core
from covey.operator.resource_quota.charge import PodCharge


def amounts_in(quota: core.ResourceQuota, pod: PodCharge) -> Iterator[tuple[str, Fraction]]:
    """The amounts that a quota charges for a pod and its claims, some resources more than once."""
    if counts(quota, pod):
        yield from pod.amounts
    if pod.claimed and not any(True for _ in _requirements(quota)):
        yield from pod.claimed


def counts(quota: core.ResourceQuota, pod: PodCharge) -> bool:
    """Tell whether a quota counts a pod."""
    return all(_matches(requirement, pod) for requirement in _requirements(quota))


def _requirements(quota: core.ResourceQuota) -> Iterator[core.ScopeRequirement]:
    for scope in quota.spec.scopes or ():
        yield core.ScopeRequirement(scope, "Exists")
    selector = quota.spec.scope_selector
    yield from (selector.match_expressions or ()) if selector is not None else ()


def _matches(requirement: core.ScopeRequirement, pod: PodCharge) -> bool:
    """Tell whether a scope matches a pod; one that is unknown here is not about pods, and matches none."""
    match requirement.scope_name:
        case "Terminating":
            return pod.terminating
        case "NotTerminating":
            return not pod.terminating
        case "BestEffort":
            return pod.best_effort
        case "NotBestEffort":
            return not pod.best_effort
        case "PriorityClass":
            return _selects(requirement, pod.priority_class)
        case "CrossNamespacePodAffinity":
            return pod.across_namespaces
        case _:
            return False


def _selects(requirement: core.ScopeRequirement, name: str) -> bool:
    """Match a priority class as a label selector matches a label, absent where the pod has no class."""
    match requirement.operator:
        case "In":
            return bool(name) and name in (requirement.values or ())
        case "NotIn":
            return name not in (requirement.values or ()) or not name
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case _:
            return False
