"""Evicts the ordinary pods that claims name, within their PodDisruptionBudgets.

All of them are tried without effect first. Where one may not go nobody is touched: it is noted on the root, and the
scheduler process plans without it. Budgets may be used up between trial and eviction; then those that follow stay, and
it plans again. A claim is read from the API server before it is obeyed, and what is done already is seen on the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.api.annotations import LEFT_ALONE, read_refused, write_refused
from covey.backends import Owned
from covey.kube.client import Client, Ignored
from covey.kube.errors import ApiError, Conflict, NotFound
from covey.kube.event_series import ObjectRef
from covey.kube.events import EventRecorder
from covey.kube.resources import PODS, Resource
from covey.observability import operator_metrics as metrics
from covey.observability.logging import get_logger
from covey.operator.model.claimed import POD, RootClaim, read_claim

_log = get_logger(__name__)

#: Namespace and name.
Key = tuple[str, str]

#: A policy forbids it, a budget allows none now, and two budgets cover the pod.
_REFUSED: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR})
#: The cause that the API server gives where a budget refuses (``policyv1.DisruptionBudgetCause``).
_BUDGET: Final = "DisruptionBudget"


class Evictor:
    """Obeys the claims of the roots of one namespace and name.

    Args:
        client: to the API server.
        recorder: of Events.
        find: the kinds of which a root claims ordinary pods.
        priority_of: the priority of the pods of the resource that a claim benefits; None where nobody knows it.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        find: Callable[[Key], Iterable[Resource]],
        priority_of: Callable[[RootClaim], int | None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._find = find
        self._priority_of = priority_of
        self._clock = clock

    async def __call__(self, key: Key) -> None:
        """Evict what is claimed and may go.

        Raises:
            KubeError: that failed; it has to be tried again.
        """
        for resource in list(self._find(key)):
            try:
                root = await self._client.get(resource, key[1], key[0], type=Owned)
            except NotFound:
                continue
            claim = read_claim(root)
            if claim is not None:
                await self._obey(resource, root, claim)

    async def _obey(self, resource: Resource, root: Owned, claim: RootClaim) -> None:
        victims = [victim for victim in claim.victims if victim.kind == POD]
        known = read_refused(root.metadata.annotation(names.ANNOTATION_EVICTIONS_REFUSED), self._clock())
        if any(uid in known for victim in victims for uid in victim.pods):
            return  # the scheduler process is about to plan without it
        left, refused = await self._read(victims)
        refused = refused or await self._try(left)
        for victim in left if not refused else ():
            refused = await self._evict(victim, claim)
            if refused:
                break
        if refused:
            until = self._clock() + LEFT_ALONE
            text = write_refused(known | {uid: until for victim in refused for uid in victim.pods})
            annotations = {names.ANNOTATION_EVICTIONS_REFUSED: text}
            patch = {"metadata": {"uid": claim.uid, "annotations": annotations}}
            await self._client.merge_patch(
                resource, root.metadata.name, claim.namespace, patch, manager=names.MANAGER_OPERATOR_NOTES, type=Ignored
            )

    async def _read(self, victims: Sequence[core.Victim]) -> tuple[list[core.Victim], list[core.Victim]]:
        """Those that are there still, and those that must not be touched."""
        left: list[core.Victim] = []
        refused: list[core.Victim] = []
        for victim in victims:
            try:
                pod = await self._client.get(PODS, victim.name, victim.namespace, type=core.Pod)
            except (NotFound, Conflict):
                continue
            except ApiError as error:
                if not is_refusal(error):
                    raise
                refused.append(victim)
                continue
            if pod.metadata.uid not in victim.pods or pod.metadata.deletion_timestamp is not None:
                continue
            # What gangs have goes whole or not at all, whatever a claim says.
            is_ordinary = not (pod.metadata.label(names.LABEL_POD_GROUP) or pod.metadata.label(names.LABEL_INFERENCE))
            (left if is_ordinary else refused).append(victim)
        return left, refused

    async def _try(self, victims: Sequence[core.Victim]) -> list[core.Victim]:
        """Those that may not be evicted now."""
        return [victim for victim in victims if not await self._may_go(victim, dry_run=True)]

    async def _evict(self, victim: core.Victim, claim: RootClaim) -> list[core.Victim]:
        """Evict a pod; returns it where that was refused."""
        if not await self._may_go(victim, dry_run=False):
            return [victim]
        pod = ObjectRef("v1", "Pod", victim.name, victim.namespace, victim.pods[0])
        whom = claim.describe_to(victim.namespace, self._priority_of(claim))
        self._recorder.event(pod, "Normal", "Preempted", f"gave way to {whom}", "Preempt")
        metrics.VICTIMS.labels(claim.purpose, POD).inc()
        _log.info("ordinary pod evicted", namespace=victim.namespace, pod=victim.name, root=claim.name)
        return []

    async def _may_go(self, victim: core.Victim, *, dry_run: bool) -> bool:
        try:
            await self._client.evict(victim.namespace, victim.name, victim.pods[0], dry_run=dry_run)
        except (NotFound, Conflict):
            return True  # it has gone by itself
        except ApiError as error:
            if not is_refusal(error):
                raise
            _log.info("eviction refused", namespace=victim.namespace, pod=victim.name, why=error.message)
            return False
        return True


def is_refusal(error: ApiError) -> bool:
    """Tell whether an error says that a pod may not be evicted now; an API server that sheds load has said nothing."""
    if error.code != HTTPStatus.TOO_MANY_REQUESTS or error.retry_after is None:
        return error.code in _REFUSED
    causes = error.details.get("causes") or ()
    return any(isinstance(cause, Mapping) and cause.get("reason") == _BUDGET for cause in causes)
