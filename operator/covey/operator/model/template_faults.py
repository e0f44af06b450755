"""Faults of pods and of their templates that the API server would deny, with the paths of their fields.

Quantities above all, of which the API server does not say where they stand, and the planner takes for granted that there
are none wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from covey.api.suggest import suggest
from covey.placement.cluster.resources import LARGEST, PODS, Quantity, parse_quantity

#: Field path, what is wrong, what to do.
Found = tuple[str, str, str]

_WRITE: Final = "write a quantity such as 8, 500m or 1Gi"


#: Fields of a PodSpec, and of a Container (``k8s.io/api/core/v1`` of 1.37). A later release may have more.
_POD: Final = frozenset(
    [
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    ]
)
_CONTAINER: Final = frozenset(
    [
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "restartPolicyRules",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    ]
)
_RESOURCES: Final = frozenset({"claims", "limits", "requests"})
#: Fields of a template that are strings, and that people write without quotes; ``*`` stands for every item, or key.
_STRINGS: Final = (
    "spec.nodeSelector.*",
    *(
        f"spec.{containers}.*.{field}"
        for containers in ("initContainers", "containers")
        for field in ("image", "command.*", "args.*", "env.*.name", "env.*.value")
    ),
)


def find_template_faults(spec: Mapping[str, Any]) -> Iterator[Found]:
    """Everything in the spec of a template that is known to be wrong; paths are below the spec.

    A field that nobody knows is only told where it is much like one that there is: a later Kubernetes may have it.
    """
    yield from _misspelt("", spec, _POD)
    for name in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(name) or ()):
            path = f"{name}[{number}]"
            yield from _misspelt(f"{path}.", container, _CONTAINER)
            asked = container.get("resources") or {}
            yield from _misspelt(f"{path}.resources.", asked, _RESOURCES)
            if not container.get("image"):
                yield f"{path}.image", "is missing", "name the image that the container runs"
    yield from [*bad_quantities(spec)] or _devices_without_limits(spec)


def find_unquoted(template: Mapping[str, Any]) -> Iterator[Found]:
    """Everything in a template that YAML reads as a number or a boolean and that has to be a string; paths are below it."""
    for field in _STRINGS:
        for path, value in _find_values("", template, field.split(".")):
            if isinstance(value, bool | int | float):
                shown = f"is {str(value).lower()}, " + ("a boolean" if isinstance(value, bool) else "a number")
                yield path, f"{shown} where a string has to be", "put it in quotes"
            elif value is not None and not isinstance(value, str):
                yield path, "is not a string", "write a string"


def _find_values(path: str, value: Any, steps: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The values of a field, with their paths; what has another shape has none."""
    if not steps:
        yield path, value
    elif steps[0] != "*":
        if isinstance(value, Mapping) and steps[0] in value:
            yield from _find_values(f"{path}.{steps[0]}".lstrip("."), value[steps[0]], steps[1:])
    elif isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _find_values(f"{path}[{key}]", inner, steps[1:])


def asks_for_devices(spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod of such a spec asks for an extended resource, or for devices by claims."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    lists = [spec.get("resources") or {}, *((container.get("resources") or {}) for container in containers)]
    named = (name for amounts in lists for side in ("requests", "limits") for name in amounts.get(side) or ())
    return bool(spec.get("resourceClaims")) or any(map(_is_extended, named))


def _devices_without_limits(spec: Mapping[str, Any]) -> Iterator[Found]:
    for name in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(name) or ()):
            asked = container.get("resources") or {}
            for resource in asked.get("requests") or {}:
                if _is_extended(resource) and resource not in (asked.get("limits") or {}):
                    path = f"{name}[{number}].resources.requests[{resource}]"
                    yield path, "has no limit", f"devices are given by limits: set limits[{resource}] as well"


def _misspelt(path: str, fields: Mapping[str, Any], known: Collection[str]) -> Iterator[Found]:
    for name in fields:
        meant = suggest(name, known) if name not in known else None
        if meant is not None:
            yield f"{path}{name}", "unknown field", f"did you mean {meant}?"


def bad_quantities(spec: Mapping[str, Any]) -> Iterator[Found]:
    """Everything in a pod's spec that is no quantity, or none that a pod may ask for; paths are below the spec."""
    yield from _of_resources("resources", spec.get("resources"))
    yield from bad_amounts("overhead", spec.get("overhead"))
    for name in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(name) or ()):
            yield from _of_resources(f"{name}[{number}].resources", container.get("resources"))


def bad_amounts(path: str, quantities: Mapping[str, Quantity] | None) -> Iterator[Found]:
    """Everything in a list of resources that is no amount of its resource."""
    for resource, quantity in (quantities or {}).items():
        fault = _wrong(resource, quantity)
        if fault is not None:
            yield f"{path}[{resource}]", *fault


def _of_resources(path: str, resources: Mapping[str, Any] | None) -> Iterator[Found]:
    limits, requests = ((resources or {}).get(name) or {} for name in ("limits", "requests"))
    bad = [*bad_amounts(f"{path}.limits", limits), *bad_amounts(f"{path}.requests", requests)]
    yield from bad or _requests_above_limits(path, requests, limits)


def _requests_above_limits(
    path: str, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]
) -> Iterator[Found]:
    for resource in requests.keys() & limits.keys():
        most, asked = parse_quantity(limits[resource]), parse_quantity(requests[resource])
        field = f"{path}.requests[{resource}]"
        if asked > most:
            yield field, f"{requests[resource]} is above the limit {limits[resource]}", "ask for no more than the limit"
        elif asked < most and _is_extended(resource):
            yield (
                field,
                f"{requests[resource]} is not the limit {limits[resource]}",
                "devices are not shared: set both alike",
            )


def _wrong(resource: str, quantity: Quantity) -> tuple[str, str] | None:
    """The fault of one quantity, and what to do (``ValidateResourceQuantityValue`` of the API server)."""
    try:
        value = parse_quantity(quantity)
    except ValueError as error:
        return str(error), _WRITE
    if value < 0:
        return f"{quantity} is negative", "write 0 or more"
    if value > LARGEST:
        return f"{quantity} is more than {LARGEST}, the largest that the API takes", _WRITE
    if not _whole(value) and (_is_extended(resource) or resource == PODS):
        return f"{quantity} is not a whole number", "devices are counted: write a whole number"
    return None


def _whole(value: Fraction) -> bool:
    return value.denominator == 1


def _is_extended(resource: str) -> bool:
    """A resource that a vendor named (``IsExtendedResourceName``): counted in whole devices, never over-committed."""
    return "/" in resource and "kubernetes.io/" not in resource
