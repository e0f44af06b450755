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
from covey.kube.errors import ApiError, NotFound
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.operator.model.observed import Observed, is_ours
from covey.operator.model.place import Tombstone
from covey.operator.model.problem import is_denial

_log = get_logger(__name__)


def missing_pods(observed: Observed) -> Mapping[Slot, Tombstone]:
    """Pods of places that nobody fills, of which it is not known whether they are gone."""
    return {
        slot: tombstone
        for slot, tombstone in observed.tombstones.items()
        if not tombstone.confirmed and slot not in observed.pods
    }


async def find_remaining(client: Client, owner: Owner, missing: Mapping[Slot, Tombstone]) -> dict[Slot, core.Pod]:
    """Find pods that are still there, and give them their labels back; a place that is left out has lost its pod.

    Raises:
        KubeError: when the API server could not be asked.
    """
    pods = await asyncio.gather(*(_find(client, owner, tombstone) for tombstone in missing.values()))
    return {slot: pod for slot, pod in zip(missing, pods, strict=True) if pod is not None}


async def _find(client: Client, owner: Owner, tombstone: Tombstone) -> core.Pod | None:
    try:
        pod = await client.get(resources.PODS, tombstone.name, owner.namespace, type=core.Pod)
        if pod.metadata.uid != tombstone.uid or podstate.is_dead(pod) or not is_ours(pod.metadata, owner):
            return None
        patch = {"metadata": {"uid": tombstone.uid, "labels": dict(tombstone.labels)}}
        labelled = await client.merge_patch(resources.PODS, tombstone.name, owner.namespace, patch, type=core.Pod)
    except NotFound:
        return None
    except ApiError as error:
        if not is_denial(error):
            raise
        # It has its place all the same; the plan tries once more, and its refusal is reported.
        _log.warning("labels not given back", pod=tombstone.name, error=str(error))
        return pod
    _log.info("labels given back", pod=tombstone.name)
    return labelled
