"""Asks the API server what it thinks of the pods, before anything is created.

The CRD stores templates unread. A strict dry run of a leader and a worker of each role gives the API server's own
answer: unknown fields, invalid values, admission policies. It is asked once for a revision; a refusal is remembered,
not repeated. A revision that has been stored was accepted, and is not asked about again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from covey.api import constants as names
from covey.compile import Slot, Tree
from covey.compile.identity import hostname
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.errors import ApiError, BadRequest, Forbidden, Invalid
from covey.operator.problem import Problem, of_pod_refusal


class TemplateCheck:
    """Remembers the last verdict on each resource, by UID."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._verdicts: dict[str, tuple[str, Problem | None]] = {}

    async def find_problem(self, tree: Tree) -> Problem | None:
        """What the API server has against the pods of a tree; None when it would take them.

        Raises:
            KubeError: when it could not be asked.
        """
        known = self._verdicts.get(tree.owner.uid)
        if known is not None and known[0] == tree.revision.hash:
            return known[1]
        answers = await asyncio.gather(*(self._ask(role, body) for role, body in _samples(tree)))
        problem = next((answer for answer in answers if answer is not None), None)
        if problem is None or not problem.retry:
            self._verdicts[tree.owner.uid] = (tree.revision.hash, problem)
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
