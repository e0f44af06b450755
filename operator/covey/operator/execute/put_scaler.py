"""Writes RoleScalers. ``spec.replicas`` is written once, when one is created; after that it is not Covey's."""

from __future__ import annotations

from collections.abc import Callable

from covey.api import constants as names
from covey.compile import Owner
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists
from covey.kube.resources import ROLE_SCALERS
from covey.operator.execute.put import ObjectWriter
from covey.operator.terms.actions import PutScaler
from covey.operator.terms.objects import RoleScaler


class ScalerWriter:
    """Writes the RoleScalers of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        writer: finds out whose object has a name.
        stored: called with the type and every RoleScaler that was created.
    """

    def __init__(
        self, client: Client, owner: Owner, writer: ObjectWriter, stored: Callable[[str, RoleScaler], None]
    ) -> None:
        self._client = client
        self._owner = owner
        self._writer = writer
        self._stored = stored

    async def put(self, action: PutScaler) -> None:
        """Bring a RoleScaler up to date, but for the replicas that it asks for.

        Raises:
            Blocked: one of this name belongs to somebody else.
            KubeError: a request failed.
        """
        found = action.stored or await self._create(action)
        metadata = {"name": action.name, "namespace": self._owner.namespace}
        if action.patch:
            # A merge patch makes this process the owner of the fields that it names, and of no other.
            patch = {**action.patch, "metadata": {**action.patch.get("metadata", {}), "uid": found.metadata.uid}}
            await self._client.merge_patch(ROLE_SCALERS, action.name, self._owner.namespace, patch, type=Ignored)
        if action.status:
            body = {key: action.body[key] for key in ("apiVersion", "kind")}
            await self._client.apply(
                ROLE_SCALERS,
                {**body, "metadata": metadata, "status": action.status},
                manager=names.MANAGER_OPERATOR_STATUS,
                subresource="status",
                type=Ignored,
            )

    async def _create(self, action: PutScaler) -> RoleScaler:
        try:
            created = await self._client.create(ROLE_SCALERS, action.body, type=RoleScaler)
        except AlreadyExists:
            # Ours, when it has lost the label by which it is found.
            found = await self._writer.claim(ROLE_SCALERS.type, action.name, RoleScaler)
            labels = {"metadata": {"uid": found.metadata.uid, "labels": action.body["metadata"]["labels"]}}
            await self._client.merge_patch(ROLE_SCALERS, action.name, self._owner.namespace, labels, type=Ignored)
            return found
        self._stored(ROLE_SCALERS.type, created)
        return created
