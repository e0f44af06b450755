"""Autoscalers that can be asked for nodes: the kinds in which each is asked, what it answers, and the operator's settings.

One more is a ``Provider``, its line in ``AUTOSCALER_APIS``, a choice of the setting, and a right in manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.kube.resources import POD_TEMPLATES, Resource

#: All of the machines in one node group, or none.
ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
#: Of ``Provisioned`` False: an error of the cluster-autoscaler itself, which looks again in its next loop.
_PASSING: Final = "FailedToCheckCapacity"


class Provider(StrEnum):
    """The kind of the object in which an autoscaler is asked for nodes."""

    PROVISIONING_REQUEST = "ProvisioningRequest"
    CAPACITY_BUFFER = "CapacityBuffer"


class CapacityAnswer(StrEnum):
    """Answers, in the order in which they are reported: the reasons of ``CapacityAsked``."""

    MISSING = names.REASON_PROVIDER_MISSING
    UNKNOWN_LEVEL = names.REASON_LEVEL_UNKNOWN
    FAILED = names.REASON_CAPACITY_FAILED
    NO_CAPACITY = names.REASON_NO_CAPACITY
    DISAGREED = names.REASON_DISAGREED
    NOTHING_CAME = names.REASON_NOTHING_CAME
    SILENT = names.REASON_NO_ANSWER
    ASKED = names.REASON_ASKED
    COMING = names.REASON_COMING


@dataclass(frozen=True, slots=True)
class AutoscalerApi:
    """The API of one autoscaler.

    ``spec`` is that of a request: for the PodTemplate of this name, so many pods, in this class. ``read`` gives its answer
    from the conditions of a request by type, and the one that says so. ``coming``: the answers by which nodes are on their
    way; with ``Disagreed`` among them they are counted as if they were there while they are made.
    """

    kind: Resource
    spec: Callable[[str, int, str], Mapping[str, Any]]
    read: Callable[[Mapping[str, core.Condition]], tuple[CapacityAnswer, core.Condition | None]]
    coming: frozenset[CapacityAnswer] = frozenset({CapacityAnswer.COMING})


def _read_provisioning(conditions: Mapping[str, core.Condition]) -> tuple[CapacityAnswer, core.Condition | None]:
    for kind, answer in (("Failed", CapacityAnswer.FAILED), ("CapacityRevoked", CapacityAnswer.NOTHING_CAME)):
        if kind in conditions and conditions[kind].status == "True":
            return answer, conditions[kind]
    condition = conditions.get("Provisioned")
    if condition is None or condition.status == "Unknown":
        return CapacityAnswer.ASKED, None
    if condition.status == "False":
        return (CapacityAnswer.ASKED, None) if condition.reason == _PASSING else (CapacityAnswer.NO_CAPACITY, condition)
    return (CapacityAnswer.DISAGREED if condition.reason == "CapacityIsFound" else CapacityAnswer.COMING), condition


def _read_buffer(conditions: Mapping[str, core.Condition]) -> tuple[CapacityAnswer, core.Condition | None]:
    ready, condition = conditions.get("ReadyForProvisioning"), conditions.get("Provisioning")
    if ready is not None and ready.status == "False":
        return CapacityAnswer.NO_CAPACITY, ready
    if condition is None or condition.reason not in {"FitsExistingCapacity", "RequiresNewCapacity"}:
        return CapacityAnswer.ASKED, None
    return (
        CapacityAnswer.DISAGREED if condition.reason == "FitsExistingCapacity" else CapacityAnswer.COMING
    ), condition


PROVISIONING_REQUESTS: Final = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
CAPACITY_BUFFERS: Final = Resource("autoscaling.x-k8s.io", "v1beta1", "capacitybuffers", "CapacityBuffer")
AUTOSCALER_APIS: Final[Mapping[Provider, AutoscalerApi]] = {
    Provider.PROVISIONING_REQUEST: AutoscalerApi(
        PROVISIONING_REQUESTS,
        lambda template, count, class_name: {
            "provisioningClassName": class_name,
            "podSets": [{"podTemplateRef": {"name": template}, "count": count}],
        },
        _read_provisioning,
    ),
    # Karpenter counts nodes that it is making as if they were there.
    Provider.CAPACITY_BUFFER: AutoscalerApi(
        CAPACITY_BUFFERS,
        lambda template, count, _: {"podTemplateRef": {"name": template}, "replicas": count},
        _read_buffer,
        frozenset({CapacityAnswer.COMING, CapacityAnswer.DISAGREED}),
    ),
}
#: Kinds that exist only while nodes are asked for.
ASK_KINDS: Final = (POD_TEMPLATES, *(api.kind for api in AUTOSCALER_APIS.values()))


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """The autoscaler to ask, and the times of it.

    ``class_name`` is that of ProvisioningRequests. A unit that has been refused for room for ``after`` seconds asks; an
    answer without nodes is believed for ``wait`` seconds. ``surplus``: replicas beyond the minimum ask, too.
    """

    provider: Provider
    class_name: str = ATOMIC
    after: float = 30.0
    wait: float = 900.0
    surplus: bool = True
    #: The API server knows the kind.
    is_served: bool = True

    @property
    def api(self) -> AutoscalerApi:
        """The API in which it is asked."""
        return AUTOSCALER_APIS[self.provider]

    @property
    def kind(self) -> Resource:
        """The kind in which nodes are asked for."""
        return self.api.kind

    @property
    def asked_in(self) -> tuple[str, str]:
        """Kind and class of requests, which are in the name of each."""
        return self.kind.kind, self.class_name

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """The kinds that are written."""
        return (POD_TEMPLATES, self.kind)
