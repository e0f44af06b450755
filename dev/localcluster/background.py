"""Work in threads: beside a block of code, or many items at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_THREADS: Final = 16


class Background:
    """Works in a thread as long as its ``with`` block runs; the block ends when the work has.

    ``_run`` does the work, and returns soon after ``ended`` is set.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError


def concurrently(do: Callable[[Item], Result], items: Iterable[Item], *, threads: int = _THREADS) -> list[Result]:
    """Call ``do`` for every item on a few threads; results in the order of the items, the first error is raised."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(do, items))
