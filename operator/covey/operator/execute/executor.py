"""Does what a plan says, level by level, and decides nothing.

Many requests are under way at once; the first failure lets those finish, begins no more, and is raised. A pod whose
labels or whose deletion is denied is no such failure: it keeps its place, everything else is done, and then it is told.
Every action may be repeated: names are deterministic, deletions name an incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from covey.api import constants as names
from covey.api import core, times
from covey.compile import Owner, PodFactory
from covey.compile.identity import Slot, hostname, slot_of
from covey.kube import resources
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, KubeError, NotFound, Retryable
from covey.observability.logging import get_logger
from covey.operator.execute.put import ObjectWriter, Stored
from covey.operator.execute.put_images import put_images
from covey.operator.execute.put_scaler import ScalerWriter
from covey.operator.snapshot import podstate
from covey.operator.snapshot.observed import Observed, is_ours
from covey.operator.terms.actions import (
    Actions,
    CreatePod,
    DeletePod,
    Drain,
    Exchange,
    Object,
    PutScaler,
    Relabel,
    Serve,
    Ungate,
)
from covey.operator.terms.problem import (
    REASON_REFUSED,
    Blocked,
    Problem,
    is_denial,
    of_pod_refusal,
)

_log = get_logger(__name__)

T = TypeVar("T")

#: Successors that are tried when the name of one is taken by a pod of ours that is on its way out.
_GENERATIONS = 3


class Executor:
    """Executes the plan of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        observed: the snapshot that the plan was made from.
        created: told of every pod that was created.
        stored: told of every other object that was, by kind.
        spared: told of every pod (by UID) whose deletion was denied.
        deleted: told of every deletion that the API server has taken.
        changed: told of every pod whose labels or images were changed.
        width: requests under way at once.
    """

    def __init__(
        self,
        client: Client,
        owner: Owner,
        observed: Observed,
        created: Callable[[core.Pod], None],
        stored: Callable[[str, Stored], None],
        *,
        spared: Callable[[str], None] = lambda _: None,
        deleted: Callable[[DeletePod], None] = lambda _: None,
        changed: Callable[[core.Pod], None] = lambda _: None,
        width: int = 64,
    ) -> None:
        self._client = client
        self._owner = owner
        self._created = created
        self._spared = spared
        self._deleted = deleted
        self._changed = changed
        self._width = width
        self._writer = ObjectWriter(client, owner, observed, stored)
        self._scalers = ScalerWriter(client, owner, self._writer, stored)
        self._now = observed.now
        self._denials: list[str] = []
        #: What a person has to know of, and what keeps nothing else from being done.
        self._problem: Problem | None = None
        #: Places whose pod has kept an address that it should have lost: nobody else may have it.
        self._addressed: set[Slot | None] = set()

    async def run(self, actions: Actions) -> None:
        """Do everything, in the order that ``Actions`` documents.

        Raises:
            Blocked: something that a person has to know of stands in the way; what it does not concern is done.
            KubeError: a request failed for another reason.
        """
        await self._each(self._writer.annotate, actions.annotate)
        await self._each(self._relabel, actions.relabel)
        await self._each(self._drain, actions.drain)
        await self._each(self._serve, actions.serve)
        await self._each(self._delete_pod, actions.delete_pods)
        await self._each(self._writer.delete, actions.delete_objects)
        await self._each(self._writer.mark, actions.mark)
        if actions.store is not None:
            await self._writer.store(actions.store)
        await self._each(self._put_scaler, actions.scalers)
        for level in actions.apply:
            await self._each(self._writer.put, level)
        unpublished = await self._publish(actions.publish)
        await self._each(self._exchange, actions.exchange)
        create = [item for item in actions.create if item.slot not in self._addressed]
        if create:
            assert actions.factory is not None
            await self._create_pods(create, actions.factory)
        await self._each(self._ungate, actions.ungate)
        if self._problem is not None:
            raise Blocked(self._problem)
        if self._denials:
            raise Blocked(Problem(REASON_REFUSED, _told(self._denials), retry=True))
        if unpublished is not None:
            raise unpublished

    async def _publish(self, services: Collection[Object]) -> Exception | None:
        """Put Services that no pod waits for; what went wrong."""
        try:
            await self._each(self._writer.put, services)
        except (KubeError, Blocked, Retryable) as error:
            return error
        return None

    async def _each(self, do: Callable[[T], Awaitable[None]], items: Collection[T]) -> None:
        """Do something for all items, ``width`` at a time."""
        if not items:
            return
        waiting = iter(items)
        failures: list[Exception] = []

        async def work() -> None:
            for item in waiting:
                try:
                    await do(item)
                except (KubeError, Blocked, Retryable) as error:
                    failures.append(error)
                if failures:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._width, len(items))):
                group.create_task(work())
        if failures:
            raise failures[0]

    async def _relabel(self, action: Relabel) -> None:
        metadata = action.pod.metadata
        try:
            self._changed(await self._label(metadata, action.labels, action.annotations))
        except NotFound:
            _log.debug("pod has gone", pod=metadata.name)
        except Conflict:
            await self._check_gone(metadata)
        except ApiError as error:
            self._deny("labels", metadata, error)
            if action.labels.get(names.LABEL_ADDRESS, "") is None:
                self._addressed.add(slot_of(action.pod.spec.hostname))

    async def _check_gone(self, metadata: core.Meta) -> None:
        """Make sure that a conflict means another incarnation, or none; the API server also says so of a busy object.

        Raises:
            Conflict: it is still there, and nothing may be done that goes by its being gone.
        """
        try:
            found = await self._client.get(resources.PODS, metadata.name, self._owner.namespace, type=core.Pod)
        except NotFound:
            found = None
        if found is not None and found.metadata.uid == metadata.uid:
            raise Conflict(409, "Conflict", f"pod {metadata.name} was changed at the same time")
        _log.debug("pod has gone", pod=metadata.name)

    async def _label(
        self,
        metadata: core.Meta,
        labels: Mapping[str, str | None],
        annotations: Mapping[str, str | None] | None = None,
    ) -> core.Pod:
        # A UID in a patch is a precondition.
        patch = {"metadata": {"uid": metadata.uid, "labels": dict(labels), "annotations": dict(annotations or {})}}
        return await self._client.merge_patch(
            resources.PODS, metadata.name, self._owner.namespace, patch, type=core.Pod
        )

    async def _drain(self, action: Drain) -> None:
        metadata = action.pod.metadata
        labels = {names.LABEL_DRAINING: "true", names.LABEL_ENDPOINT: None}
        annotations = {names.ANNOTATION_DRAINING_SINCE: times.rfc3339(action.since)}
        patch = {"metadata": {"uid": metadata.uid, "labels": labels, "annotations": annotations}}
        try:
            await self._client.merge_patch(resources.PODS, metadata.name, self._owner.namespace, patch, type=Ignored)
        except (NotFound, Conflict):
            _log.debug("pod has gone", pod=metadata.name)
        except ApiError as error:
            self._deny("mark", metadata, error)

    async def _serve(self, action: Serve) -> None:
        metadata = action.pod.metadata
        condition = {
            "type": names.GATE_SERVING,
            "status": "True" if action.serving else "False",
            "reason": "Serving" if action.serving else "Draining",
            "lastTransitionTime": times.rfc3339(self._now),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": metadata.name, "namespace": self._owner.namespace, "uid": metadata.uid},
            "status": {"conditions": [condition]},
        }
        try:
            await self._client.apply(
                resources.PODS, body, manager=names.MANAGER_OPERATOR_STATUS, subresource="status", type=Ignored
            )
        except (NotFound, Conflict):
            _log.debug("pod has gone", pod=metadata.name)
        except ApiError as error:
            self._deny("readiness", metadata, error)

    async def _exchange(self, action: Exchange) -> None:
        metadata = action.pod.metadata
        try:
            changed = await put_images(self._client, action)
        except (NotFound, Conflict):
            _log.debug("pod has gone", pod=metadata.name)
        except ApiError as error:
            self._deny("images", metadata, error)
        else:
            if changed is not None:
                self._changed(changed)
                _log.info("images of pod changed", pod=metadata.name, revision=action.revision)

    async def _ungate(self, action: Ungate) -> None:
        metadata = action.pod.metadata
        gates = [gate.name for gate in action.pod.spec.scheduling_gates or ()]
        at = f"/spec/schedulingGates/{gates.index(action.gate)}"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
            {"op": "test", "path": f"{at}/name", "value": action.gate},
            *_confining(action),
            {"op": "remove", "path": at},
        ]
        try:
            await self._client.json_patch(
                resources.PODS, metadata.name, self._owner.namespace, operations, type=Ignored
            )
        except (NotFound, Conflict):
            _log.debug("pod has gone", pod=metadata.name)
        except Invalid as error:
            # A test that fails has no code of its own: an earlier pass may have let it go.
            if await self._is_held(metadata, action.gate):
                self._deny("release", metadata, error)
        except ApiError as error:
            self._deny("release", metadata, error)

    async def _is_held(self, metadata: core.Meta, gate: str) -> bool:
        """This very pod still has a gate."""
        try:
            found = await self._client.get(resources.PODS, metadata.name, self._owner.namespace, type=core.Pod)
        except NotFound:
            return False
        return found.metadata.uid == metadata.uid and gate in core.gates(found)

    async def _delete_pod(self, action: DeletePod) -> None:
        metadata = action.pod.metadata
        try:
            await self._client.delete(resources.PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except NotFound:
            return
        except Conflict:
            try:
                await self._check_gone(metadata)
            except Conflict:
                self._spared(metadata.uid)
                raise
            return
        except ApiError as error:
            self._deny("deletion", metadata, error)
            self._spared(metadata.uid)
            return
        self._deleted(action)
        labels = {key: metadata.label(f"covey.dev/{key}") for key in ("unit", "role", "replica")}
        _log.info("pod deleted", pod=metadata.name, why=action.why, **labels)

    def _deny(self, what: str, metadata: core.Meta, error: ApiError) -> None:
        """Note a denial; what is none is raised."""
        if not is_denial(error):
            raise error
        _log.warning("denied", what=what, pod=metadata.name, error=str(error))
        self._denials.append(f"{what} of pod {metadata.name}: {error.message}")

    async def _put_scaler(self, action: PutScaler) -> None:
        """An autoscaler may have to wait; the pods need not."""
        try:
            await self._scalers.put(action)
        except Blocked as blocked:
            self._problem = blocked.problem
        except (Conflict, NotFound) as gone:
            if action.stored is None:
                self._denials.append(f"RoleScaler {action.name}: {gone.message}")
        except ApiError as error:
            if not is_denial(error):
                raise
            _log.warning("denied", what="scaler", scaler=action.name, error=str(error))
            self._denials.append(f"RoleScaler {action.name}: {error.message}")

    async def _create_pods(self, items: Collection[CreatePod], factory: PodFactory) -> None:
        """One pod first: when the API server refuses it, a thousand refusals are spared."""
        first, *rest = items

        async def create(item: CreatePod) -> None:
            await self._create_pod(item, factory)

        await create(first)
        await self._each(create, rest)

    async def _create_pod(self, item: CreatePod, factory: PodFactory) -> None:
        predecessor = item.predecessor or self._writer.uid_of(factory.anchor(item.slot))
        for _ in range(_GENERATIONS):
            body = factory.build(item.slot, predecessor, item.told)
            try:
                created = await self._client.create(resources.PODS, body, type=core.Pod)
            except AlreadyExists:
                taken_by = await self._occupant(item, body["metadata"]["name"])
                if taken_by is None:
                    return
                predecessor = taken_by
            except ApiError as error:
                problem = of_pod_refusal(error)
                if problem is None:
                    raise
                raise Blocked(problem) from error
            else:
                self._created(created)
                return
        raise Retryable(1.0, f"no free name for pod {hostname(item.slot)}")

    async def _occupant(self, item: CreatePod, name: str) -> str | None:
        """Who has the name: None when it is the very pod that was to be created, else the UID to go on from."""
        try:
            found = await self._client.get(resources.PODS, name, self._owner.namespace, type=core.Pod)
        except NotFound:
            raise Retryable(0.1, f"pod {name} is on its way out") from None
        if not is_ours(found.metadata, self._owner) or found.spec.hostname != hostname(item.slot):
            return found.metadata.uid
        if podstate.is_dead(found) or podstate.is_released(found):
            await self._label(found.metadata, {names.LABEL_ADDRESS: None})
            return found.metadata.uid
        self._created(found)
        return None


def _confining(action: Ungate) -> Iterator[dict[str, Any]]:
    """Keys may be added to the node selector of a pod that is gated, never changed (KEP-3838)."""
    selected = action.pod.spec.node_selector
    more = {key: value for key, value in action.confined.items() if key not in (selected or {})}
    if more and selected is None:
        yield {"op": "add", "path": "/spec/nodeSelector", "value": more}
        return
    for key, value in more.items():
        escaped = key.replace("~", "~0").replace("/", "~1")
        yield {"op": "add", "path": f"/spec/nodeSelector/{escaped}", "value": value}


def _told(denials: list[str]) -> str:
    """The first denial, and how many more there were."""
    more = f"; and {len(denials) - 1} more" if len(denials) > 1 else ""
    return f"the API server denies the {denials[0]}{more}"
