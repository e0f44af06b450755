"""Fields for those who send requests: labels of other controllers, and one InferencePool.

``InferencePool`` is ``inference.networking.k8s.io/v1`` of kubernetes-sigs/gateway-api-inference-extension; the fields are
its own, but for the selector, which is Covey's.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from covey.api.model import ATOMIC, LIVE, ROLLED, CelRule, Model, ObjectName


class LwsLabels(StrEnum):
    """The use of LeaderWorkerSet's labels on pods."""

    NEVER = "Never"
    ALWAYS = "Always"


class LlmdLabels(StrEnum):
    """The use of llm-d's label on pods."""

    NEVER = "Never"
    ALWAYS = "Always"


class Compat(Model):
    """Compatibility with engines and routers that were written for another controller."""

    lws: Annotated[bool, ROLLED] = True
    """Sets LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX in every container. Default: true."""
    lws_labels: Annotated[LwsLabels | None, LIVE] = None
    """Always: pods have LeaderWorkerSet's labels name (<inference>-<role>, or <inference> where there is one role),
    group-index (of the replica in its unit), worker-index, group-key and template-revision-hash. Not where
    LeaderWorkerSet itself is installed: its webhook denies such pods. Default: Never."""
    llmd: Annotated[LlmdLabels | None, LIVE] = None
    """Always: pods of roles that serve have llm-d's label llm-d.ai/role: prefill, decode or, for a role that serves both,
    prefill-decode, which stays as others have set it. It is gone while a replica drains. Default: Never; pods that run keep
    what they have."""


class PoolPort(Model):
    """A port."""

    number: Annotated[int, LIVE, Field(ge=1, le=65535)]
    """Its number. 1 to 65535."""


class FailureMode(StrEnum):
    """The way of a gateway with requests while the endpoint picker does not answer."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class EndpointPickerRef(Model):
    """The endpoint picker of an InferencePool."""

    RULES: ClassVar = (
        CelRule(
            "(has(self.kind) && self.kind != 'Service') || has(self.port)",
            "an endpoint picker that is a Service has no port: set port.number to that of the Service",
            at=".port",
        ),
    )

    group: Annotated[str | None, LIVE, Field(max_length=253)] = None
    """The API group of what is named. Default: the core group."""
    kind: Annotated[str | None, LIVE, Field(min_length=1, max_length=63)] = None
    """The kind of what is named. Default: Service."""
    name: Annotated[ObjectName, LIVE]
    """The name of it, in the namespace of the resource."""
    port: PoolPort | None = None
    """The port of it; a Service needs one. Default: none."""
    failure_mode: Annotated[FailureMode | None, LIVE] = None
    """FailClose: requests fail while the picker does not answer. FailOpen: the gateway picks a pod by itself, whatever its
    pairing. Default: FailClose."""


class InferencePoolSettings(Model):
    """One InferencePool, of the name of the resource."""

    target_ports: Annotated[tuple[PoolPort, ...], ATOMIC, Field(min_length=1, max_length=8)]
    """The ports of the pods that take requests, 1 to 8. Releases of the CRD differ in how many they take."""
    endpoint_picker_ref: EndpointPickerRef
    """The endpoint picker."""


class RoutingSettings(Model):
    """Objects that gateways read."""

    pool: InferencePoolSettings | None = None
    """Makes one InferencePool (inference.networking.k8s.io/v1) that selects the pods that take requests. It goes with this
    field. The operator needs --inference-pools. Default: none."""
