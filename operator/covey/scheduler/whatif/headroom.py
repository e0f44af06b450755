"""Answers the question how many replicas of each role could have places, when nobody waits for a place.

The operator puts the question on a root group (``api.headroom``). A step is one role of one resource, so that an answer
delays nobody by more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from covey.admission.gangs import UnplannableError
from covey.admission.growth import Site
from covey.admission.headroom import LIMIT_MET, UNITS, HeadroomAnswer, most_feasible, within_quota
from covey.admission.nodes import Key
from covey.api import core
from covey.api.constants import ANNOTATION_QUESTION, MANAGER_SCHEDULER_HEADROOM
from covey.api.core import rfc3339
from covey.api.headroom import Question, read
from covey.observability import scheduler_metrics as metrics
from covey.observability.logging import get_logger
from covey.scheduler.whatif.requests import FAILED, TRIES, BrokenOff, OpenRequest, WhatIfRequests

log = get_logger(__name__)


class HeadroomQuestions(WhatIfRequests[Question]):
    """The questions for head-room."""

    field = "headroom"
    manager = MANAGER_SCHEDULER_HEADROOM
    rest = 9.0
    patience = 0.1

    @staticmethod
    def dump_answers(asked: str, observed_at: str, answers: Iterable[HeadroomAnswer]) -> dict[str, Any]:
        """The answer, as a status has it."""
        return {"asked": asked, "observedAt": observed_at, "roles": [_dump_answer(each) for each in answers]}

    @staticmethod
    def read(root: core.Group) -> Question | None:
        """Read the question of a root; None where it asks nothing."""
        return read(root.metadata.annotation(ANNOTATION_QUESTION))

    def _count(self) -> None:
        metrics.HEADROOM_QUESTIONS.set(sum(map(len, self._open.values())))

    async def _answer(self, root: core.Group, asked: OpenRequest[Question]) -> dict[str, Any] | None:
        """One more role; the whole answer when it was the last one."""
        roles = list(asked.question.roles)
        if roles:
            asked.answers.append(await self._next_role(root, roles[len(asked.answers)], asked))
            asked.tries = 0
        if len(asked.answers) < len(roles):
            return None
        return self.dump_answers(asked.question.asked, rfc3339(self._clock.wall()), asked.answers)

    async def _next_role(self, root: core.Group, role: str, asked: OpenRequest[Question]) -> HeadroomAnswer:
        began, result = self._clock.monotonic(), "unknown"
        try:
            answer = await self._role(root, role, asked)
            result = "unknown" if answer.replicas is None else "known"
        except BrokenOff:
            result = "broken_off"
            raise
        except Exception:
            log.exception(
                "head-room not counted", namespace=root.metadata.namespace, root=root.metadata.name, role=role
            )
            answer = HeadroomAnswer(role, None, message=FAILED)
        finally:
            metrics.HEADROOM_DURATION.labels(result).observe(self._clock.monotonic() - began)
        return answer

    async def _role(self, root: core.Group, role: str, asked: OpenRequest[Question]) -> HeadroomAnswer:
        units = list(self._units_of(root))
        # What would be given up in the end is not begun: nobody else has the loop while sites are made.
        if asked.tries >= TRIES or len(units) > UNITS:
            return HeadroomAnswer(role, None, message=LIMIT_MET)
        try:
            sites = list(self._sites(units))
        except UnplannableError as error:
            return HeadroomAnswer(role, None, message=error.message)
        with self._cache.capacity.planning() as inventory:
            ask = partial(
                most_feasible,
                *(role, sites, inventory),
                is_shared=asked.question.roles[role],
                shape=self._shape,
                pause=self._pause(asked.tries),
            )
            answer = await asyncio.to_thread(ask)
        return self._within_quota(root, answer, sites, is_shared=asked.question.roles[role])

    def _within_quota(
        self, root: core.Group, answer: HeadroomAnswer, sites: Iterable[Site], *, is_shared: bool
    ) -> HeadroomAnswer:
        """No more than quota leaves, wherever the replicas would lie."""
        key = Key(root.kind, root.metadata.namespace, root.metadata.name)
        room_for = partial(self._quotas.room_for, key)
        return within_quota(answer, sites, room_for, is_shared=is_shared, shape=self._shape)


def _dump_answer(answer: HeadroomAnswer) -> dict[str, Any]:
    number = {} if answer.replicas is None else {"replicas": answer.replicas}
    return {"name": answer.role, **number, "atLeast": answer.is_floor, "message": answer.message}
