"""Everything that a plan depends on, as far as one viewer may read it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from covey.admission.volumes import PersistentVolume, VolumeClaim
from covey.api import constants as names
from covey.api import core
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import Forbidden, NotFound
from covey.kube.resources import Resource
from covey.operator.model.objects import CONTROLLER_REVISIONS, ControllerRevision
from covey.planning.facts import ClusterFacts
from covey.ui.contract import Denied

T = TypeVar("T")


class Lister:
    """Lists what a viewer may see, and remembers what it may not.

    Args:
        client: with the viewer's credentials.
        namespaces: where to look for what may not be listed in all namespaces.
    """

    def __init__(self, client: Client, namespaces: Sequence[str]) -> None:
        self._client = client
        self._namespaces = tuple(namespaces)
        self.denied: list[Denied] = []

    async def everywhere(self, resource: Resource, kind: type[T], effect: str, *, labels: str | None = None) -> list[T]:
        """All objects of a kind; those of the viewer's namespaces where all of them are not allowed."""
        objects = await self.within(resource, kind, None, effect, labels=labels)
        if objects is None and resource.namespaced:
            parts = [
                await self.within(resource, kind, namespace, effect, labels=labels) for namespace in self._namespaces
            ]
            return [item for part in parts for item in part or ()]
        return objects or []

    async def within(
        self, resource: Resource, kind: type[T], namespace: str | None, effect: str, *, fields: str | None = None,
        labels: str | None = None,
    ) -> list[T] | None:  # fmt: skip
        """All objects of a kind in a namespace; None where that is denied."""
        try:
            items, _ = await self._client.list(resource, namespace, type=kind, labels=labels, fields=fields)
        except NotFound:
            return []
        except Forbidden as error:
            what = f"{error.message or error}: {effect}"
            self.denied.append(Denied("list", resource.plural, resource.group, namespace, what))
            return None
        return items


async def read_facts(client: Client, namespaces: Sequence[str]) -> tuple[ClusterFacts, tuple[Denied, ...]]:
    """The cluster as the viewer sees it, and what was denied.

    Args:
        client: with the viewer's credentials.
        namespaces: where to look for what may not be listed in all namespaces.

    Raises:
        Forbidden: nodes may not be read; there is no plan without them.
    """
    nodes, _ = await client.list(resources.NODES, type=core.Node)
    lister = Lister(client, namespaces)
    pods, topologies, classes = await asyncio.gather(
        lister.everywhere(resources.PODS, core.Pod, "what these pods take of the nodes counts as free"),
        lister.everywhere(resources.CLUSTER_TOPOLOGIES, core.ClusterTopology, "levels are guessed from node labels"),
        lister.everywhere(resources.PRIORITY_CLASSES, core.PriorityClass, "priorities count as 0"),
    )
    composites, groups, claims, volumes = await asyncio.gather(
        lister.everywhere(resources.COMPOSITE_POD_GROUPS, core.Group, "what is kept for others counts as free"),
        lister.everywhere(resources.POD_GROUPS, core.Group, "what is kept for others counts as free"),
        lister.everywhere(resources.VOLUME_CLAIMS, VolumeClaim, "where volumes are is not taken into account"),
        lister.everywhere(resources.VOLUMES, PersistentVolume, "where volumes are is not taken into account"),
    )
    revisions = await lister.everywhere(
        CONTROLLER_REVISIONS, ControllerRevision, "revisions are known by labels alone", labels=names.LABEL_INFERENCE
    )
    bounds = [
        await lister.within(resources.RESOURCE_QUOTAS, core.ResourceQuota, each, "ResourceQuotas are not counted")
        for each in namespaces
    ]
    unknown = "quota is not counted"
    queues = await lister.within(resources.QUEUES, core.Queue, None, unknown)
    spaces = await lister.within(resources.NAMESPACES, core.Namespace, None, unknown) if queues else []
    named = [
        msgspec.structs.replace(group, kind=kind.kind)
        for kind, stored in ((resources.COMPOSITE_POD_GROUPS, composites), (resources.POD_GROUPS, groups))
        for group in stored
    ]
    facts = ClusterFacts(
        *(tuple(nodes), tuple(pods), tuple(topologies), tuple(classes), tuple(named), tuple(claims), tuple(volumes)),
        queues=tuple(queues) if queues is not None and spaces is not None else None,
        namespaces=tuple(spaces or ()),
        revisions=tuple(revisions),
        resource_quotas=tuple(quota for found in bounds for quota in found or ()),
    )
    return facts, tuple(lister.denied)
