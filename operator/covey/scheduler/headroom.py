"""Answers the question how many replicas of each role could have places, when nobody waits for a place.

The operator puts the question on a root group (``api.headroom``), the answer goes into that root's status, once for
each question. Both are on the API server, so a process that ends in between leaves the question to the next one.

Admission asks here for work only when no unit waits to be planned, so an answer delays nobody by more than one role of
one resource; and after a step it rests nine times as long as the step took. Ten thousand questions take long, and
nothing else takes longer for them. Namespaces take turns, so that one with many questions does not keep the others
waiting. A step that somebody comes to wait for is broken off after a while and tried again later, with more patience.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from covey.admission.gangs import UnplannableError
from covey.admission.headroom import LIMIT_MET, UNITS, Answer, Site, most_feasible, within_quota
from covey.admission.tree import Key
from covey.api import core
from covey.api.constants import ANNOTATION_QUESTION, MANAGER_SCHEDULER_HEADROOM, SCHEDULING_API
from covey.api.core import rfc3339
from covey.api.headroom import Question, read
from covey.kube.client import Ignored
from covey.kube.errors import Conflict, Invalid, KubeError, NotFound
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.cache import Listener
from covey.scheduler.context import Context
from covey.scheduler.queue import Queueing
from covey.scheduler.reservations import Reservations
from covey.scheduler.sites import Sites

log = get_logger(__name__)

#: After a step it rests so many times as long as the step took, and at least so many seconds.
REST: Final = 9.0
LEAST_REST: Final = 0.05
#: Seconds after which a step is broken off when somebody waits for a place, doubled at each try; and the tries.
PATIENCE: Final = 0.1
TRIES: Final = 5
#: What is said where the planner itself failed.
FAILED: Final = "the planner failed on it; the scheduler's log has the details"
#: Seconds until an answer that could not be written is written again.
RETRY: Final = 5.0


class _BrokenOff(Exception):  # noqa: N818 - no error: somebody else is first
    """Somebody waits for a place."""


@dataclass(slots=True)
class _Open:
    """A question, the answers that there are by now, and how often the next one was tried."""

    question: Question
    answers: list[Answer] = field(default_factory=list)
    tries: int = 0


class Headroom:
    """The questions that are not answered yet.

    Args:
        context: of the process.
        queueing: what surrounds a unit.
        reservations: what is kept for whom.
        busy: whether there is something for admission to do.
        stir: lets admission look whether there is something to do here.
    """

    def __init__(
        self,
        context: Context,
        queueing: Queueing,
        reservations: Reservations,
        *,
        busy: Callable[[], bool] = lambda: False,
        stir: Callable[[], None] = lambda: None,
    ) -> None:
        self._cache = context.cache
        self._client = context.client
        self._queueing = queueing
        self._sites = Sites(context.cache, queueing, reservations)
        self._leads = context.leads
        self._busy = busy
        self._stir = stir
        self._clock = context.clock
        #: By namespace, the one whose turn it is first.
        self._open: OrderedDict[str, OrderedDict[Key, _Open]] = OrderedDict()
        #: Answers to be written, and what was written that the watch may not have shown yet.
        self._answered: OrderedDict[Key, tuple[str, dict[str, Any]]] = OrderedDict()
        self._said: dict[Key, tuple[str, str]] = {}
        self._news = asyncio.Event()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._cache.subscribe(Listener(unit=self._look, status=self._look))

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
            while self._answered:
                root, (uid, body) = self._answered.popitem(last=False)
                if not await self._write(root, uid, body):
                    self._said.pop(root, None)
                    asyncio.get_running_loop().call_later(RETRY, self._look, root)

    async def step(self) -> bool:
        """Answer for one role of one resource, if there is a question and it is time; False where there is not."""
        now = self._clock.monotonic()
        found = self._next()
        if found is None:
            return False
        if now < self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._due - now, self._stir)
            return False
        root, asked = found
        await self._answer(root, asked)
        ended = self._clock.monotonic()
        self._due = ended + max(REST * (ended - now), LEAST_REST)
        return True

    @staticmethod
    def dump_answers(asked: str, observed_at: str, answers: Iterable[Answer]) -> dict[str, Any]:
        """The answer, as a status has it."""
        return {"asked": asked, "observedAt": observed_at, "roles": [_dump_answer(each) for each in answers]}

    def _look(self, root: Key) -> None:
        """A root may ask something, or nothing any more."""
        if not self._running:
            return
        group = self._cache.index.root(root)
        question = read(group.metadata.annotation(ANNOTATION_QUESTION)) if group is not None else None
        if group is None:
            self._said.pop(root, None)
        if group is None or question is None or self._is_answered(root, group, question):
            self._drop(root)
            return
        line = self._open.setdefault(root.namespace, OrderedDict())
        before = line.get(root)
        if before is None or before.question != question:
            line[root] = _Open(question)
            self._count()
            self._stir()

    def _is_answered(self, root: Key, group: core.Group, question: Question) -> bool:
        written = group.status.headroom
        if written is not None and written.asked == question.asked:
            self._said.pop(root, None)
            return True
        return self._said.get(root) == (group.metadata.uid, question.asked)

    def _drop(self, root: Key) -> None:
        line = self._open.get(root.namespace)
        if line is not None and line.pop(root, None) is not None:
            if not line:
                del self._open[root.namespace]
            self._count()

    def _count(self) -> None:
        metrics.HEADROOM_QUESTIONS.set(sum(map(len, self._open.values())))

    def _next(self) -> tuple[Key, _Open] | None:
        line = next(iter(self._open.values()), None)
        return next(iter(line.items()), None) if line else None

    def _turn(self, root: Key) -> None:
        """Others are next."""
        if root.namespace in self._open:
            self._open.move_to_end(root.namespace)
            if root in self._open[root.namespace]:
                self._open[root.namespace].move_to_end(root)

    async def _answer(self, root: Key, asked: _Open) -> None:
        """One more role; the whole answer is written when it was the last one."""
        group, roles = self._cache.index.root(root), list(asked.question.roles)
        if group is None:
            self._drop(root)
            return
        if roles:
            await self._next_role(group, roles[len(asked.answers)], asked)
        self._turn(root)
        line = self._open.get(root.namespace)
        if len(asked.answers) < len(roles) or line is None or line.get(root) is not asked:
            return  # there is more to ask, or somebody asks something else by now
        body = self.dump_answers(asked.question.asked, rfc3339(self._clock.wall()), asked.answers)
        self._drop(root)
        self._said[root] = (group.metadata.uid, asked.question.asked)
        self._answered[root] = (group.metadata.uid, body)
        self._news.set()

    async def _next_role(self, root: core.Group, role: str, asked: _Open) -> None:
        began, result = self._clock.monotonic(), "unknown"
        try:
            answer = await self._role(root, role, asked)
            result = "unknown" if answer.replicas is None else "known"
        except _BrokenOff:
            asked.tries += 1
            result = "broken_off"
            return
        except Exception:
            log.exception("head-room not found", namespace=root.metadata.namespace, root=root.metadata.name, role=role)
            answer = Answer(role, None, message=FAILED)
        finally:
            metrics.HEADROOM_DURATION.labels(result).observe(self._clock.monotonic() - began)
        asked.answers.append(answer)
        asked.tries = 0

    async def _role(self, root: core.Group, role: str, asked: _Open) -> Answer:
        units = list(self._sites.units_of(root))
        # What would be given up in the end is not begun: nobody else has the loop while sites are made.
        if asked.tries >= TRIES or len(units) > UNITS:
            return Answer(role, None, message=LIMIT_MET)
        try:
            sites = list(self._sites.of(units))
        except UnplannableError as error:
            return Answer(role, None, message=error.message)
        until = self._clock.monotonic() + PATIENCE * 2**asked.tries

        def pause() -> None:
            if self._busy() and self._clock.monotonic() >= until:
                raise _BrokenOff

        with self._cache.capacity.planning() as inventory:
            ask = partial(
                most_feasible,
                *(role, sites, inventory),
                is_shared=asked.question.roles[role],
                shape=self._sites.shape,
                pause=pause,
            )
            answer = await asyncio.to_thread(ask)
        return self._within_quota(root, answer, sites, is_shared=asked.question.roles[role])

    def _within_quota(self, root: core.Group, answer: Answer, sites: Iterable[Site], *, is_shared: bool) -> Answer:
        """No more than quota leaves, wherever the replicas would lie."""
        key = Key(root.kind, root.metadata.namespace, root.metadata.name)
        room_for = partial(self._queueing.quotas.room_for, key)
        return within_quota(answer, sites, room_for, is_shared=is_shared, shape=self._sites.shape)

    async def _write(self, root: Key, uid: str, headroom: Mapping[str, Any]) -> bool:
        """Write an answer; False when that has to be tried again."""
        group = self._cache.index.root(root)
        if not self._leads() or group is None or group.metadata.uid != uid:
            return True
        version = group.metadata.resource_version
        body = {
            "apiVersion": SCHEDULING_API,
            "kind": root.kind,
            # A namesake must not get this answer: it may ask in the same words. In the status of a custom resource the
            # API server heeds no UID.
            "metadata": {"name": root.name, "namespace": root.namespace, "resourceVersion": version},
            "status": {"headroom": headroom},
        }
        kind = COMPOSITE_POD_GROUPS if root.kind == "CompositePodGroup" else POD_GROUPS
        try:
            await self._client.apply(kind, body, manager=MANAGER_SCHEDULER_HEADROOM, subresource="status", type=Ignored)
        except NotFound:
            return True
        except Conflict:
            return False  # the group has changed, or has a successor, which the watch will show
        except Invalid as error:  # whoever asked has named a role as none can be named
            log.warning("head-room not written", namespace=root.namespace, root=root.name, error=str(error))
            return True
        except KubeError as error:
            log.warning("head-room not written", namespace=root.namespace, root=root.name, error=str(error))
            return False
        log.info("head-room told", namespace=root.namespace, root=root.name, asked=headroom["asked"])
        return True


def _dump_answer(answer: Answer) -> dict[str, Any]:
    number = {} if answer.replicas is None else {"replicas": answer.replicas}
    return {"name": answer.role, **number, "atLeast": answer.is_floor, "message": answer.message}
