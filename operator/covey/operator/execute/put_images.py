"""Gives the containers of a running pod other images."""

from __future__ import annotations

from covey.api import constants as names
from covey.api import core
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import Invalid
from covey.operator.snapshot import exchange, podstate
from covey.operator.terms.actions import Exchange


async def put_images(client: Client, action: Exchange) -> core.Pod | None:
    """Change images and revision of a pod in one request; return the pod as written, None where nothing was.

    What its containers run now is read first: the watch may be behind the kubelet. So may what it was chosen by: a pod
    that has begun to serve meanwhile is left, since the budget may need it.

    Raises:
        NotFound: it is gone.
        ApiError: the change was denied.
    """
    metadata = action.pod.metadata
    stored = await client.get(resources.PODS, metadata.name, metadata.namespace, type=exchange.Stored)
    idle = not podstate.is_ready(action.pod)
    if _is_settled(stored, action) or (idle and _serves(stored)):
        return None
    operations = exchange.operations(stored, action.images, action.revision, action.at, as_is=idle)
    try:
        return await client.json_patch(resources.PODS, metadata.name, metadata.namespace, operations, type=core.Pod)
    except Invalid:
        # A test that fails has no code of its own. A pod that was changed meanwhile comes back here.
        again = await client.get(resources.PODS, metadata.name, metadata.namespace, type=exchange.Stored)
        if again.metadata.resource_version != stored.metadata.resource_version:
            return None
        raise


def _is_settled(stored: exchange.Stored, action: Exchange) -> bool:
    """Tell whether a pod takes no images: another incarnation, on its way out, or done already."""
    metadata = stored.metadata
    return (
        metadata.uid != action.pod.metadata.uid
        or metadata.deletion_timestamp is not None
        or metadata.label(names.LABEL_REVISION) == action.revision
    )


def _serves(stored: exchange.Stored) -> bool:
    return podstate.is_ready(core.Pod(stored.metadata, stored.spec, stored.status))
