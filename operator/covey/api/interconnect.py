"""``spec.interconnect`` of a DisaggregatedInference."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final

from covey.api.model import IMMUTABLE, CelRule, Model


class InterconnectType(StrEnum):
    """The kind of object that makes a domain."""

    COMPUTE_DOMAIN = "ComputeDomain"


class InterconnectScope(StrEnum):
    """The pods that share one domain of the interconnect."""

    UNIT = "Unit"
    REPLICA = "Replica"


class Interconnect(Model):
    """A domain in which the GPUs of several nodes reach each other's memory (NVLink between nodes)."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.exclusive) || !self.exclusive || !has(self.scope) || self.scope == 'Unit'",
            "cliques are kept from other units, not from replicas of the same one: set scope to Unit and make each replica "
            "a unit, or remove exclusive",
            at=".exclusive",
        ),
    )

    type: Annotated[InterconnectType, IMMUTABLE] = InterconnectType.COMPUTE_DOMAIN
    """ComputeDomain: that of NVIDIA's DRA driver. Default: ComputeDomain."""
    scope: Annotated[InterconnectScope, IMMUTABLE] = InterconnectScope.UNIT
    """Unit: one domain for the pods of a unit. Replica: one for each replica. Default: Unit."""
    exclusive: Annotated[bool, IMMUTABLE] = False
    """True: in the cliques of its nodes (label nvidia.com/gpu.clique) no pod joins another domain. For scope Unit and backend
    Extender. Default: false."""


#: Rules of a spec about its interconnect and what stands beside it.
OF_INTERCONNECT: Final = (
    CelRule(
        "has(self.interconnect) == self.roles.exists(r, has(r.interconnect) && r.interconnect)",
        "spec.interconnect and roles with interconnect: true need each other: set both, or remove both",
        at=".interconnect",
    ),
    CelRule(
        "!has(self.interconnect) || self.backend != 'Volcano'",
        "interconnect is not supported with backend Volcano: use Extender or Kubernetes, or remove it",
        at=".interconnect",
    ),
    CelRule(
        "!has(self.interconnect) || !has(self.interconnect.exclusive) || !self.interconnect.exclusive || "
        "self.backend in ['Auto', 'Extender']",
        "interconnect.exclusive is kept by Covey's own scheduler: use backend Extender, or remove it",
        at=".interconnect.exclusive",
    ),
    CelRule(
        "has(self.interconnect) == has(oldSelf.interconnect)",
        "interconnect is immutable: delete the object and create it anew to change it",
        at=".interconnect",
        forbids=True,
    ),
)
