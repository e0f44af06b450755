"""Work that goes on beside a block of code."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


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
