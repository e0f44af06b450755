"""Reads what pods would claim before they are created: templates, claims that they name, and DeviceClasses.

They are asked for by name when pods are about to be created, and nothing of them is kept. What does not exist, and what
a claim says that cannot be counted, is refused in the words of the scheduler process. It alone judges devices, once the
claims are made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from covey.api import constants as names
from covey.api import core
from covey.kube.client import Client
from covey.kube.errors import Forbidden, NotFound
from covey.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Resource
from covey.observability import operator_metrics as metrics
from covey.observability.logging import get_logger
from covey.operator.model.problem import REASON_REFUSED, Problem
from covey.operator.resource_quota.charge import Amounts, amounts_of_claim
from covey.placement.cluster.device_claims import (
    SHARED,
    UNSERVED,
    UnsupportedClaimError,
    asks_of_pod,
    asks_of_templates,
    claims_named,
    missing_class,
    templates_of,
)

Key = tuple[str, str]
T = TypeVar("T", bound=core.Read)

_log = get_logger(__name__)

#: Objects of a kind that are read for a pod, or for the pods of a namespace: tenants choose how many they name.
_MOST: Final = 512


class _Sources(NamedTuple):
    """Templates, claims and their classes, as far as they exist."""

    templates: Mapping[Key, core.ResourceClaimTemplate]
    claims: Mapping[Key, core.ResourceClaim]
    classes: Mapping[str, core.DeviceClass]


async def find_claim_problem(
    client: Client, namespace: str, claims: Iterable[dict[str, Any]], shared: Collection[str]
) -> Problem | None:
    """Report what does not exist of what the claims of a pod name, or what they say that nobody can count; else None.

    Args:
        client: to the API server.
        namespace: of the pod.
        claims: as they stand in its spec.
        shared: those that several pods would name.

    Raises:
        KubeError: when the API server could not be asked.
    """
    # The driver makes the template of a ComputeDomain once there is one.
    claims = tuple(claim for claim in claims if claim.get("name") not in names.INTERCONNECT_CLAIMS)
    pod = core.Pod(metadata=core.Meta(namespace=namespace), spec=core.PodSpec(resource_claims=claims))
    templates, named = set(templates_of(pod)), set(claims_named(pod))
    try:
        sources = await _read_sources(client, templates, named)
        missing = [f"ResourceClaimTemplate {name}" for _, name in templates - sources.templates.keys()]
        missing += [f"ResourceClaim {name}" for _, name in named - sources.claims.keys()]
        if missing:
            return Problem(names.REASON_WAITING, f"{min(missing)} does not exist: create it", retry=True)
        refusal = _find_refusal(pod, sources, shared)
    except UnsupportedClaimError as error:
        refusal = str(error)
    except Forbidden as error:
        return Problem(REASON_REFUSED, error.message, retry=True)
    return Problem(names.REASON_UNSUPPORTED, refusal, retry=True, by_person=True) if refusal else None


async def read_charges(client: Client, templates: Collection[Key]) -> Mapping[str, Amounts]:
    """Read what quotas charge for claims of templates, by their names; those that cannot be read are left out.

    Raises:
        KubeError: when the API server could not be asked.
    """
    try:
        sources = await _read_sources(client, templates)
    except (UnsupportedClaimError, Forbidden) as error:
        # What runs has to be completed all the same.
        metrics.CLAIMS_UNCOUNTED.inc()
        _log.warning("claims are not counted against quotas", error=str(error))
        return {}
    return {
        key[1]: amounts_of_claim(template.spec.spec, sources.classes) for key, template in sources.templates.items()
    }


async def _read_sources(client: Client, templates: Collection[Key], claims: Collection[Key] = ()) -> _Sources:
    stored = await _read(client, RESOURCE_CLAIM_TEMPLATES, templates, core.ResourceClaimTemplate)
    named = await _read(client, RESOURCE_CLAIMS, claims, core.ResourceClaim)
    specs = [*(template.spec.spec for template in stored.values()), *(claim.spec for claim in named.values())]
    requests = (request for spec in specs for request in spec.devices.requests or ())
    kinds = {("", kind.device_class_name) for request in requests for kind in request.kinds}
    classes = await _read(client, DEVICE_CLASSES, kinds, core.DeviceClass)
    return _Sources(stored, named, {name: device_class for (_, name), device_class in classes.items()})


async def _read(client: Client, resource: Resource, keys: Collection[Key], kind: type[T]) -> dict[Key, T]:
    """Read those of these objects that exist."""
    if len(keys) > _MOST:
        raise UnsupportedClaimError(f"more than {_MOST} {resource.plural} are named, which Covey does not read")

    async def get(namespace: str, name: str) -> T | None:
        try:
            return await client.get(resource, name, namespace or None, type=kind)
        except NotFound as error:
            # Of a resource that it knows the API server says which object it lacks.
            if not error.details:
                raise UnsupportedClaimError(UNSERVED) from None
            return None

    objects = await asyncio.gather(*(get(*key) for key in keys))
    return {key: stored for key, stored in zip(keys, objects, strict=True) if stored is not None}


def _find_refusal(pod: core.Pod, sources: _Sources, shared: Collection[str]) -> str | None:
    for (_, name), claim in sources.claims.items():
        if claim.status.allocation is None and name in shared:
            return f"ResourceClaim {name} {SHARED}"
    asks = asks_of_pod(pod, sources.claims) + asks_of_templates(pod, sources.templates)
    return next((missing_class(ask) for ask in asks if ask.device_class not in sources.classes), None)
