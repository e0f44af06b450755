"""Requests at a rate, independent of each other, to the address of a router."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from localcluster.background import Background
from routers.engines import MODEL

#: Requests in a second, on average; the longest that one is waited for.
_RATE: Final = 15
_PATIENCE: Final = 30.0


class Traffic(Background):
    """Clients of a router; a context manager, which waits for the last answers.

    Args:
        where: the base address of the router that gets the next request.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        super().__init__()
        #: Answers by their status; 0 is none.
        self.statuses = Counter[int]()
        #: The first words of each answer that was not 200.
        self.words = Counter[str]()
        self._where = where

    @property
    def lost(self) -> int:
        """Requests without a good answer."""
        return self.statuses.total() - self.statuses[200]

    def _run(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        generator = random.Random(1)
        connector = TCPConnector(limit=0, force_close=True)
        session = ClientSession(connector=connector, timeout=ClientTimeout(_PATIENCE))
        async with session, asyncio.TaskGroup() as group:
            while not self.ended.is_set():
                group.create_task(self._ask(session, f"{self._where()}/v1/completions"))
                await asyncio.sleep(generator.expovariate(_RATE))

    async def _ask(self, session: ClientSession, url: str) -> None:
        status, text = 0, ""
        with contextlib.suppress(ClientError, TimeoutError):
            async with session.post(url, json={"model": MODEL, "prompt": "…", "max_tokens": 1}) as answer:
                text = await answer.text()
                status = answer.status
        self.statuses[status] += 1
        if status != 200:
            self.words[f"{status} {text[:160]}"] += 1
