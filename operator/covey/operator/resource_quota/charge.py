"""The charge of a pod in ResourceQuotas, as Kubernetes computes it (``pkg/quota/v1/evaluator/core/pods.go``).

A pod that is gated is charged like any other, from its creation on. Its requests and limits are the larger of what runs
together (containers and sidecars) and of the init containers one after another, each together with the sidecars started
before it; resources of the pod itself stand above that, and overhead is added. What admission would still change is
known as far as it comes from defaults of the API (a limit is a request) and of LimitRanges.

Claims that are made of templates for a pod are charged when they are made, by quotas without scopes alone
(``resource_claims.go``): each claim, and the devices of a class under its own name and under the extended resources by
which pods may ask for them. Claims that a pod names are there and charged already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from covey.api import core
from covey.api.constants import INTERCONNECT_CLAIMS, RESOURCE_CHANNEL
from covey.placement.cluster.classes import IMPLICIT
from covey.placement.cluster.device_claims import DeviceAsk
from covey.placement.cluster.resources import parse_quantity

#: Resources that Kubernetes itself offers; all others are extended ones.
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = "hugepages-"
#: What the resources of a whole pod may say.
_POD_LEVEL: Final = frozenset({"cpu", "memory"})
_ONE: Final = Fraction(1)
#: Devices that a request for all of a node is charged (``AllocationResultsMaxSize``).
_ALL_DEVICES: Final = 32

Amounts = dict[str, Fraction]
#: A claim, whatever it asks for; and one of the template that NVIDIA's driver makes of a ComputeDomain once that is there.
_OF_CLAIM: Final[Amounts] = {"count/resourceclaims.resource.k8s.io": _ONE}
_OF_CHANNEL: Final[Amounts] = {**_OF_CLAIM, RESOURCE_CHANNEL: _ONE}
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodCharge:
    """The amounts that quotas charge for a pod, and the facts that their scopes ask for.

    ``amounts``: without zeros, sorted by resource; counts, cores and bytes. ``claimed``: the same of claims that are to
    be made for it.
    """

    amounts: tuple[tuple[str, Fraction], ...]
    terminating: bool = False
    best_effort: bool = False
    priority_class: str = ""
    across_namespaces: bool = False
    claimed: tuple[tuple[str, Fraction], ...] = ()

    def __hash__(self) -> int:
        """Hash little, for speed: a resource has few kinds of pods, and thousands of each are counted."""
        return hash((len(self.amounts), self.priority_class))


def amounts_of_claim(spec: core.DeviceClaimSpec, classes: Mapping[str, core.DeviceClass]) -> Amounts:
    """Compute the amounts that a claim is charged.

    Args:
        spec: what it asks for; of several kinds the most of each class counts.
        classes: the DeviceClasses that it names, as far as they exist.
    """
    devices = Counter[str]()
    for request in spec.devices.requests or ():
        most: dict[str, int] = {}
        for alternative in request.kinds:
            count = _ALL_DEVICES if alternative.allocation_mode == "All" else alternative.count
            most[alternative.device_class_name] = max(count, most.get(alternative.device_class_name, 0))
        devices.update(most)
    amounts = dict(_OF_CLAIM)
    for name, count in devices.items():
        amounts[DeviceAsk(name).resource] = Fraction(count)
        if name in classes:
            asked = (classes[name].spec.extended_resource_name, f"{IMPLICIT}{name}")
            amounts |= {f"requests.{device_class}": Fraction(count) for device_class in asked if device_class}
    return amounts


def charge_of_claims(claims: Iterable[Object], charges: Mapping[str, Amounts]) -> PodCharge:
    """Compute the charge of claims that are to be made; one whose template is not known counts as a claim.

    Args:
        claims: as they stand in a pod's spec.
        charges: by template, the amounts of a claim.
    """
    templates = ((claim.get("resourceClaimTemplateName") or "", claim["name"]) for claim in claims)
    made, other = (
        Counter(name_and_claim for name_and_claim in templates if name_and_claim[0]),
        dict.fromkeys(INTERCONNECT_CLAIMS, _OF_CHANNEL),
    )
    total = _sum(
        {resource: value * count for resource, value in (charges.get(template) or other.get(name, _OF_CLAIM)).items()}
        for (template, name), count in made.items()
    )
    return PodCharge((), claimed=tuple(sorted(total.items())))


def charge_of(
    pod: Object, ranges: Sequence[core.LimitRange] = (), charges: Mapping[str, Amounts] | None = None
) -> PodCharge:
    """Compute the charge of a pod when it is created.

    Args:
        pod: as it is sent to the API server.
        ranges: the LimitRanges of its namespace.
        charges: by ResourceClaimTemplate, the amounts of a claim.
    """
    spec = _with_defaults(pod["spec"], ranges)
    requests, limits = _total(spec, "requests"), _total(spec, "limits")
    amounts: Amounts = {"count/pods": _ONE, "pods": _ONE}
    for name, value in requests.items():
        if name in _STANDARD or name.startswith(_HUGE_PAGES):
            amounts[name] = amounts[f"requests.{name}"] = value
        else:
            amounts[f"requests.{name}"] = value
    amounts |= {f"limits.{name}": value for name, value in limits.items() if name in _STANDARD}
    deadline = spec.get("activeDeadlineSeconds")
    return PodCharge(
        tuple(sorted((name, value) for name, value in amounts.items() if value)),
        terminating=deadline is not None and deadline >= 0,
        best_effort=_is_best_effort(spec),
        priority_class=spec.get("priorityClassName") or "",
        across_namespaces=_reaches_across(spec.get("affinity") or {}),
        claimed=charge_of_claims(spec.get("resourceClaims") or (), charges or {}).claimed,
    )


def _with_defaults(spec: Object, ranges: Sequence[core.LimitRange]) -> Object:
    """The spec with the defaults of its containers: the API's first, then those of LimitRanges."""
    completed = dict(spec)
    for key in ("containers", "initContainers"):
        completed[key] = [
            {**container, "resources": add_defaults(container.get("resources") or {}, ranges)}
            for container in spec.get(key) or ()
        ]
    return completed


