"""The PodDisruptionBudget of a namespace, by which the eviction API takes no pod of a gang by itself.

A budget counts pods and a gang counts replicas, so no number over pods says the right thing: replicas are moved whole by
the operator, and the drain of a node waits until they are. ``maxUnavailable: 0`` would not say that: the disruption
controller takes the number of pods that there should be from the owner's scale subresource, which counts units, and so
allows every pod beyond that to go (``getExpectedScale`` of ``k8s.io/kubernetes/pkg/controller/disruption``). A whole
number in ``minAvailable`` is compared with the healthy pods alone.

One budget serves all resources of a namespace, since the disruption controller matches every event of every pod with
every budget of its namespace. It selects a label that pods of roles with ``minReplicas`` > 0 have. It belongs to no
resource: the first one that needs it makes it, and it goes after the last.

Former releases made a budget for each resource. It stays as long as a live pod of the gang lacks the label, and leaves
alone the pods that have it: the eviction API takes no pod that two budgets select, whatever they say.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Owner

KIND: Final = "PodDisruptionBudget"
#: Its name in every namespace. No former budget of a resource ends like this.
NAME: Final = "covey-gangs"
#: Its labels: no single resource is named.
LABELS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_INFERENCE: ""}
#: The label of the pods that it selects.
PROTECTED: Final = {names.LABEL_GANG: "true"}
#: And that of pods which it leaves alone for now, as every former budget does that is narrow.
IDLE: Final = {names.LABEL_GANG: "idle"}
#: More than a namespace can have; it need not follow what is scaled and what surges.
_ALL: Final = 1_000_000


def gang_roles(spec: DisaggregatedInferenceSpec) -> frozenset[str]:
    """Roles whose pods only the operator may take; pods of the others may be evicted."""
    return frozenset(role.name for role in spec.roles if role.min_replicas)


def needs_budget(spec: DisaggregatedInferenceSpec) -> bool:
    """Tell whether a resource has pods that the budget is there for."""
    return not spec.suspend and bool(gang_roles(spec))


def namespace_budget(namespace: str) -> dict[str, Any]:
    """The budget that all resources of a namespace have in common.

    A pod that runs and is not Ready is kept as well (``IfHealthyBudget``): it may be of a gang that loads its model.
    """
    metadata = {"name": NAME, "namespace": namespace, "labels": dict(LABELS)}
    return _budget(metadata, {"matchLabels": dict(PROTECTED)})


def former_name(inference: str) -> str:
    """The name of the budget that former releases made for a resource."""
    return f"{inference}-gang"


def former_budget(owner: Owner, roles: Collection[str], *, narrow: bool) -> dict[str, Any]:
    """The budget that former releases made for a resource.

    Args:
        owner: the resource.
        roles: those of the gang.
        narrow: it leaves the pods alone that the namespace's budget selects.
    """
    selected = [{"key": names.LABEL_ROLE, "operator": "In", "values": sorted(roles)}]
    without = [{"key": names.LABEL_GANG, "operator": "DoesNotExist"}] if narrow else []
    selector = {"matchLabels": {names.LABEL_INFERENCE: owner.name}, "matchExpressions": [*selected, *without]}
    return _budget(owner.metadata(former_name(owner.name), {}), selector)


def is_narrow(spec: dict[str, Any]) -> bool:
    """Tell whether a former budget, as stored, leaves the pods alone that the namespace's budget selects."""
    expressions = (spec.get("selector") or {}).get("matchExpressions") or ()
    return any(
        (expression["key"], expression["operator"]) == (names.LABEL_GANG, "DoesNotExist") for expression in expressions
    )


def _budget(metadata: dict[str, Any], selector: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": KIND,
        "metadata": metadata,
        "spec": {"minAvailable": _ALL, "selector": selector, "unhealthyPodEvictionPolicy": "IfHealthyBudget"},
    }
