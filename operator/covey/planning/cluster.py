"""The facts of a cluster that answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from covey.admission.volumes import PersistentVolume, VolumeClaim
from covey.api import core
from covey.api.constants import LABEL_INFERENCE
from covey.api.inference import DisaggregatedInference
from covey.compile import Revision, Slot, compile_inference
from covey.kube.client import Client
from covey.kube.errors import ApiError, Forbidden, NotFound
from covey.kube.resources import (
    CLUSTER_TOPOLOGIES,
    COMPOSITE_POD_GROUPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    RUNTIME_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestPath
from covey.operator.model.objects import CONTROLLER_REVISIONS, ControllerRevision
from covey.operator.model.problem import of_pod_refusal
from covey.operator.validation import find_revision
from covey.planning.facts import ClusterFacts, TemplateKey, with_devices
from covey.planning.request import Manifests, revisions_of

T = TypeVar("T")


async def read_cluster(client: Client) -> ClusterFacts:
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
    facts = ClusterFacts(
        tuple(nodes[0]), tuple(pods[0]), tuple(topologies), tuple(classes[0]), groups, claims, volumes, warnings
    )
    return with_devices(facts, things)


async def _devices(client: Client) -> tuple[tuple[core.DeviceObject, ...], tuple[str, ...]]:
    """Devices of drivers, and who has them; nothing but a warning for who may not read them."""
    try:
        lists = await asyncio.gather(
            list_if_served(client, DEVICE_CLASSES, core.DeviceClass),
            list_if_served(client, RESOURCE_SLICES, core.ResourceSlice),
            list_if_served(client, RESOURCE_CLAIMS, core.ResourceClaim),
            _templates(client),
            list_if_served(client, DEVICE_TAINT_RULES, core.DeviceTaintRule),
        )
    except Forbidden as error:
        return (), (f"devices of drivers are not taken into account: {error.message}",)
    return tuple(thing for things in lists for thing in things), ()


async def _templates(client: Client) -> list[core.ResourceClaimTemplate]:
    """Templates of claims; none for who may not read them: a pod that names one is then refused by it."""
    try:
        return await list_if_served(client, RESOURCE_CLAIM_TEMPLATES, core.ResourceClaimTemplate)
    except Forbidden:
        return []


async def with_samples(facts: ClusterFacts, manifests: Manifests, client: Client) -> ClusterFacts:
    """The facts, and what the API server would make of a pod of each template: a dry run creates one.

    It has a name of its own and none of Covey's labels. Where no answer comes (these credentials may not create pods, quota
    or a webhook refuses it), LimitRanges and RuntimeClasses are read instead.

    Raises:
        InputError: the API server will never take the pods of a template.
    """
    revisions = revisions_of(facts)
    templates: list[_Template] = []
    for document, inference, _ in manifests.inferences:
        key = (inference.metadata.namespace, inference.metadata.name)
        templates += _templates_of(document, inference, revisions.get(key, ()))
    answers = await asyncio.gather(*(_ask_for_pod(client, template) for template in templates))
    facts = replace(facts, samples={template.key: answer for template, answer in zip(templates, answers, strict=True)})
    if not manifests.parts.pods and not any(isinstance(answer, str) for answer in answers):
        return facts
    namespaces = {template.key[0] for template in templates} | {namespace for namespace, _ in manifests.parts.pods}
    return await _with_defaults(facts, client, sorted(namespaces))


@dataclass(frozen=True, slots=True)
class _Template:
    """A template, where it stands, and a pod of it."""

    key: TemplateKey
    place: ManifestPath
    body: dict[str, Any]


def _templates_of(
    document: Document, inference: DisaggregatedInference, stored: Sequence[Revision]
) -> Iterator[_Template]:
    meta = inference.metadata
    tree = compile_inference(inference, revision=find_revision(inference.spec, stored))
    for number, role in enumerate(inference.spec.roles):
        revision = tree.revision.roles[role.name]
        for index in range(min(revision.size, 2)):
            body = tree.pods.build_named(Slot(0, role.name, 0, index), f"covey-plan-{secrets.token_hex(5)}")
            given = revision.template_of(index).get("metadata") or {}
            body["metadata"] = {"namespace": meta.namespace, "name": body["metadata"]["name"]} | {
                field: {key: value for key, value in (given.get(field) or {}).items() if not _is_ours(key)}
                for field in ("labels", "annotations")
            }
            gates = body["spec"].get("schedulingGates") or ()
            body["spec"]["schedulingGates"] = [gate for gate in gates if not _is_ours(gate["name"])]
            key = (meta.namespace, meta.name, role.name, revision.hash, index == 0)
            yield _Template(key, document.place.at(f"spec.roles[{number}].template"), body)


def _is_ours(name: str) -> bool:
    prefix = name.partition("/")[0]
    return prefix == "covey.dev" or prefix.endswith(".covey.dev")


async def _ask_for_pod(client: Client, template: _Template) -> core.Pod | str:
    """The pod as it would be stored, or why nobody can say that."""
    try:
        return await client.create(PODS, template.body, dry_run=True, strict=True, type=core.Pod)
    except ApiError as error:
        problem = of_pod_refusal(error)
        if problem is None or problem.retry:
            return problem.message if problem is not None else error.message
        raise InputError(
            template.place, f"the API server refuses its pods: {problem.message}", "correct the template"
        ) from None


async def _with_defaults(facts: ClusterFacts, client: Client, namespaces: Iterable[str]) -> ClusterFacts:
    """The facts, and the LimitRanges of some namespaces and all RuntimeClasses; a warning for who may not read them."""
    try:
        classes = await list_if_served(client, RUNTIME_CLASSES, core.RuntimeClass)
        ranges = [
            range_
            for namespace in namespaces
            for range_ in (await client.list(LIMIT_RANGES, namespace, type=core.LimitRange))[0]
        ]
    except Forbidden as error:
        what = f"defaults of LimitRanges and RuntimeClasses are not known: {error.message}"
        return replace(facts, warnings=(*facts.warnings, what))
    return replace(
        facts, limit_ranges=(*facts.limit_ranges, *ranges), runtime_classes=(*facts.runtime_classes, *classes)
    )


async def with_queues(facts: ClusterFacts, client: Client) -> ClusterFacts:
    """The facts, and the Queues with the namespaces that they select; nothing but a warning for who may not read them."""
    try:
        queues = await list_if_served(client, QUEUES, core.Queue)
        namespaces = (await client.list(NAMESPACES, type=core.Namespace))[0] if queues else []
    except Forbidden as error:
        return replace(facts, warnings=(*facts.warnings, f"quota is not counted: {error.message}"))
    return replace(facts, queues=tuple(queues), namespaces=tuple(namespaces))


async def with_resource_quotas(facts: ClusterFacts, client: Client, namespaces: Iterable[str]) -> ClusterFacts:
    """The facts, and the ResourceQuotas of some namespaces; nothing but a warning for who may not read them."""
    try:
        quotas = [
            quota
            for namespace in namespaces
            for quota in (await client.list(RESOURCE_QUOTAS, namespace, type=core.ResourceQuota))[0]
        ]
    except Forbidden as error:
        return replace(facts, warnings=(*facts.warnings, f"ResourceQuotas are not counted: {error.message}"))
    return replace(facts, resource_quotas=tuple(quotas))


async def with_revisions(facts: ClusterFacts, client: Client) -> ClusterFacts:
    """The facts, and the revisions of what may change; nothing but a warning for who may not read them."""
    try:
        stored, _ = await client.list(CONTROLLER_REVISIONS, labels=LABEL_INFERENCE, type=ControllerRevision)
    except Forbidden as error:
        what = f"as what pods were made is known by their labels alone: {error.message}"
        return replace(facts, warnings=(*facts.warnings, what))
    return replace(facts, revisions=tuple(stored))


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
    lists = await asyncio.gather(
        *(list_if_served(client, resource, core.Group, namespace) for resource in (COMPOSITE_POD_GROUPS, POD_GROUPS))
    )
    kinds = (COMPOSITE_POD_GROUPS.kind, POD_GROUPS.kind)
    return tuple(
        msgspec.structs.replace(group, kind=kind) for kind, groups in zip(kinds, lists, strict=True) for group in groups
    )