def add_defaults(resources: Object, ranges: Sequence[core.LimitRange]) -> dict[str, dict[str, Any]]:
    """The limits and requests of a container with the defaults of the API and of its namespace's LimitRanges.

    The API's own come first: a limit that the template has is its request, whatever a LimitRange says. Of a LimitRange the
    maximum stands for a default that it lacks, and then the minimum for a request (``SetDefaults_LimitRangeItem``).
    """
    limits = dict(resources.get("limits") or {})
    requests = {**limits, **(resources.get("requests") or {})}
    for rule in (rule for range_ in ranges for rule in range_.spec.limits if rule.type == "Container"):
        default = {**(rule.max or {}), **(rule.default or {})}
        limits = {**default, **limits}
        requests = {**(rule.min or {}), **default, **(rule.default_request or {}), **requests}
    return {"limits": limits, "requests": requests}


def _total(spec: Object, side: str) -> Amounts:
    running = _sum(_amounts(container, side) for container in spec["containers"])
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in spec["initContainers"]:
        own = _sum((_amounts(container, side), sidecars))
        starting = _larger(starting, own)
        if container.get("restartPolicy") == "Always":
            sidecars = own
    total = _larger(_sum((running, sidecars)), starting)
    total |= _of_pod(spec.get("resources") or {}, side, total)
    overhead = _quantities(spec.get("overhead"))
    if side == "limits":
        overhead = {name: value for name, value in overhead.items() if total.get(name)}
    return _sum((total, overhead))


def _of_pod(resources: Object, side: str, containers: Amounts) -> Amounts:
    """Resources of the pod itself; its limit is its request where no container says any."""
    amounts = _quantities(resources.get(side))
    if side == "requests":
        limits = _quantities(resources.get("limits"))
        amounts = {name: value for name, value in limits.items() if name not in containers} | amounts
    return {name: value for name, value in amounts.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}


def _is_best_effort(spec: Object) -> bool:
    """Tell whether no container, nor the pod itself, asks for or limits cpu or memory."""
    every = [container["resources"] for container in (*spec["containers"], *spec["initContainers"])]
    every.append(spec.get("resources") or {})
    return not any(
        value
        for resources in every
        for side in ("requests", "limits")
        for name, value in _quantities(resources.get(side)).items()
        if name in _POD_LEVEL
    )


def _reaches_across(affinity: Object) -> bool:
    """Tell whether the affinity to pods, or against them, names other namespaces, or how to find them."""
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        wishes = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [wish.get("podAffinityTerm") or {} for wish in wishes]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def _amounts(container: Object, side: str) -> Amounts:
    return _quantities(container["resources"].get(side))


def _quantities(quantities: Mapping[str, str | int | float] | None) -> Amounts:
    return {name: parse_quantity(value) for name, value in (quantities or {}).items()}


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Fraction(0)) + value
    return total


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in (*one, *other)}
