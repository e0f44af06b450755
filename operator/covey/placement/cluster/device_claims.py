"""Claims of devices, as far as they can be counted: so many devices of a class, or of those that selectors leave of it. Pure.

Everything else that a claim may say is refused by name (`UnsupportedClaimError`), never left out of account.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from covey.api import core
from covey.placement.cluster.selectors import canonical_selector, parse_selector

#: As ResourceQuotas name the devices that claims ask for: ``<class>.deviceclass.resource.k8s.io/devices``.
CLAIMED: Final = ".deviceclass.resource.k8s.io/"
#: Devices of a claim, of that for the extended resources of a pod, too: ``AllocationResultsMaxSize``.
MOST_DEVICES: Final = 32
#: Characters of the selectors of a request, beyond which they are not read: they are judged for every device.
_LONGEST: Final = 1000
#: Characters of a selector that stand in the name of its resource.
_SHOWN: Final = 60
_MEMBER: Final = re.compile(r'(?:device \. )?(?:attributes|capacity) \[ ["\'][^"\']*["\'] \] \. |device \. (?=driver)')


#: Of a claim that pods name: only one of them could be counted with its devices.
SHARED: Final = "is named by several pods and not allocated yet: let each pod have its own, of a template"
#: Where claims cannot be had at all.
UNSERVED: Final = "resourceClaims need resource.k8s.io/v1, which is not served here"


class UnsupportedClaimError(ValueError):
    """A claim asks for something that cannot be counted; the text goes on after its name."""


class DeviceAsk(NamedTuple):
    """A class and the selectors of a request, in one spelling: devices that both leave."""

    device_class: str
    selectors: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """The resource by which such devices are counted, with its selectors as far as people read them."""
        return f"{self.device_class}{CLAIMED}{_short(self.selectors) if self.selectors else 'devices'}"

    @property
    def key(self) -> str:
        """Name of the condition that such devices meet."""
        return self.resource if self.selectors else self.device_class


@lru_cache(maxsize=1024)
def _short(selectors: tuple[str, ...]) -> str:
    # Tenants choose both: what they cannot choose is 128 bits of a hash. Two selectors are not one of both.
    shown, digest = _MEMBER.sub("", " && ".join(selectors))[:_SHOWN], sha256("\0".join(selectors).encode()).hexdigest()
    return f"{shown}~{digest[:32]}"


def missing_class(ask: DeviceAsk) -> str:
    """The reason for which devices cannot be counted of a DeviceClass that does not exist."""
    return f"{ask.resource} is of DeviceClass {ask.device_class}, which does not exist: create it"


def asks_of(spec: core.DeviceClaimSpec) -> Mapping[DeviceAsk, int]:
    """The devices that a claim asks for.

    Raises:
        UnsupportedClaimError: some of it cannot be counted.
    """
    if spec.devices.constraints:
        raise UnsupportedClaimError("has constraints between devices, which Covey cannot count: remove them")
    asks = Counter[DeviceAsk]()
    for request in spec.devices.requests or ():
        if request.exactly is None:
            raise UnsupportedClaimError(f"has request {request.name} without exactly: ask for one kind of device")
        for field in _uncounted_fields(request.exactly):
            raise UnsupportedClaimError(f"has request {request.name} with {field}, which Covey cannot count: remove it")
        asks[DeviceAsk(request.exactly.device_class_name, _selectors(request))] += request.exactly.count
    if asks.total() > MOST_DEVICES:
        raise UnsupportedClaimError(
            f"asks for {asks.total()} devices, and a claim may have {MOST_DEVICES}: ask for fewer"
        )
    return asks


def claims_named(pod: core.Pod) -> Iterator[tuple[str, str]]:
    """Namespace and name of the claims that a pod names itself."""
    for pod_claim in pod.spec.resource_claims or ():
        if name := pod_claim.get("resourceClaimName"):
            yield pod.metadata.namespace, name


def claims_of(pod: core.Pod) -> Iterator[tuple[str, str]]:
    """The same of all claims of a pod's spec: those that it names, and those that were made of templates."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    for pod_claim in pod.spec.resource_claims or ():
        if name := pod_claim.get("resourceClaimName") or made.get(pod_claim.get("name", "")):
            yield pod.metadata.namespace, name


