"""The facts of a cluster that answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeVar

import msgspec

from covey.admission.volumes import PersistentVolume, VolumeClaim
from covey.api import core
from covey.api.constants import LABEL_INFERENCE
from covey.kube.client import Client
from covey.kube.errors import Forbidden, NotFound
from covey.kube.resources import (
    CLUSTER_TOPOLOGIES,
    COMPOSITE_POD_GROUPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from covey.operator.model.objects import CONTROLLER_REVISIONS, ControllerRevision
from covey.planning.facts import Facts, with_devices

T = TypeVar("T")


async def read_cluster(client: Client) -> Facts:
    """Everything that a plan depends on, as it is now."""
    nodes, pods, topologies, classes, groups, (claims, volumes, warnings) = await asyncio.gather(
        client.list(NODES, type=core.Node),
        client.list(PODS, type=core.Pod),
        list_if_served(client, CLUSTER_TOPOLOGIES, core.ClusterTopology),
        client.list(PRIORITY_CLASSES, type=core.PriorityClass),
        list_groups(client),
        _volumes(client),
    )
    things, denied = await _devices(client)
    warnings = (*warnings, *denied)
    facts = Facts(
        tuple(nodes[0]), tuple(pods[0]), tuple(topologies), tuple(classes[0]), groups, claims, volumes, warnings
    )
    return with_devices(facts, things)


async def _devices(client: Client) -> tuple[tuple[core.DeviceObject, ...], tuple[str, ...]]:
    """Devices of drivers, and who has them; nothing but a warning for who may not read them."""
    try:
        found = await asyncio.gather(
            list_if_served(client, DEVICE_CLASSES, core.DeviceClass),
            list_if_served(client, RESOURCE_SLICES, core.ResourceSlice),
            list_if_served(client, RESOURCE_CLAIMS, core.ResourceClaim),
            _templates(client),
            list_if_served(client, DEVICE_TAINT_RULES, core.DeviceTaintRule),
        )
    except Forbidden as error:
        return (), (f"devices of drivers are not taken into account: {error.message}",)
    return tuple(thing for things in found for thing in things), ()


async def _templates(client: Client) -> list[core.ResourceClaimTemplate]:
    """Templates of claims; none for who may not read them: a pod that names one is then refused by it."""
    try:
        return await list_if_served(client, RESOURCE_CLAIM_TEMPLATES, core.ResourceClaimTemplate)
    except Forbidden:
        return []


async def with_queues(facts: Facts, client: Client) -> Facts:
    """The facts, and the Queues with the namespaces that they select; nothing but a warning for who may not read them."""
    try:
        queues = await list_if_served(client, QUEUES, core.Queue)
        namespaces = (await client.list(NAMESPACES, type=core.Namespace))[0] if queues else []
    except Forbidden as error:
        return replace(facts, warnings=(*facts.warnings, f"quota is not counted: {error.message}"))
    return replace(facts, queues=tuple(queues), namespaces=tuple(namespaces))


async def with_revisions(facts: Facts, client: Client) -> Facts:
    """The facts, and the revisions of what may change; nothing but a warning for who may not read them."""
    try:
        found, _ = await client.list(CONTROLLER_REVISIONS, labels=LABEL_INFERENCE, type=ControllerRevision)
    except Forbidden as error:
        what = f"as what pods were made is known by their labels alone: {error.message}"
        return replace(facts, warnings=(*facts.warnings, what))
    return replace(facts, revisions=tuple(found))


async def _volumes(
    client: Client,
) -> tuple[tuple[VolumeClaim, ...], tuple[PersistentVolume, ...], tuple[str, ...]]:
    """Claims and volumes; nothing but a warning for who may not read them, as many may not."""
    try:
        claims, volumes = await asyncio.gather(
            client.list(VOLUME_CLAIMS, type=VolumeClaim), client.list(VOLUMES, type=PersistentVolume)
        )
    except Forbidden as error:
        return (), (), (f"where volumes are is not taken into account: {error.message}",)
    return tuple(claims[0]), tuple(volumes[0]), ()


async def list_if_served(client: Client, resource: Resource, kind: type[T], namespace: str | None = None) -> list[T]:
    """All objects of a kind; none where its CRD is not installed."""
    try:
        items, _ = await client.list(resource, namespace, type=kind)
    except NotFound:
        return []
    return items


async def list_groups(client: Client, namespace: str | None = None) -> tuple[core.Group, ...]:
    """All groups; in a LIST the API server leaves the kind of items out."""
    found = await asyncio.gather(
        *(list_if_served(client, resource, core.Group, namespace) for resource in (COMPOSITE_POD_GROUPS, POD_GROUPS))
    )
    kinds = (COMPOSITE_POD_GROUPS.kind, POD_GROUPS.kind)
    return tuple(
        msgspec.structs.replace(group, kind=kind) for kind, groups in zip(kinds, found, strict=True) for group in groups
    )
