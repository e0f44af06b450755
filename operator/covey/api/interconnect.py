"""``spec.interconnect`` of a DisaggregatedInference."""

from enum import StrEnum
from typing import Annotated, ClassVar

from covey.api.model import IMMUTABLE, Model, Rule


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
        Rule(
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
