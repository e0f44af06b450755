"""An event loop whose time passes only while nothing is to be done: an hour of waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Waits for nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for somebody else"
        self.waited += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock starts at a thousand seconds, since to some zero is "never"."""

    def __init__(self, *args: Any) -> None:
        self._clock = _Selector()
        super().__init__(self._clock, *args)

    def time(self) -> float:
        return 1_000.0 + self._clock.waited
