"""Does what a plan says, level by level, and decides nothing.

Many requests are under way at once; the first failure lets those finish, begins no more, and is raised. A refusal is no
such failure: what depends on it is left out, everything else is done, and then all refusals are reported together. A
pod whose labels or whose deletion is denied keeps its place; the pairing that it could not leave is not rolled out, and
a replica that could not be marked is not deleted. On an object that is not there depend its pods and further objects
(``Dependants``), on a pod its replica (``Creations``), on a note, a record or a budget nothing. Every action may be
repeated: names are deterministic, deletions name an incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from covey.api import constants as names
from covey.api import core
from covey.backends import Owned
from covey.compile import Owner, PodFactory, type_of
from covey.compile.network import ADDRESSED
from covey.kube.client import Client
from covey.kube.errors import ApiError, Conflict, KubeError, NotFound, Retryable
from covey.kube.resources import POD_DISRUPTION_BUDGETS
from covey.model import podstate
from covey.observability.logging import get_logger
from covey.operator.execute.creations import Creations
from covey.operator.execute.denials import Denials, Dependants
from covey.operator.execute.pods import NO_CALLBACKS, InferencePodWriter, PodCallbacks, may_begin_to_serve
from covey.operator.execute.put import ObjectWriter, ScalerWriter, Stored
from covey.operator.model.actions import Actions, CreatePod, DeleteObject, Object, PutScaler
from covey.operator.model.objects import CONTROLLER_REVISIONS
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Blocked, Problem, is_denial, sum_up

_log = get_logger(__name__)

T = TypeVar("T")

#: Types of objects that no pod waits for.
_NO_POD_NEEDS: Final = frozenset({POD_DISRUPTION_BUDGETS.type, CONTROLLER_REVISIONS.type})


class Executor:
    """Executes the plan of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        observed: the snapshot that the plan was made from.
        stored: called with the type of every object but pods that was created, and the object.
        pods: called after writes of pods.
        width: requests under way at once.
        turn: is waited for before pods are created.
        applied: called with every object that was applied, as it was before, and with the API server's answer.
    """

    def __init__(
        self,
        client: Client,
        owner: Owner,
        observed: Observed,
        stored: Callable[[str, Stored], None],
        *,
        pods: PodCallbacks = NO_CALLBACKS,
        width: int = 64,
        turn: AbstractAsyncContextManager[None] | None = None,
        applied: Callable[[Object, Owned, Owned], None] = lambda *_: None,
    ) -> None:
        self._width = width
        self._turn = turn or nullcontext()
        self._observed = observed
        self._denials = Denials()
        self._dependants = Dependants()
        self._pods = InferencePodWriter(client, owner, observed.now, self._denials, pods)
        self._writer = ObjectWriter(client, owner, observed, stored, applied)
        self._scalers = ScalerWriter(client, owner, self._writer, stored)
        #: What a person has to know of, and what keeps nothing else from being done.
        self._problems: list[Problem] = []
        #: What passes by itself, and has to be looked at again.
        self._delays: list[Exception] = []

    async def run(self, actions: Actions) -> None:
        """Do everything, in the order that ``Actions`` documents.

        Raises:
            Blocked: something that a person has to know of stands in the way; what it does not concern is done.
            KubeError: a request failed for another reason.
        """
        await self._each(partial(self._unless_denied, "note", self._writer.annotate), actions.annotate)
        await self._each(self._pods.relabel, actions.relabel)
        for turn in actions.pair:
            await self._each(self._pods.relabel, turn)
            if self._pods.unpaired or self._pods.unswitched:
                break
        if self._pods.unpaired or self._pods.unswitched:
            actions = _keep_paired(actions, self._pods.unpaired - {None}, shown=self._pods.unswitched)
        await self._each(self._pods.relabel, actions.protect)
        await self._each(self._pods.drain, actions.drain)
        await self._each(self._pods.serve, actions.serve)
        # A replica that did not serve goes only as long as it does not: first those of its pods that are not Ready. Where
        # one of them is by now, the others stay.
        first = [deletion for deletion in actions.delete_pods if may_begin_to_serve(deletion.pod)]
        await self._each(self._pods.delete, first)
        await self._each(
            self._pods.delete, [deletion for deletion in actions.delete_pods if not may_begin_to_serve(deletion.pod)]
        )
        await self._each(self._delete, actions.delete_objects)
        await self._each(partial(self._unless_denied, "record", self._writer.mark), actions.mark)
        if actions.store is not None:
            await self._unless_denied("record", self._writer.store, actions.store)
        await self._each(self._put_scaler, actions.scalers)
        for level in actions.apply:
            await self._each(self._put_object, level)
        unpublished = await self._publish(actions.publish)
        await self._each(self._pods.update_in_place, actions.in_place)
        create = [creation for creation in actions.create if creation.slot not in self._pods.addressed]
        if create:
            assert actions.factory is not None
            await self._create_pods(create, actions.factory)
        await self._each(self._pods.ungate, actions.ungate)
        for level in actions.ask:
            await self._each(self._ask, level)
        problem = sum_up([*self._problems, *filter(None, [self._denials.problem])])
        if problem is not None:
            raise Blocked(replace(problem, retry=problem.retry or bool(self._delays)))
        if unpublished is not None:
            raise unpublished
        if self._delays:
            raise self._delays[0]

    async def _put_object(self, body: Object) -> None:
        """Put an object; pods need their groups and Services, and no budget."""
        if type_of(body) in _NO_POD_NEEDS:
            await self._unless_denied("budget", self._writer.apply, body)
        elif not self._dependants.lack(body):
            await self._put_needed(body)

    async def _put_needed(self, body: Object) -> None:
        kind, name = type_of(body), body["metadata"]["name"]
        try:
            await self._writer.apply(body)
        except Blocked as blocked:
            self._problems.append(blocked.problem)
        except (Conflict, Retryable) as error:
            self._delays.append(error)
        except ApiError as error:
            if not is_denial(error):
                raise
            _log.warning("denied", what=kind, name=name, error=str(error))
            self._denials.note(f"{kind.partition('.')[0]} {name}: {error.message}")
        else:
            return
        # What is there already may be older than it should be: pods can do with it.
        if (kind, name) not in self._observed.objects:
            self._dependants.refuse(body)

    async def _ask(self, body: Object) -> None:
        """Put an object that others read, and that nothing waits for."""
        await self._unless_denied(f"{body['kind']} {body['metadata']['name']}", self._writer.apply, body)

    async def _delete(self, action: DeleteObject) -> None:
        await self._unless_denied(f"deletion of {action.name}", self._writer.delete, action)

    async def _unless_denied(self, what: str, do: Callable[[T], Awaitable[None]], item: T) -> None:
        """Do something that nothing else depends on: a refusal is noted, and reported when the rest is done."""
        try:
            await do(item)
        except Blocked as blocked:
            self._problems.append(blocked.problem)
        except ApiError as error:
            if not is_denial(error):
                raise
            _log.warning("denied", what=what, error=str(error))
            self._denials.note(f"{what}: {error.message}")

    async def _publish(self, services: Collection[Object]) -> Exception | None:
        """Put Services that no pod waits for; return the error, if any."""
        try:
            await self._each(self._writer.apply, services)
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

    async def _put_scaler(self, action: PutScaler) -> None:
        """Put a RoleScaler; a denial or a conflict does not keep pods from being created."""
        try:
            await self._scalers.apply(action)
        except Blocked as blocked:
            self._problems.append(blocked.problem)
        except (Conflict, NotFound) as gone:
            if action.stored is None:
                self._denials.note(f"RoleScaler {action.name}: {gone.message}")
        except ApiError as error:
            if not is_denial(error):
                raise
            _log.warning("denied", what="scaler", scaler=action.name, error=str(error))
            self._denials.note(f"RoleScaler {action.name}: {error.message}")

    async def _create_pods(self, items: Collection[CreatePod], factory: PodFactory) -> None:
        async def create(creation: CreatePod) -> None:
            await self._pods.create(creation, factory, lambda: self._writer.uid_of(factory.anchor(creation.slot)))

        creations = Creations(
            create,
            self._each,
            lambda creation: (creation.slot.role, factory.revision_of(creation.slot).hash),
            lambda creation: self._dependants.pod_lacks(creation.slot),
        )
        try:
            async with self._turn:
                await creations.run(items)
        finally:
            # Their reason is the one to show.
            self._problems[:0] = creations.problems
            self._delays += creations.delays


def _keep_paired(actions: Actions, pairings: Collection[str | None], *, shown: bool) -> Actions:
    """Leave alone what rolls out of these pairings, or is shown: a router has nothing else while the others cannot follow."""

    def goes(pod: core.Pod) -> bool:
        paired = pod.metadata.label(names.LABEL_PAIRING) in pairings
        paired |= shown and pod.metadata.label(names.LABEL_ENDPOINT) == ADDRESSED
        return not paired or podstate.is_dead(pod) or podstate.is_draining(pod)

    return replace(
        actions,
        drain=tuple(drain for drain in actions.drain if drain.claimed_by or goes(drain.pod)),
        serve=tuple(serve for serve in actions.serve if serve.serving or goes(serve.pod)),
        delete_pods=tuple(
            deletion for deletion in actions.delete_pods if deletion.why != "rolled out" or goes(deletion.pod)
        ),
        in_place=tuple(update for update in actions.in_place if goes(update.pod)),
    )
