"""Quantities as integers, and what a pod asks of its node.

kube-scheduler counts cpu in milli-units and everything else in whole units (bytes, devices), both rounded up; so does
Covey, or the two would disagree about the last pod on a node. Every quantity is parsed once: the same few strings
come back on thousands of objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from covey.api import constants, core

CPU: Final = "cpu"
PODS: Final = "pods"
#: Resources that every node has; all others are devices, which are what placements are short of.
ORDINARY: Final = frozenset({CPU, "memory", "ephemeral-storage", PODS})
#: Counted in bytes.
BYTES: Final = frozenset({"memory", "ephemeral-storage"})

Quantity = str | int | float

#: The largest quantity that the API takes; what is written above it is cut down to it before it is stored.
LARGEST: Final = 2**63 - 1
#: Powers of ten and characters beyond which a quantity is not worked out: no API server stores such a one.
_EXPONENT: Final = 40
_LENGTH: Final = 64

_PATTERN: Final = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)")
_SUFFIXES: Final[Mapping[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024**power) for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


def asks_for_device(container: core.Container) -> bool:
    """Tell whether a container asks for devices: as an extended resource, or by a claim."""
    wanted = container.resources
    if wanted is None:
        return False
    return bool(wanted.claims) or any(map(is_device, {**(wanted.requests or {}), **(wanted.limits or {})}))


@lru_cache(maxsize=16_384)
def parse_quantity(quantity: Quantity) -> Fraction:
    """The exact value of a quantity: plain, with a decimal or binary suffix, or with an exponent.

    Raises:
        ValueError: when it is none, or one that is far beyond what the API takes.
    """
    text = str(quantity).strip()
    match = _PATTERN.fullmatch(text) if len(text) <= _LENGTH else None
    if match is None:
        raise ValueError(f"{text[:_LENGTH]!r} is not a quantity")
    digits, exponent, suffix = match.groups()
    if exponent and (len(exponent) > len("e+40") or abs(int(exponent[1:])) > _EXPONENT):
        raise ValueError(f"{text!r} is out of range")
    return Fraction(digits + exponent) if exponent else Fraction(digits) * _SUFFIXES[suffix or ""]


@lru_cache(maxsize=16_384)
def amount(resource: str, quantity: Quantity) -> int:
    """A quantity as the integer that is counted: milli-units for cpu, else whole units; rounded up.

    Raises:
        ValueError: when it is no quantity.
    """
    value = parse_quantity(quantity)
    return ceil(value * 1000) if resource == CPU else ceil(value)


def amounts(quantities: Mapping[str, Quantity] | None) -> dict[str, int]:
    """All quantities of a resource list as integers."""
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def is_device(resource: str) -> bool:
    """Tell whether a resource is an extended one: a plugin offers it under a domain of its own, as GPUs are."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def text(resource: str, value: int) -> str:
    """Return an integer as the API writes it: cpu in milli-units (``m``), bytes with the largest suffix that fits."""
    if resource == CPU:
        return f"{value}m"
    if resource in BYTES and value:
        for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{suffix}"
    return str(value)


def rank(resource: str) -> tuple[int, str]:
    """Sort key that names devices before cpu, memory and the rest: they are what people look for first.

    A channel comes after the devices for whose sake it is claimed.
    """
    order = {constants.RESOURCE_CHANNEL: 1, CPU: 2, "memory": 3, "ephemeral-storage": 4, PODS: 5}
    return (order.get(resource, 0), resource)


def pod_requests(pod: core.Pod) -> dict[str, int]:
    """Compute what a pod takes from its node, ``pods`` = 1 included, zeros left out.

    The rule is kube-scheduler's: the larger of what runs together (containers and sidecars) and of the init containers
    one after another, each together with the sidecars started before it; pod-level resources stand above that; overhead
    is added.
    """
    spec = pod.spec
    running = _sum(_requests(container.resources) for container in spec.containers)
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers or ():
        own = _requests(container.resources)
        if container.restart_policy == "Always":
            sidecars = _sum((sidecars, own))
            starting = _larger(starting, sidecars)
        else:
            starting = _larger(starting, _sum((sidecars, own)))
    total = _larger(_sum((running, sidecars)), starting)
    total |= _pod_level(spec.resources, total)
    total = _sum((total, amounts(spec.overhead)))
    total[PODS] = 1
    return {name: value for name, value in total.items() if value > 0}


def _requests(resources: core.Resources | None) -> dict[str, int]:
    """A container's requests; a limit without a request is the request."""
    return {} if resources is None else amounts({**(resources.limits or {}), **(resources.requests or {})})


def _pod_level(resources: core.Resources | None, containers: Mapping[str, int]) -> dict[str, int]:
    """Return pod-level requests; a limit counts only where no container asks for the resource (the API's default)."""
    if resources is None:
        return {}
    limits = {name: value for name, value in amounts(resources.limits).items() if name not in containers}
    return limits | amounts(resources.requests)


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}
