"""Quantities as integers, what a pod asks of its node, and by which resource things are measured.

kube-scheduler counts cpu in milli-units and everything else in whole units (bytes, devices), both rounded up; so does
Covey, or the two would disagree about the last pod on a node. Every quantity is parsed once: the same few strings
come back on thousands of objects.

A *device* is what placements are short of: an extended resource, such as a GPU, but no share of a network card, of which
there are many for one GPU. Unlike amounts are never added up: what is measured is measured by one resource (`measure`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from covey.api import constants, core

CPU: Final = "cpu"
PODS: Final = "pods"
#: Counted in bytes.
BYTES: Final = frozenset({"memory", "ephemeral-storage"})
#: Memory in pages of the size that follows, in bytes.
_HUGE_PAGES: Final = "hugepages-"
#: Network cards, as device plugins share them out: EFA of AWS (32 for 8 GPUs), RDMA (a thousand of a card).
_NETWORK: Final = ("rdma/", "vpc.amazonaws.com/efa")
#: Node labels that name the product behind a resource, in addition to ``<resource>.product``: NVIDIA's and Intel's
#: feature discovery, AMD's node labeller, GKE.
_PRODUCT_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "nvidia.com/gpu": ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"),
    "amd.com/gpu": ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"),
    "gpu.intel.com/i915": ("gpu.intel.com/product",),
    "gpu.intel.com/xe": ("gpu.intel.com/product",),
    "google.com/tpu": ("cloud.google.com/gke-tpu-accelerator",),
}
#: Beginnings of the names under which parts of devices with a product are offered.
_PARTS: Final = ("nvidia.com/gpu.shared", "nvidia.com/mig-")
#: Part of the names under which devices of DRA drivers are counted (``claims``, ``classes``).
_OF_DRIVERS: Final = "deviceclass.resource."
#: The place of what is no device in the order in which extended resources are measured by.
_NETWORKED: Final = 2

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
    """Tell whether a container asks for an extended resource, or for devices by a claim."""
    wanted = container.resources
    if wanted is None:
        return False
    return bool(wanted.claims) or any(map(is_extended, {**(wanted.requests or {}), **(wanted.limits or {})}))


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


def is_extended(resource: str) -> bool:
    """Tell whether a resource is an extended one: a plugin offers it under a domain of its own, as GPUs are."""
    return "/" in resource and not resource.startswith("kubernetes.io/")


def is_device(resource: str) -> bool:
    """Tell whether a resource is an extended one, and neither a share of a network card nor an interconnect's channel."""
    return is_extended(resource) and not resource.startswith(_NETWORK) and resource != constants.RESOURCE_CHANNEL


def product_of(resource: str, labels: Mapping[str, str]) -> str:
    """The product of a resource's devices as the labels of their node name it; empty where none does."""
    keys = (f"{resource}.product", *_PRODUCT_LABELS.get(resource, ()))
    return next((labels[key] for key in keys if labels.get(key)), "")


def measure(wanted: Mapping[str, int], nodes: Iterable[tuple[Mapping[str, str], Mapping[str, int]]] = ()) -> str:
    """The one resource by which pods, victims, domains and pictures are measured.

    It is the device that is asked for; else the extended resource that is; else the device that nodes offer; else cpu. Of
    several devices those with a product come first, then that of which there is most.

    Args:
        wanted: what pods ask for together, by resource.
        nodes: the labels of each node, and what it offers. Not looked at where pods ask for an extended resource.
    """
    order, totals = dict[str, int](), Counter[str]()
    for name, value in wanted.items():
        if value > 0 and is_extended(name):
            order[name] = _order(name, {})
            totals[name] = value
    for labels, offered in nodes if not order else ():
        for name, value in offered.items():
            if value > 0 and is_device(name):
                order[name] = min(_order(name, labels), order.get(name, _NETWORKED))
                totals[name] += value
    return min(order, key=lambda name: (order[name], -totals[name], name), default=CPU)


def find_devices(labels: Mapping[str, str], offered: Iterable[str]) -> frozenset[str]:
    """The devices by which a node is measured: while nothing of them is taken it is wholly free.

    Of what it offers those with a product, else all devices; devices of DRA drivers in any case, which may be parts of
    the others; perhaps none.
    """
    devices = {name: _order(name, labels) for name in offered if is_device(name)}
    first = min(devices.values(), default=0)
    return frozenset(name for name, order in devices.items() if order == first or _OF_DRIVERS in name)


def _order(resource: str, labels: Mapping[str, str]) -> int:
    if not is_device(resource):
        return _NETWORKED
    known = resource in _PRODUCT_LABELS or resource.startswith(_PARTS)
    return 0 if known or product_of(resource, labels) else 1


def text(resource: str, value: int) -> str:
    """Return an integer as the API writes it: cpu in milli-units (``m``), bytes with the largest suffix that fits."""
    if resource == CPU:
        return f"{value}m"
    if value and (resource in BYTES or resource.startswith(_HUGE_PAGES)):
        for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{suffix}"
    return str(value)


def rank(resource: str) -> tuple[int, str]:
    """Sort key that names devices before cpu, memory and the rest: they are what people look for first.

    Network cards and channels come after the devices for whose sake they are claimed.
    """
    if is_extended(resource):
        return (0 if is_device(resource) else 1, resource)
    order = {CPU: 2, "memory": 3, "ephemeral-storage": 5, PODS: 6}
    return (order.get(resource, 4), resource)


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
