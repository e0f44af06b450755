"""Work that goes on by itself; it is held here until it ends, for the event loop alone would not keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


class Tasks:
    """Tasks of one owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[None, None, Outcome]) -> asyncio.Task[Outcome]:
        """Begin a piece of work on the running event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
