"""Turns at the API server, by rank: so many at once, and who ranks highest is next, whenever it came."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from covey.placement.model import Gang

#: The lower comes first. Its first part is one of the classes below.
Rank = tuple[int | str, ...]

#: What frees room for others, what keeps a pod from being given up, and decisions in the order of their gangs.
RELEASE: Rank = (0,)
MARK: Rank = (1,)
_PIN = 2


def rank_of(gang: Gang, *, surplus: bool = False) -> Rank:
    """The rank of a gang's pins: by priority, in it every minimum before all surplus, then by age."""
    order = gang.order
    return (_PIN, order[0], int(surplus), *order[1:])


class Turns:
    """A semaphore whose waiters are served by rank."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = most
        self._waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._relieved: Callable[[], None] = lambda: None

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call back when so few wait again that more may be decided."""
        self._relieved = callback

    def is_crowded(self, rank: Rank) -> bool:
        """Twice as many wait as are served at once, and nobody of this rank would be served before them."""
        self._tidy()
        return len(self._waiting) >= 2 * self._most and self._waiting[0][0] <= rank

    @asynccontextmanager
    async def take(self, rank: Rank) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        await self._wait(rank)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, rank: Rank) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came together with the end of who waited for it
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        self._tidy()
        if not self._waiting:
            self._free += 1
            return
        heapq.heappop(self._waiting)[2].set_result(None)
        if len(self._waiting) == 2 * self._most - 1:
            self._relieved()

    def _tidy(self) -> None:
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