def unmade_claims(pod: core.Pod) -> Iterator[Mapping[str, str]]:
    """The claims of a pod's spec that kube-controller-manager has not made of their templates yet."""
    made = {status.name for status in pod.status.resource_claim_statuses or ()}
    for pod_claim in pod.spec.resource_claims or ():
        if pod_claim.get("resourceClaimTemplateName") and pod_claim.get("name") not in made:
            yield pod_claim


def templates_of(pod: core.Pod) -> Iterator[tuple[str, str]]:
    """Namespace and name of the templates of these, one for each claim."""
    return ((pod.metadata.namespace, claim["resourceClaimTemplateName"]) for claim in unmade_claims(pod))


def asks_of_templates(
    pod: core.Pod, templates: Mapping[tuple[str, str], core.ResourceClaimTemplate]
) -> Counter[DeviceAsk]:
    """All that claims of a pod will ask for once they are made, of the templates that are known.

    Raises:
        UnsupportedClaimError: some of it cannot be counted; the text names the template.
    """
    asks = Counter[DeviceAsk]()
    for key in templates_of(pod):
        try:
            asks.update(asks_of(templates[key].spec.spec) if key in templates else {})
        except UnsupportedClaimError as error:
            raise UnsupportedClaimError(f"ResourceClaimTemplate {key[1]} {error}") from None
    return asks


def asks_of_pod(pod: core.Pod, claims: Mapping[tuple[str, str], core.ResourceClaim]) -> Counter[DeviceAsk]:
    """All that the claims of a pod ask for and nobody has given to others yet, as far as they are known.

    Raises:
        UnsupportedClaimError: some of it cannot be counted; the text names the claim.
    """
    asks, named = Counter[DeviceAsk](), set(claims_named(pod))
    for key in claims_of(pod):
        claim = claims.get(key)
        if claim is not None and (key not in named or claim.status.allocation is None):
            try:
                asks.update(asks_of(claim.spec))
            except UnsupportedClaimError as error:
                raise UnsupportedClaimError(f"ResourceClaim {key[1]} {error}") from None
    return asks


def find_held(
    pod: core.Pod, asks: Iterable[DeviceAsk], claims: Mapping[tuple[str, str], core.ResourceClaim]
) -> frozenset[DeviceAsk]:
    """Find those of a pod's asks of which every claim is allocated: it has these devices, and asks for no more.

    None before it is bound: a pin may have to be judged once more.
    """
    if not pod.spec.node_name:
        return frozenset()
    known = {key: claim for key in claims_of(pod) if (claim := claims.get(key)) is not None}
    try:
        waiting = asks_of_pod(pod, {key: claim for key, claim in known.items() if claim.status.allocation is None})
    except UnsupportedClaimError:
        return frozenset()
    return frozenset(asks).difference(waiting) if known else frozenset()


def _uncounted_fields(exactly: core.ExactRequest) -> Iterator[str]:
    if exactly.allocation_mode != "ExactCount":
        yield f"allocationMode {exactly.allocation_mode}"
    for name, value in (
        ("adminAccess", exactly.admin_access),
        ("tolerations", exactly.tolerations),
        ("capacity", exactly.capacity),
    ):
        if value:
            yield name


def _selectors(request: core.DeviceRequest) -> tuple[str, ...]:
    """The selectors in one spelling. Their order stays: kube-scheduler judges one after the other."""
    exactly = request.exactly
    texts = [
        (selector.get("cel") or {}).get("expression", "") for selector in (exactly.selectors if exactly else None) or ()
    ]
    if sum(map(len, texts)) > _LONGEST:
        raise UnsupportedClaimError(
            f"has request {request.name} with selectors of more than {_LONGEST:,} characters: shorten them"
        )
    try:
        for text in texts:
            parse_selector(text)
        return tuple(dict.fromkeys(map(canonical_selector, texts)))
    except (ValueError, RecursionError):  # a number of thousands of digits, parentheses a thousand deep
        raise UnsupportedClaimError(
            f"has request {request.name} with selectors that Covey cannot judge: it knows ==, in, compareTo and && on a"
            " device's driver, attributes and capacity"
        ) from None
