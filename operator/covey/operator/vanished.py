"""Pods that are no longer seen, though nobody was seen to delete them.

The operator finds its pods by a label. Where somebody takes the label away, a pod vanishes from sight and goes on
running; to replace it would make a double, and to count it as lost would take its whole replica down. So the API
server is asked, once for each such pod, and a pod that is still there gets its labels back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from covey.api import core
from covey.compile import Owner, Slot
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import NotFound
from covey.observability.logging import get_logger
from covey.operator import podstate
from covey.operator.observe import Grave, Observed, is_ours

_log = get_logger(__name__)


def missing_pods(observed: Observed) -> Mapping[Slot, Grave]:
    """Pods of places that nobody fills, of which it is not known whether they are gone."""
    return {slot: grave for slot, grave in observed.graves.items() if not grave.confirmed and slot not in observed.pods}


async def find_gone(client: Client, owner: Owner, missing: Mapping[Slot, Grave]) -> set[Slot]:
    """Give labels back to the pods that are still there; the places of those that are not.

    Raises:
        KubeError: when the API server could not be asked.
    """
    gone = await asyncio.gather(*(_is_gone(client, owner, grave) for grave in missing.values()))
    return {slot for slot, is_gone in zip(missing, gone, strict=True) if is_gone}


async def _is_gone(client: Client, owner: Owner, grave: Grave) -> bool:
    try:
        found = await client.get(resources.PODS, grave.name, owner.namespace, type=core.Pod)
        if found.metadata.uid != grave.uid or podstate.is_dead(found) or not is_ours(found.metadata, owner):
            return True
        patch = {"metadata": {"uid": grave.uid, "labels": dict(grave.labels)}}
        await client.merge_patch(resources.PODS, grave.name, owner.namespace, patch)
    except NotFound:
        return True
    _log.info("labels given back", pod=grave.name)
    return False
