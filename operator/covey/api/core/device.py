"""Devices of drivers (``resource.k8s.io/v1``): ResourceSlices, DeviceClasses, claims and taints, as far as they are counted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from covey.api.core.meta import Meta, Read
from covey.api.core.pod import NodeSelector


class DeviceAttribute(Read, frozen=True):
    """``DeviceAttribute``: one of its values is set."""

    string: str | None = None
    integer: int | None = msgspec.field(name="int", default=None)
    boolean: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class DeviceCapacity(Read, frozen=True):
    """``DeviceCapacity``, its quantity as written."""

    value: str | int | float = "0"


class DeviceTaint(Read, frozen=True):
    """``DeviceTaint``."""

    effect: str = ""


class Device(Read, frozen=True):
    """``Device``. What thousands of devices say alike is kept once."""

    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    consumes_counters: tuple[Any, ...] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    node_allocatable_resources: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Share names and values of attributes."""
        if self.attributes:
            msgspec.structs.force_setattr(
                self, "attributes", dict(_intern(*attribute) for attribute in self.attributes.items())
            )
        if self.capacity:
            msgspec.structs.force_setattr(
                self, "capacity", dict(_intern(*capacity) for capacity in self.capacity.items())
            )


class ResourcePool(Read, frozen=True):
    """``ResourcePool``."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Read, frozen=True):
    """``ResourceSliceSpec``. Without ``node_name`` its devices are not of one node."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    devices: tuple[Device, ...] | None = None


class ResourceSlice(Read, frozen=True):
    """A ResourceSlice: some devices of a pool."""

    metadata: Meta
    #: A bookmark of a watch has none.
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceClassSpec(Read, frozen=True):
    """``DeviceClassSpec``."""

    selectors: tuple[dict[str, Any], ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Read, frozen=True):
    """A DeviceClass."""

    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class AllocatedDevice(Read, frozen=True):
    """``DeviceRequestAllocationResult``. Admin access takes no device from anybody."""

    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class DeviceAllocation(Read, frozen=True):
    """``DeviceAllocationResult``."""

    results: tuple[AllocatedDevice, ...] | None = None


class Allocation(Read, frozen=True):
    """``AllocationResult``; without a selector its devices are reached from every node."""

    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None


class ResourceClaimStatus(Read, frozen=True):
    """``ResourceClaimStatus``."""

    allocation: Allocation | None = None


class ExactRequest(Read, frozen=True):
    """``ExactDeviceRequest``, or one of the kinds of which the first that there is will do."""

    device_class_name: str = ""
    selectors: tuple[dict[str, Any], ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[Any, ...] | None = None
    capacity: dict[str, Any] | None = None


class DeviceRequest(Read, frozen=True):
    """``DeviceRequest``; one that asks for the first of several kinds has no ``exactly``."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] | None = None

    @property
    def kinds(self) -> tuple[ExactRequest, ...]:
        """Kinds of devices that it may be given; one unless it asks for the first of several."""
        return self.first_available or ((self.exactly,) if self.exactly else ())


class DeviceRequests(Read, frozen=True):
    """``DeviceClaim``."""

    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[Any, ...] | None = None


class DeviceClaimSpec(Read, frozen=True):
    """``ResourceClaimSpec``."""

    devices: DeviceRequests = DeviceRequests()


class ResourceClaim(Read, frozen=True):
    """A ResourceClaim."""

    metadata: Meta
    spec: DeviceClaimSpec = DeviceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ClaimTemplateSpec(Read, frozen=True):
    """``ResourceClaimTemplateSpec``."""

    spec: DeviceClaimSpec = DeviceClaimSpec()


class ResourceClaimTemplate(Read, frozen=True):
    """A ResourceClaimTemplate, of which each pod that names it gets a claim."""

    metadata: Meta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class TaintedDevices(Read, frozen=True):
    """``DeviceTaintSelector``: what is None does not matter."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Read, frozen=True):
    """``DeviceTaintRuleSpec``; without a selector it concerns no device."""

    taint: DeviceTaint = DeviceTaint()
    device_selector: TaintedDevices | None = None


class DeviceTaintRule(Read, frozen=True):
    """A DeviceTaintRule: a taint on many devices."""

    metadata: Meta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


DeviceObject = ResourceSlice | DeviceClass | ResourceClaim | ResourceClaimTemplate | DeviceTaintRule


@lru_cache(maxsize=16_384)
def _intern(name: str, value: DeviceAttribute | DeviceCapacity) -> tuple[str, DeviceAttribute | DeviceCapacity]:
    return name, value
