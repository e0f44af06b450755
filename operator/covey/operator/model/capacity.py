"""Settings for asking an autoscaler for nodes, and the kinds of objects in which it is asked: flags of the operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from covey.kube.resources import CAPACITY_BUFFERS, POD_TEMPLATES, PROVISIONING_REQUESTS, Resource


class Provider(StrEnum):
    """The kind of the object in which an autoscaler is asked for nodes."""

    PROVISIONING_REQUEST = "ProvisioningRequest"
    CAPACITY_BUFFER = "CapacityBuffer"


#: Kinds that exist only while nodes are asked for.
ASK_KINDS: Final = (POD_TEMPLATES, PROVISIONING_REQUESTS, CAPACITY_BUFFERS)
#: All of the machines in one node group, or none.
ATOMIC: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"


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
    def kind(self) -> Resource:
        """The kind in which nodes are asked for."""
        return PROVISIONING_REQUESTS if self.provider is Provider.PROVISIONING_REQUEST else CAPACITY_BUFFERS

    @property
    def asked_in(self) -> tuple[str, str]:
        """Kind and class of requests, which are in the name of each."""
        return self.kind.kind, self.class_name

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """The kinds that are written."""
        return (POD_TEMPLATES, self.kind)
