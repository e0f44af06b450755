"""ComputeDomains: what lets GPUs of several nodes reach each other's memory, and the claims by which pods join one.

NVIDIA's DRA driver (``resource.nvidia.com/v1beta1``) makes a ResourceClaimTemplate for each; a pod joins by a claim made
from it. ``numNodes`` is 0: the driver counts the nodes as pods come, and no pod waits for others to start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from covey.api import constants
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.interconnect import InterconnectScope
from covey.compile.groups import Object
from covey.compile.identity import Owner, Slot, group_labels, group_name
from covey.compile.layout import Layout

_API: Final = "resource.nvidia.com/v1beta1"


class InterconnectCompiler:
    """The domains of one resource.

    Args:
        owner: the resource.
        spec: its spec.
    """

    def __init__(self, owner: Owner, spec: DisaggregatedInferenceSpec) -> None:
        self._owner = owner
        self._by_replica = spec.interconnect is not None and spec.interconnect.scope is InterconnectScope.REPLICA
        exclusive = spec.interconnect is not None and spec.interconnect.exclusive
        #: The name of the claim in pods and their containers.
        self._claim = constants.CLAIM_EXCLUSIVE if exclusive else constants.CLAIM_INTERCONNECT
        self._roles = frozenset(role.name for role in spec.roles if role.interconnect and spec.interconnect)

    def domain(self, slot: Slot) -> str | None:
        """The name of the domain that the pod of a slot joins; None for a role that joins none."""
        if slot.role not in self._roles:
            return None
        return group_name(self._owner.name, slot.unit, *((slot.role, slot.replica) if self._by_replica else ()))

    def domains(self, layout: Layout) -> Iterator[Object]:
        """Yield the domains of a layout, in its order."""
        made = set[str]()
        for unit, role, replica, _ in layout.replicas() if self._roles else ():
            name = self.domain(Slot(unit, role, replica, 0))
            if name is None or name in made:
                continue
            made.add(name)
            labels = group_labels(unit, *((role, replica) if self._by_replica else ()))
            channel = {"resourceClaimTemplate": {"name": template_name(name)}, "allocationMode": "Single"}
            yield {
                "apiVersion": _API,
                "kind": "ComputeDomain",
                "metadata": self._owner.metadata(name, labels),
                "spec": {"numNodes": 0, "channel": channel},
            }

    def add_claim(self, slot: Slot, spec: dict[str, Any]) -> dict[str, Any]:
        """Add the claim to the spec of a slot's pod and its containers."""
        name = self.domain(slot)
        if name is None:
            return spec
        claim = {"name": self._claim, "resourceClaimTemplateName": template_name(name)}
        claims, containers = (
            spec.get("resourceClaims") or (),
            [_with_claim(container, self._claim) for container in spec["containers"]],
        )
        return {**spec, "resourceClaims": [*claims, claim], "containers": containers}


def template_name(domain: str) -> str:
    """The ResourceClaimTemplate that the driver makes for a domain."""
    return f"{domain}-interconnect"


def _with_claim(container: Mapping[str, Any], claim: str) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "claims": [*(resources.get("claims") or ()), {"name": claim}]}}
