"""Questions that the operator puts on roots, answered one step after another when nobody waits for a place.

The question stands in an annotation of a root, the answer goes into that root's status, once for each question. Both are
on the API server, so a process that ends in between leaves the question to the next one.

The scheduler asks here for work only when no unit is active, and after a step it rests some times as long as the
process computed meanwhile: ten thousand questions take long, and nothing else takes longer for them. Namespaces take turns, so that one
with many questions does not keep the others waiting. A step that somebody comes to wait for is broken off after a while
and tried again later, with more patience.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from covey.admission import gangs
from covey.admission.entry import Entry, QueueStage
from covey.admission.gangs import UnplannableError
from covey.admission.growth import Site
from covey.admission.headroom import HeadroomAnswer
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import SCHEDULING_API
from covey.api.exchange import ExchangeQuestion
from covey.api.headroom import Question
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.observability.logging import get_logger
from covey.placement.model import PodRequest, Shape
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.plugin import Plugin
from covey.scheduler.quotas import Quotas
from covey.scheduler.reservations import Reservations
from covey.scheduler.surroundings import Queueing

log = get_logger(__name__)

#: The least seconds of rest after a step.
LEAST_REST: Final = 0.05
#: Steps that are broken off before the question is given up.
TRIES: Final = 5
#: Seconds until an answer that could not be written is written again.
RETRY: Final = 2.0
#: Said where the planner itself failed.
FAILED: Final = "the planner failed on it; the scheduler's log has the details"


class BrokenOff(Exception):  # noqa: N818 - no error: somebody else is first
    """Somebody waits for a place."""


Q = TypeVar("Q", Question, ExchangeQuestion)


@dataclass(slots=True)
class OpenRequest(Generic[Q]):
    """A question, the answers of roles that there are by now, and how often the next step was tried."""

    question: Q
    answers: list[HeadroomAnswer] = field(default_factory=list)
    tries: int = 0


class WhatIfRequests(Plugin, ABC, Generic[Q]):
    """The questions of one kind that are not answered yet.

    Args:
        context: of the process.
        queueing: what surrounds a unit.
        quotas: of queues.
        reservations: what is kept for whom.
    """

    #: The field of a root's status, and who writes it.
    field: ClassVar[str]
    manager: ClassVar[str]
    #: After a step it rests so many times the seconds of processor time that passed in it: on a busy machine a step is longer,
    #: and leaves no less to others.
    rest: ClassVar[float]
    #: Seconds after which a step is broken off when somebody waits for a place, doubled at each try.
    patience: ClassVar[float]

    def __init__(self, context: Context, queueing: Queueing, quotas: Quotas, reservations: Reservations) -> None:
        self._context = context
        self._cache = context.cache
        self._clock = context.clock
        self._queueing = queueing
        self._quotas = quotas
        self._reservations = reservations
        #: By namespace, the one whose turn it is first.
        self._open: OrderedDict[str, OrderedDict[Key, OpenRequest[Q]]] = OrderedDict()
        #: Answers to be written, and what was written that the watch may not have shown yet.
        self._answered: dict[Key, tuple[str, dict[str, Any]]] = {}
        self._said: dict[Key, tuple[str, str]] = {}
        self._news = asyncio.Event()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._cache.subscribe(Listener(unit=self._look, status=self._look))

    @staticmethod
    @abstractmethod
    def read(root: core.Group) -> Q | None:
        """Read the question of a root; None where it asks nothing."""

    @abstractmethod
    async def _answer(self, root: core.Group, asked: OpenRequest[Q]) -> dict[str, Any] | None:
        """Take a step: the answer as the status has it; None where there is more to ask.

        Raises:
            BrokenOff: it is to be tried again later.
        """

    def _may_write(self, _root: Key, _body: dict[str, Any]) -> bool:
        """Tell whether an answer may be written by now."""
        return True

    def _count(self) -> None:
        """The number of questions has changed."""

    async def run(self, settled: Callable[[], Any]) -> None:
        """Take questions, and write answers, for ever; ``settled`` returns when every unit has been looked at once."""
        await settled()
        self._running = True
        self._count()
        for root in self._cache.index.roots():
            self._look(root)
        while True:
            await self._news.wait()
            self._news.clear()
            for root, (uid, body) in list(self._answered.items()):
                if not self._may_write(root, body) or self._answered.pop(root, None) is None:
                    continue
                if not await self._write(root, uid, body):
                    self._said.pop(root, None)
                    asyncio.get_running_loop().call_later(RETRY, self._look, root)

    async def idle(self) -> bool:
        """Take a step for one question, if there is one and it is time; False where there is not."""
        now = self._clock.monotonic()
        line = next(iter(self._open.values()), None)
        if line is None:
            return False
        if now < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._due - now, self.handle.queue.wake)
            return False
        began = time.process_time()
        await self._take_step(*next(iter(line.items())))
        spent = time.process_time() - began
        self._due = self._clock.monotonic() + max(self.rest * spent, LEAST_REST)
        return True

    async def _take_step(self, root: Key, asked: OpenRequest[Q]) -> None:
        group, body = self._cache.index.root(root), None
        if group is None:
            self._drop(root)
            return
        try:
            body = await self._answer(group, asked)
        except BrokenOff:
            asked.tries += 1
        self._turn(root)
        if body is None or not self._asks(root, asked):
            return  # there is more to ask, or somebody asks something else by now
        self._drop(root)
        self._said[root] = (group.metadata.uid, asked.question.asked)
        self._answered[root] = (group.metadata.uid, body)
        self._news.set()

    def _sites(self, units: Iterable[Unit]) -> Iterator[Site]:
        """Units as their surplus would be planned now.

        Raises:
            UnplannableError: one of them asks for something that the topology or the planner does not have.
        """
        for unit in units:
            kept, topology, around = self._queueing.around(unit)
            if isinstance(topology, UnplannableError):
                raise topology
            gang = gangs.build_gang(unit, topology, self._cache.capacity.shape, around)
            entry = Entry(unit, QueueStage.NOTHING, replace(kept, topology=topology), gang)
            asked, _ = self._reservations.confine(self._queueing.gang_beside_siblings(entry), surplus=True)
            yield Site(asked, lacks=bool(unit.absent))

    def _units_of(self, root: core.Group) -> Iterator[Unit]:
        """The units of the resource that a root belongs to."""
        owner, meta = root.metadata.controller, root.metadata
        keys = self._cache.index.roots_of(owner.uid) if owner else [Key(root.kind, meta.namespace, meta.name)]
        for key in keys:
            unit = self._cache.index.unit(key) if key.namespace == meta.namespace else None
            if unit is not None and unit.root.metadata.deletion_timestamp is None:
                yield unit

    def _shape(self, request: PodRequest) -> Shape:
        """A further pod has ephemeral volumes of its own, wherever those of its model are."""
        pod = self._cache.index.pod(request.key)
        if pod is None or not any(volume.ephemeral is not None for volume in pod.spec.volumes or ()):
            return request.shape
        shared = tuple(volume for volume in pod.spec.volumes or () if volume.ephemeral is None)
        # Without its UID it is no pod that the cache knows.
        meta = msgspec.structs.replace(pod.metadata, uid="")
        spec = msgspec.structs.replace(pod.spec, volumes=shared)
        return self._cache.capacity.shape(msgspec.structs.replace(pod, metadata=meta, spec=spec))

    def _pause(self, tries: int) -> Callable[[], None]:
        """Make a function that is called between two plans, and breaks off a step whose patience is at its end."""
        until = self._clock.monotonic() + self.patience * 2**tries

        def pause() -> None:
            if self.handle.queue.news.is_set() and self._clock.monotonic() >= until:
                raise BrokenOff

        return pause

    def _look(self, root: Key) -> None:
        """A root may ask something, or nothing any more."""
        if not self._running:
            return
        group = self._cache.index.root(root)
        question = self.read(group) if group is not None else None
        if group is None or question is None:
            self._forget(root, group)
            return
        if self._is_answered(root, group, question):
            self._drop(root)
        else:
            line = self._open.setdefault(root.namespace, OrderedDict())
            before = line.get(root)
            if before is None or before.question != question:
                line[root] = OpenRequest(question)
                self._count()
                self.handle.queue.wake()
        if root in self._answered:
            self._news.set()

    def _forget(self, root: Key, _group: core.Group | None) -> None:
        """A root asks nothing, or is gone."""
        self._answered.pop(root, None)
        self._said.pop(root, None)
        self._drop(root)

    def _is_answered(self, root: Key, group: core.Group, question: Q) -> bool:
        written = getattr(group.status, self.field)
        if written is not None and written.asked == question.asked:
            self._said.pop(root, None)
            return True
        return self._said.get(root) == (group.metadata.uid, question.asked)

    def _asks(self, root: Key, asked: OpenRequest[Q]) -> bool:
        """Tell whether a root still asks this."""
        line = self._open.get(root.namespace)
        return line is not None and line.get(root) is asked

    def _drop(self, root: Key) -> None:
        line = self._open.get(root.namespace)
        if line is not None and line.pop(root, None) is not None:
            if not line:
                del self._open[root.namespace]
            self._count()

    def _turn(self, root: Key) -> None:
        """Others are next."""
        if root.namespace in self._open:
            self._open.move_to_end(root.namespace)
            if root in self._open[root.namespace]:
                self._open[root.namespace].move_to_end(root)

    async def _write(self, root: Key, uid: str, answer: dict[str, Any]) -> bool:
        """Write an answer; False when that has to be tried again."""
        group = self._cache.index.root(root)
        if not self._context.leads() or group is None or group.metadata.uid != uid:
            return True
        version = group.metadata.resource_version
        body = {
            "apiVersion": SCHEDULING_API,
            "kind": root.kind,
            # A namesake must not get this answer: it may ask in the same words. In the status of a custom resource the
            # API server heeds no UID.
            "metadata": {"name": root.name, "namespace": root.namespace, "resourceVersion": version},
            "status": {self.field: answer},
        }
        kind = COMPOSITE_POD_GROUPS if root.kind == "CompositePodGroup" else POD_GROUPS
        at = {"field": self.field, "namespace": root.namespace, "root": root.name}
        try:
            await self._context.client.apply(kind, body, manager=self.manager, subresource="status", type=Ignored)
        except NotFound:
            return True
        except Conflict:
            return False  # the group has changed, or has a successor, which the watch will show
        except KubeError as error:
            log.warning("answer not written", error=str(error), **at)
            return isinstance(error, Invalid)  # whoever asked has named a role as none can be named
        log.info("answer told", asked=answer["asked"], **at)
        return True
