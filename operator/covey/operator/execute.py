"""Does what a plan says, level by level, and decides nothing.

Many requests are under way at once; the first failure lets those finish, begins no more, and is raised. Every action
may be repeated: names are deterministic, deletions name an incarnation.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from covey.api import constants as names
from covey.api import core
from covey.compile import Owner, PodFactory
from covey.compile.identity import hostname
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound, Retryable
from covey.observability.logging import get_logger
from covey.operator import podstate
from covey.operator.actions import Actions, CreatePod, DeleteObject, DeletePod, Object, Relabel
from covey.operator.objects import BY_KIND, Named
from covey.operator.observe import Observed, is_ours
from covey.operator.problem import REASON_NAME_TAKEN, Blocked, Problem, of_pod_refusal

_log = get_logger(__name__)

T = TypeVar("T")

#: Successors that are tried when the name of one is taken by a pod of ours that is on its way out.
_GENERATIONS = 3
#: New objects of one kind that are worth a listing.
_MANY = 16


class Executor:
    """Executes the plan of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        observed: the snapshot that the plan was made from.
        created: told of every pod that was created.
        width: requests under way at once.
    """

    def __init__(
        self, client: Client, owner: Owner, observed: Observed, created: Callable[[core.Pod], None], *, width: int = 64
    ) -> None:
        self._client = client
        self._owner = owner
        self._created = created
        self._width = width
        self._surveyed: dict[str, dict[str, Named]] = {}
        self._uids = {key: owned.metadata.uid for key, owned in observed.objects.items()}

    async def run(self, actions: Actions) -> None:
        """Do everything, in the order that ``Actions`` documents.

        Raises:
            Blocked: something that a person has to know of stands in the way.
            KubeError: a request failed for another reason.
        """
        await self._each(self._relabel, actions.relabel)
        await self._each(self._delete_pod, actions.delete_pods)
        await self._each(self._delete_object, actions.delete_objects)
        if actions.store is not None:
            await self._apply(actions.store)
        for level in actions.apply:
            await self._survey(level)
            await self._each(self._apply, level)
        if actions.create:
            assert actions.factory is not None
            await self._create_pods(actions.create, actions.factory)

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
            await self._label(metadata, action.labels)
        except (NotFound, Conflict):
            # Another incarnation, or none: a deletion event is on its way.
            _log.debug("pod has gone", pod=metadata.name)

    async def _label(self, metadata: core.Meta, labels: Mapping[str, str | None]) -> None:
        # A UID in a patch is a precondition.
        patch = {"metadata": {"uid": metadata.uid, "labels": dict(labels)}}
        await self._client.merge_patch(resources.PODS, metadata.name, self._owner.namespace, patch)

    async def _apply(self, body: Object) -> None:
        resource, name = BY_KIND[body["kind"]], body["metadata"]["name"]
        if (body["kind"], name) not in self._uids:
            await self._claim(body["kind"], name)
        applied = await self._client.apply(resource, body, manager=names.MANAGER_OPERATOR, type=Named)
        self._uids[body["kind"], name] = applied.metadata.uid

    async def _survey(self, level: Sequence[Object]) -> None:
        """Before many new objects of a kind, list the names that are taken: one request instead of one for each."""
        new = Counter(body["kind"] for body in level if (body["kind"], body["metadata"]["name"]) not in self._uids)
        for kind, count in new.items():
            if count >= _MANY:
                items, _ = await self._client.list(BY_KIND[kind], self._owner.namespace, type=Named)
                self._surveyed[kind] = {item.metadata.name: item for item in items}

    async def _find(self, kind: str, name: str) -> Named | None:
        surveyed = self._surveyed.get(kind)
        if surveyed is not None:
            return surveyed.get(name)
        try:
            return await self._client.get(BY_KIND[kind], name, self._owner.namespace, type=Named)
        except NotFound:
            return None

    async def _claim(self, kind: str, name: str) -> None:
        """Nothing is adopted: an object of the name must be ours already, or not be there."""
        found = await self._find(kind, name)
        if found is None or is_ours(found.metadata, self._owner):
            return
        owner = found.metadata.controller
        if owner is not None and (owner.kind, owner.name) == ("DisaggregatedInference", self._owner.name):
            waits = f"waits until {kind} {name} of the former resource of this name is deleted"
            raise Blocked(Problem(names.REASON_WAITING, waits, retry=True))
        remedy = "is not Covey's: delete it, or give this resource another name"
        if owner is not None and owner.kind == "DisaggregatedInference":
            remedy = f"belongs to DisaggregatedInference {owner.name}: give this resource or a role of it another name"
        raise Blocked(Problem(REASON_NAME_TAKEN, f"{kind} {name} exists and {remedy}", retry=True))

    async def _delete_pod(self, action: DeletePod) -> None:
        metadata = action.pod.metadata
        try:
            await self._client.delete(resources.PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except (NotFound, Conflict):
            return
        labels = {key: metadata.label(f"covey.dev/{key}") for key in ("unit", "role", "replica")}
        _log.info("pod deleted", pod=metadata.name, why=action.why, **labels)

    async def _delete_object(self, action: DeleteObject) -> None:
        try:
            await self._client.delete(BY_KIND[action.kind], action.name, self._owner.namespace, uid=action.uid)
        except (NotFound, Conflict):
            return
        _log.info("object deleted", kind=action.kind, object=action.name)

    async def _create_pods(self, items: Collection[CreatePod], factory: PodFactory) -> None:
        """One pod first: when the API server refuses it, a thousand refusals are spared."""
        first, *rest = items

        async def create(item: CreatePod) -> None:
            await self._create_pod(item, factory)

        await create(first)
        await self._each(create, rest)

    async def _create_pod(self, item: CreatePod, factory: PodFactory) -> None:
        predecessor = item.predecessor or self._uids["PodGroup", factory.group_of(item.slot)]
        for _ in range(_GENERATIONS):
            body = factory.build(item.slot, predecessor, restarts=item.restarts)
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
