"""Headless Services, and the addresses that pods have through them.

A Service publishes addresses before the pods are Ready, because workers look for their leader while they start. It
selects by ``covey.dev/address``, which only the live incarnation of a pod carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Role
from covey.compile import identity
from covey.compile.identity import Owner, Slot

#: The value of the label ``covey.dev/address``.
ADDRESSED = "true"


def address(owner: Owner, slot: Slot) -> str:
    """A pod's address, as LeaderWorkerSet writes it: without the cluster's domain."""
    return f"{identity.hostname(slot)}.{identity.service_name(owner.name, slot.role)}.{owner.namespace}"


def services(owner: Owner, spec: DisaggregatedInferenceSpec) -> Iterator[dict[str, Any]]:
    """The headless Services of the resource: one for each role, serving every unit."""
    for role in spec.roles:
        yield _service(owner, role, identity.service_name(owner.name, role.name), {names.LABEL_ROLE: role.name})


def _service(owner: Owner, role: Role, name: str, labels: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.LABEL_INFERENCE: owner.name, **labels, names.LABEL_ADDRESS: ADDRESSED},
    }
    ports = role.network.ports if role.network else ()
    if ports:
        spec["ports"] = [
            {"name": port.name, "port": port.port, "targetPort": port.port, "protocol": port.protocol} for port in ports
        ]
    return {"apiVersion": "v1", "kind": "Service", "metadata": owner.metadata(name, labels), "spec": spec}
