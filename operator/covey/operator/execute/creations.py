"""Creates the pods of one pass, those that matter most first.

A refused one ends its own replica, and no other. Of a minimum that does not run it ends the unit: a part of it would
serve nobody, and hold what others could use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import groupby
from typing import Final, Protocol

from covey.compile import ReplicaKey
from covey.compile.identity import hostname
from covey.kube.errors import ApiError, Conflict, Retryable
from covey.observability.logging import get_logger
from covey.operator.model.actions import CreatePod, Precedence
from covey.operator.model.problem import REASON_REFUSED, Blocked, Problem, is_denial

_log = get_logger(__name__)

#: Refused replicas of one role and revision after which no more of them are asked for in this pass.
_ENOUGH: Final = 3

#: Role and hash of its revision: pods of one kind are made from the same template.
Kind = tuple[str, str]


class Each(Protocol):
    """Does something for all items, many at a time."""

    async def __call__(self, do: Callable[[CreatePod], Awaitable[None]], items: Collection[CreatePod], /) -> None:
        """Do it for all items; raise the first failure."""


class Creations:
    """The creations of one pass.

    Args:
        create: asks for one pod.
        each: asks for many.
        kind_of: the role and revision of a pod.
        lacks: something that a pod needs could not be created.
    """

    def __init__(
        self,
        create: Callable[[CreatePod], Awaitable[None]],
        each: Each,
        kind_of: Callable[[CreatePod], Kind],
        lacks: Callable[[CreatePod], bool],
    ) -> None:
        self._create = create
        self._each = each
        self._kind_of = kind_of
        self._lacks = lacks
        self._refused: set[ReplicaKey] = set()
        #: Units that do not run, and of which something is refused.
        self._ended: set[int] = set()
        self._refusals = Counter[Kind]()
        #: What a person has to know of, each once.
        self.problems: list[Problem] = []
        #: What passes by itself.
        self.delays: list[Exception] = []

    async def run(self, items: Iterable[CreatePod]) -> None:
        """Create the pods, one precedence after another.

        Raises:
            KubeError: a request failed for another reason than that this pod is refused.
        """
        for _, group in groupby(items, key=lambda creation: creation.precedence):
            items = list(group)
            lacking = {creation.slot[:3] for creation in items if self._lacks(creation)}
            for creation in items:
                if creation.slot[:3] in lacking:
                    self._end(creation)
            await self._run([creation for creation in items if not self._is_ended(creation)])

    def _end(self, creation: CreatePod) -> None:
        self._refused.add(creation.slot[:3])
        if creation.precedence is Precedence.MINIMUM:
            self._ended.add(creation.slot.unit)

    def _is_ended(self, creation: CreatePod) -> bool:
        return creation.slot[:3] in self._refused or creation.slot.unit in self._ended

    async def _run(self, items: Collection[CreatePod]) -> None:
        """Create one pod of each kind first; where it is refused, try the rest one by one until ``_ENOUGH`` are."""
        first: dict[Kind, CreatePod] = {}
        for creation in items:
            first.setdefault(self._kind_of(creation), creation)
        await self._each(self._try, list(first.values()))
        rest = [creation for creation in items if creation is not first[self._kind_of(creation)]]
        await self._each(self._try, [creation for creation in rest if not self._refusals[self._kind_of(creation)]])
        for creation in rest:
            if self._refusals[self._kind_of(creation)]:
                await self._try(creation)

    async def _try(self, creation: CreatePod) -> None:
        replica, kind = creation.slot[:3], self._kind_of(creation)
        if self._is_ended(creation) or self._refusals[kind] >= _ENOUGH:
            return
        try:
            await self._create(creation)
        except Blocked as blocked:
            problem = blocked.problem
        except (Conflict, Retryable) as error:
            self._end(creation)
            self.delays.append(error)
            return
        except ApiError as error:
            if not is_denial(error):
                raise
            message = f"the API server denies the creation of pod {hostname(creation.slot)}: {error.message}"
            problem = Problem(REASON_REFUSED, message, retry=True)
        else:
            return
        _log.warning("pod refused", pod=hostname(creation.slot), reason=problem.reason, error=problem.message)
        # Several pods of a replica may be asked for at once.
        self._refusals[kind] += replica not in self._refused
        self._end(creation)
        if problem not in self.problems:
            self.problems.append(problem)
