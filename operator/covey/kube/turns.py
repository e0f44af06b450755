"""Turns at the API server, by rank: so many at once, and who ranks highest is next, whenever it came."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

#: The lower comes first.
Rank = tuple[int | str, ...]


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
    async def take(self, rank: Rank, seconds: float | None = None) -> AsyncIterator[None]:
        """Wait for a turn, and have it; after ``seconds`` the next one has its turn, too."""
        await self._wait(rank)
        is_counted = True

        def end() -> None:
            nonlocal is_counted
            if is_counted:
                is_counted = False
                self._pass_on()

        timer = asyncio.get_running_loop().call_later(seconds, end) if seconds is not None else None
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            end()

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
