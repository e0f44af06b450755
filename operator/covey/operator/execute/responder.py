"""Answers Evictions: a message and a heartbeat in ``status.responders``, and at last a completion.

What is said of a pod comes from the look at its resource (``rolling.respond``); that a pod is gone is found here, since
nobody looks for it any more. Kubernetes waits five seconds for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from covey.api import constants as names
from covey.api import core
from covey.kube.client import Client, Ignored
from covey.kube.errors import ApiError, Conflict, Invalid, NotFound
from covey.kube.resources import EVICTIONS, PODS
from covey.observability import operator_metrics as metrics
from covey.observability.logging import get_logger
from covey.operator.model.eviction import (
    HEARTBEAT,
    MAX_MESSAGE,
    Eviction,
    EvictionAnswer,
    PodReference,
    ResponderStatus,
)

_log = get_logger(__name__)

Key = tuple[str, str]

_GONE: Final = "the pod is gone"
_STRANGER: Final = "the pod belongs to no resource that this operator looks after"


class Responder:
    """Answers the Evictions that name the operator.

    Args:
        client: to the API server.
        find: finds an Eviction by namespace and name; None where there is none.
        find_answer: what the look at its resource has brought, by UID of the pod; None where it has not been looked at.
        is_known: whether a pod, by namespace and name, is one of a resource.
        respond_after: has an Eviction answered again after so many seconds.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        find: Callable[[Key], Eviction | None],
        find_answer: Callable[[str], EvictionAnswer | None],
        is_known: Callable[[Key, str], bool],
        respond_after: Callable[[Key, float], None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._find = find
        self._find_answer = find_answer
        self._is_known = is_known
        self._respond_after = respond_after
        self._clock = clock

    async def __call__(self, key: Key) -> None:
        """Say what there is to say.

        Raises:
            KubeError: that failed; it has to be tried again.
        """
        eviction = self._find(key)
        if eviction is None or eviction.target is None or not eviction.is_due:
            return
        answered, target = eviction.answered, eviction.target
        assert answered is not None
        if self._is_known((key[0], target.name), target.uid):
            answer = self._find_answer(target.uid)
        else:
            answer = await self._judge_unknown(key[0], target)
        if answer is None:
            return
        now = self._clock()
        left = answer.seconds_left(answered, now)
        if left > 0:
            self._respond_after(key, left)
            return
        await self._write(eviction, answered, answer, now)
        if not answer.completes:
            self._respond_after(key, HEARTBEAT)

    async def _judge_unknown(self, namespace: str, target: PodReference) -> EvictionAnswer:
        """Answer for a pod that belongs to no resource, as far as the operator knows."""
        try:
            pod = await self._client.get(PODS, target.name, namespace, type=core.Pod)
        except NotFound:
            return EvictionAnswer(_GONE, completes=True)
        return EvictionAnswer(_STRANGER if pod.metadata.uid == target.uid else _GONE, completes=True)

    async def _write(self, eviction: Eviction, answered: ResponderStatus, answer: EvictionAnswer, now: float) -> None:
        # A heartbeat may not go back, nor be before the start.
        now = max(now, core.seconds(answered.start_time) or 0.0, core.seconds(answered.heartbeat_time) or 0.0)
        entry: dict[str, Any] = {
            "name": names.EVICTION_RESPONDER,
            "heartbeatTime": core.rfc3339(now),
            "message": answer.message[:MAX_MESSAGE],
        }
        if answer.until is not None and answer.until > now:
            entry["expectedCompletionTime"] = core.rfc3339(answer.until)
        if answer.completes:
            entry["completionTime"] = core.rfc3339(now)
        metadata = eviction.metadata
        body = {
            "apiVersion": EVICTIONS.api_version,
            "kind": EVICTIONS.kind,
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "status": {"responders": [entry]},
        }
        manager = names.MANAGER_OPERATOR_EVICTIONS
        try:
            await self._client.apply(EVICTIONS, body, manager=manager, subresource="status", type=Ignored)
        except (NotFound, Conflict):
            return  # it is gone, or another one
        except Invalid:
            # It is not the operator's turn any more, or its clock is off by more than half a minute.
            stored = await self._client.get(EVICTIONS, metadata.name, metadata.namespace, type=Eviction)
            if stored.metadata.uid == metadata.uid and stored.is_due:
                metrics.EVICTION_ANSWERS.labels("Refused").inc()
                raise
            return
        except ApiError:
            metrics.EVICTION_ANSWERS.labels("Refused").inc()
            raise
        metrics.EVICTION_ANSWERS.labels("Completed" if answer.completes else "Progress").inc()
        _log.info(
            "eviction answered",
            namespace=metadata.namespace,
            eviction=metadata.name,
            message=answer.message,
            completes=answer.completes,
        )
