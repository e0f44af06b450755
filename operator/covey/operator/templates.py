"""Asks the API server what it thinks of the pods, before anything is created.

The CRD stores templates unread. A strict dry run of a leader and a worker of each role gives the API server's own
answer: unknown fields, invalid values, admission policies. It is asked once for a revision; a refusal is remembered,
one that may pass without a change of the template for a while, which doubles. A revision that has been stored was
accepted, and is not asked about again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from covey.api import constants as names
from covey.compile import Slot, Tree
from covey.compile.identity import hostname
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import ApiError, BadRequest, Forbidden, Invalid
from covey.operator.problem import Problem, of_pod_refusal, retry_delay


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What was said of a revision; it holds until so many seconds on the clock, and was asked for so often before."""

    revision: str
    problem: Problem | None
    until: float
    attempt: int


class TemplateCheck:
    """Remembers the last verdict on each resource, by UID.

    Args:
        client: to the API server.
        clock: monotonic, seconds.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._verdicts: dict[str, _Verdict] = {}

    async def find_problem(self, tree: Tree) -> Problem | None:
        """What the API server has against the pods of a tree; None when it would take them.

        Raises:
            KubeError: when it could not be asked.
        """
        known = self._verdicts.get(tree.owner.uid)
        if known is not None and known.revision != tree.revision.hash:
            known = None
        if known is not None and self._clock() < known.until:
            return known.problem
        answers = await asyncio.gather(*(self._ask(role, body) for role, body in _samples(tree)))
        problem = next((answer for answer in answers if answer is not None), None)
        attempt = known.attempt + 1 if known is not None else 0
        passes = problem is not None and problem.retry
        until = self._clock() + retry_delay(attempt) if passes else float("inf")
        self._verdicts[tree.owner.uid] = _Verdict(tree.revision.hash, problem, until, attempt)
        return problem

    def forget(self, uid: str) -> None:
        """The resource is gone."""
        self._verdicts.pop(uid, None)

    async def _ask(self, role: str, body: dict[str, Any]) -> Problem | None:
        try:
            await self._client.create(resources.PODS, body, dry_run=True, strict=True)
        except (BadRequest, Invalid, Forbidden) as error:
            found = of_pod_refusal(error)
            if found is None or found.reason == names.REASON_QUOTA_EXCEEDED:
                # Quota is counted when pods are really created.
                return None
            then = "it is tried again" if found.retry else "correct its template"
            message = f"the API server refuses the pods of role {role}: {found.message}; {then}"
            return Problem(found.reason, message, retry=found.retry)
        except ApiError as error:
            if "failed calling webhook" in error.message:
                return None
            raise
        return None


def _samples(tree: Tree) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, role in tree.revision.roles.items():
        for index in range(min(role.size, 2)):
            slot = Slot(0, name, 0, index)
            yield name, tree.pods.named(slot, f"{tree.owner.name}-{hostname(slot)}-check")
