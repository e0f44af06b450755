"""Finding quantities that the API server would deny, with their paths; the planner takes for granted that there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from covey.placement.cluster.resources import LARGEST, PODS, Quantity, parse_quantity

#: Field path, what is wrong, what to do.
Found = tuple[str, str, str]

_WRITE: Final = "write a quantity such as 8, 500m or 1Gi"


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
        found = _wrong(resource, quantity)
        if found is not None:
            yield f"{path}[{resource}]", *found


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
