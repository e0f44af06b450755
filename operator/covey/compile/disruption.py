"""The PodDisruptionBudget of a resource: the eviction API takes no pod of a gang by itself.

A budget counts pods and a gang counts replicas, so no number over pods says the right thing: replicas are moved whole by
the operator, and whoever drains a node waits until they are. ``maxUnavailable: 0`` would not say that: the disruption
controller takes the number of pods that there should be from the owner's scale subresource, which counts units, and so
allows every pod beyond that to go (``getExpectedScale`` of ``k8s.io/kubernetes/pkg/controller/disruption``). A whole
number in ``minAvailable`` is compared with the healthy pods alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.identity import Owner

#: More than a resource can have; it need not follow what is scaled and what surges.
_ALL: Final = 1_000_000


def budget_name(inference: str) -> str:
    """Its name; that of the resource alone is what people call budgets of their own."""
    return f"{inference}-gang"


def budgets(owner: Owner, spec: DisaggregatedInferenceSpec) -> Iterator[dict[str, Any]]:
    """One budget over the pods of all roles of the gang, so that no pod has two; none where there is no such role.

    A pod that runs and is not Ready is kept as well (``IfHealthyBudget``): it may be of a gang that loads its model.
    """
    roles = [role.name for role in spec.roles if role.min_replicas]
    if not roles:
        return
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(budget_name(owner.name), {}),
        "spec": {
            "minAvailable": _ALL,
            "selector": {
                "matchLabels": {names.LABEL_INFERENCE: owner.name},
                "matchExpressions": [{"key": names.LABEL_ROLE, "operator": "In", "values": roles}],
            },
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
    }
