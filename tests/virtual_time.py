"""An event loop whose clock jumps to the next timer as soon as nothing else is to be done.

Hours of back-off pass in milliseconds, and always in the same order. A loop that waits for nothing at all is a deadlock
and fails at once, so no test in it may wait for another thread or process.
"""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _Selector(selectors.DefaultSelector):
    def __init__(self, start: float) -> None:
        super().__init__()
        self.now = start

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: nothing to do and no timer")
            self.now += max(timeout, 0.0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """``time()`` moves only when the loop would sleep."""

    def __init__(self, start: float = 0.0) -> None:
        self._virtual = _Selector(start)
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test's coroutine in virtual time."""

    @functools.wraps(test)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return call


def now() -> float:
    """Virtual seconds since the start."""
    return asyncio.get_running_loop().time()
