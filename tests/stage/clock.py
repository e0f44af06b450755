"""Time of Covey's processes on a stage: that of the machine, and as much more as a test says has passed.

The loop's own time is the clock's, so that every timer of the processes obeys it, whoever has set it: theirs, Kopf's and
aiohttp's. What the loop has to do is known, too: when nothing is left, and when the next timer is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from covey.kube.clock import Clock

#: Seconds between two looks of whoever waits for the loop and is not woken by it.
_LOOK: Final = 0.2


class Time:
    """The machine's clocks, set forward by ``ahead`` seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0
        #: As it is handed to Covey's processes; chance is not.
        self.clock = Clock(
            self.monotonic, lambda: time.time() - time.monotonic() + self.monotonic(), random=lambda: 0.5
        )
        self._stopped: float | None = None

    def monotonic(self) -> float:
        """Seconds of any beginning."""
        return (time.monotonic() if self._stopped is None else self._stopped) + self.ahead

    @contextlib.contextmanager
    def stand_still(self) -> Iterator[None]:
        """Let no time pass by itself for as long as the block lasts, however long the machine takes; then go on from there."""
        self._stopped = time.monotonic()
        try:
            yield
        finally:
            self.ahead -= time.monotonic() - self._stopped
            self._stopped = None


class _Selector(selectors.DefaultSelector):
    """Tells when the loop has nothing to do but to wait."""

    def __init__(self, changed: threading.Condition) -> None:
        super().__init__()
        self._changed = changed
        self.idle = False
        #: Seconds until the next timer, as of when the loop became idle; None where there is none.
        self.rest: float | None = None

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        with self._changed:
            self.idle, self.rest = True, timeout
            self._changed.notify_all()
        try:
            return super().select(timeout)
        finally:
            self.idle = False


class _Executor(ThreadPoolExecutor):
    """Counts the calls that go on in its threads."""

    def __init__(self) -> None:
        super().__init__(2, thread_name_prefix="stage")
        self.running = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.running += 1
        future = super().submit(call, *args, **kwargs)
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, _: Future[Any]) -> None:
        self.running -= 1


def _close_unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Close a connection that was accepted when its server had just been cancelled.

    asyncio drops it then (``_sock_accept``), and its caller would wait for as long as something refers to the error.
    """
    error = context.get("exception")
    if not isinstance(error, asyncio.InvalidStateError):
        loop.default_exception_handler(context)
        return
    for frame, _ in traceback.walk_tb(error.__traceback__):
        connection = frame.f_locals.get("conn")
        if isinstance(connection, socket.socket):
            connection.close()


class Loop(asyncio.SelectorEventLoop):
    """An event loop in a thread of its own, whose time a test sets forward.

    Args:
        clock: its time.
        busy: tells whether something is under way that the loop will hear of, such as an answer.
    """

    def __init__(self, clock: Time, busy: Callable[[], bool]) -> None:
        self._time = clock
        self._busy = busy
        #: Told of every end of work, and by others of what they have changed.
        self.changed = threading.Condition()
        self._idle = _Selector(self.changed)
        super().__init__(self._idle)
        self.set_exception_handler(_close_unheard)
        self._threads = _Executor()
        self.set_default_executor(self._threads)
        self._thread = threading.Thread(target=self.run_forever, name="stage", daemon=True)
        self._thread.start()

    def time(self) -> float:
        """Seconds, as all of Covey has them."""
        return self._time.monotonic()

    def call(self, coroutine: Any, seconds: float | None = None) -> Any:
        """Run a coroutine to its end from another thread; return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self).result(seconds)

    def is_idle(self) -> bool:
        """Tell whether nothing is left to do, in no thread, and no answer is waited for."""
        return self._idle.idle and not self._threads.running and not self._busy()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until it is idle after whatever was done before; False when it is not in so many real seconds."""
        woken = threading.Event()
        self.call_soon_threadsafe(woken.set)
        until = time.monotonic() + seconds
        while True:
            with self.changed:
                if woken.is_set() and self.is_idle():
                    return True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(min(left, _LOOK))

    def due(self) -> float | None:
        """Seconds until the next timer of a loop that is idle; None where there is none."""
        return self._idle.rest

    def pass_time(self, seconds: float) -> None:
        """Let so much time have passed; timers that are due by then fire."""
        self._time.ahead += seconds
        self.call_soon_threadsafe(lambda: None)

    def end(self) -> None:
        """Cancel what runs, and end the thread."""
        self.call(self._cancel_all())
        self.call(self.shutdown_asyncgens())
        self.call_soon_threadsafe(self.stop)
        self._thread.join()
        self._threads.shutdown()
        self.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
