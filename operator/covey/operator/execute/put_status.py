"""The status of a resource: how it is written, and how it is until the watch shows that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from covey.api import constants as names
from covey.api import core
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import Conflict, NotFound
from covey.observability.logging import get_logger
from covey.operator.model.objects import Inference

_log = get_logger(__name__)


class _Written(core.Read, frozen=True):
    """The part of the answer to a write that is read."""

    metadata: core.Meta


class InferenceStatusWriter:
    """Writes statuses, and remembers them while the watch is behind.

    Args:
        client: to the API server.
        told: called with the UID and the status before it is written.
    """

    def __init__(self, client: Client, written: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._client = client
        self._told = written
        #: The status written last, by UID, and what the API server has answered.
        self._written: dict[str, tuple[dict[str, Any], core.Meta]] = {}

    def current(self, stored: Inference) -> dict[str, Any]:
        """The status as it is on the API server, as far as this process can know.

        Args:
            stored: as the watch shows it, maybe with what others have written since and without what this process has.
        """
        written = self._written.get(stored.metadata.uid)
        return written[0] if written is not None and stored.metadata.is_before(written[1]) else stored.status

    def _latest(self, stored: Inference) -> core.Meta:
        _, answered = self._written.get(stored.metadata.uid, ({}, stored.metadata))
        return answered if stored.metadata.is_before(answered) else stored.metadata

    async def write(self, stored: Inference, status: dict[str, Any]) -> bool:
        """Write the status of a resource; return False where the resource has been changed meanwhile, or has gone.

        Raises:
            KubeError: the request failed.
        """
        metadata = self._latest(stored)
        body = {
            "apiVersion": names.INFERENCE_API,
            "kind": "DisaggregatedInference",
            # A namesake that came after must not get this status. The API server heeds no UID here, but a version.
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "resourceVersion": metadata.resource_version,
            },
            "status": status,
        }
        self._told(metadata.uid, status)
        try:
            answer = await self._client.apply(
                resources.DISAGGREGATED_INFERENCES,
                body,
                manager=names.MANAGER_OPERATOR_STATUS,
                subresource="status",
                type=_Written,
            )
        except (NotFound, Conflict) as error:
            _log.debug("resource has changed or gone", error=str(error))
            return False
        self._written[metadata.uid] = (status, answer.metadata)
        return True

    def forget(self, uid: str) -> None:
        """Forget a resource that is gone."""
        self._written.pop(uid, None)
