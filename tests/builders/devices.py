"""Devices of drivers as an API server has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from covey.api import core
from covey.scheduler.cache import Cache

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
DRIVER: Final = "gpu.nvidia.com"
#: The selector of NVIDIA's own class.
IS_GPU: Final = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
_API: Final = "resource.k8s.io/v1"
_TYPES: Final[Mapping[str, type[core.Read]]] = {
    "ResourceSlice": core.ResourceSlice,
    "DeviceClass": core.DeviceClass,
    "ResourceClaim": core.ResourceClaim,
    "DeviceTaintRule": core.DeviceTaintRule,
}


def read(body: Json) -> Any:
    """An object as its watch delivers it."""
    return msgspec.convert(body, _TYPES[body["kind"]])


def device(name: str, kind: str = "gpu", **more: Any) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}}, **more}


def gpus(count: int, first: int = 0) -> list[Json]:
    return [device(f"gpu-{number}") for number in range(first, first + count)]


def slice_body(
    name: str,
    *devices: Json,
    node: str | None = "n1",
    pool: str = "",
    of: int = 1,
    generation: int = 1,
    driver: str = DRIVER,
) -> Json:
    """A slice of a node's pool, or of devices that all nodes reach."""
    at = {"nodeName": node} if node else {"allNodes": True}
    whole = {"name": pool or node or "all", "generation": generation, "resourceSliceCount": of}
    spec = {"driver": driver, "pool": whole, "devices": list(devices), **at}
    return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def class_body(name: str = DRIVER, *expressions: str, resource: str | None = GPU, created: str = "") -> Json:
    """NVIDIA's class, unless told otherwise."""
    spec: Json = {"selectors": [{"cel": {"expression": each}} for each in expressions or (IS_GPU,)]}
    if resource:
        spec["extendedResourceName"] = resource
    meta = {"name": name} | ({"creationTimestamp": created} if created else {})
    return {"apiVersion": _API, "kind": "DeviceClass", "metadata": meta, "spec": spec}


def claim_body(name: str, *devices: tuple[str, str, str], pod: str = "", admin: bool = False) -> Json:
    """A claim that has devices (driver, pool, name); the one for the extended resources of a pod (UID) if it is named."""
    keys = ("request", "driver", "pool", "device")
    results = [
        dict(zip(keys, ("r", *each), strict=True)) | ({"adminAccess": True} if admin else {}) for each in devices
    ]
    meta: Json = {"name": name, "namespace": "ns"}
    if pod:
        meta["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        meta["ownerReferences"] = [{"kind": "Pod", "name": pod, "uid": pod, "controller": True}]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"apiVersion": _API, "kind": "ResourceClaim", "metadata": meta, "status": status}


def rule_body(name: str, effect: str = "NoSchedule", **selector: str) -> Json:
    spec = {"taint": {"key": "k", "effect": effect}, "deviceSelector": selector}
    return {"apiVersion": _API, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


#: A device of many kinds of attributes, and what selectors say of it: None for an error.
SAMPLE: Final[Json] = {
    "name": "d",
    "attributes": {
        "type": {"string": "gpu"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
        "other.com/x": {"string": "y"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
JUDGED: Final[Sequence[tuple[str, bool | None]]] = (
    ("device.driver == 'gpu.nvidia.com'", True),
    ('device.driver in ["x", "gpu.nvidia.com"]', True),
    ("device.driver == 'x'", False),
    (IS_GPU, True),
    ("(device.driver == 'gpu.nvidia.com' && (device.attributes['other.com'].x == 'y'))", True),
    ("device.attributes['gpu.nvidia.com'].index == 3", True),
    ("device.attributes['gpu.nvidia.com'].index == '3'", False),
    ("device.attributes['gpu.nvidia.com'].index in [-1, 4]", False),
    ("device.attributes['gpu.nvidia.com'].ecc == true", True),
    ("device.attributes['gpu.nvidia.com'].ecc == 1", False),
    ("device.attributes['gpu.nvidia.com'].driverVersion == '1.2.3'", None),
    ("device.attributes['gpu.nvidia.com'].lacks == 1", None),
    ("device.attributes['other.com'].type == 'gpu'", None),
    ("device.attributes['gpu.nvidia.com'].lacks == 1 && device.driver == 'x'", False),
    ("device.driver == 'x' && device.attributes['gpu.nvidia.com'].lacks == 1", False),
    ("device.attributes['gpu.nvidia.com'].lacks == 1 && device.driver == 'gpu.nvidia.com'", None),
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0", True),
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('81Gi')) >= 0", False),
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('81G')) == 0", False),
    ("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('81Gi')) < 0", True),
    ("device.capacity['gpu.nvidia.com'].cores.compareTo(quantity('1')) > 0", None),
    ("device.attributes['gpu.nvidia.com'].driverVersion in ['1.2.3']", None),
    ("device.attributes['gpu.nvidia.com'].type in [1]", False),
    ("device.attributes['gpu.nvidia.com'].index in ['3']", False),
)


def request_body(count: int = 1, *selectors: str, of: str = DRIVER, name: str = "r", **more: Any) -> Json:
    """A request for so many devices of a class, which selectors narrow."""
    exactly: Json = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return {"name": name, "exactly": exactly | more}


def wish_body(*requests: Json, **more: Any) -> Json:
    """``spec`` of a claim."""
    return {"devices": {"requests": list(requests), **more}}


def tell(made: Cache, body: Json, event: str = "ADDED") -> None:
    """Tell a cache what a watch of devices brings, into the store and to who listens."""
    found, devices = read(body), made.devices
    if body["kind"] == "ResourceClaim":
        before = devices._claims.store.get(found.metadata.key)
        if event == "DELETED":
            devices._claims.store.pop(found.metadata.key, None)
        else:
            devices._claims.store[found.metadata.key] = found
        devices._on_claim(event, found, before)
        return
    handlers: Mapping[str, Any] = {
        "ResourceSlice": devices._on_slice,
        "DeviceClass": devices._on_class,
        "DeviceTaintRule": devices._on_rule,
    }
    handlers[body["kind"]](event, found, None if event == "ADDED" else found)
