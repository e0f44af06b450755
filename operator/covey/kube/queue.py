"""A work queue of keys with client-go's semantics.

A key that waits is held once, however often it is added.  A key that is being worked on is never given to a
second worker; added meanwhile, it waits again as soon as its worker is done.  Failed keys come back with
exponential back-off, each with its own count; delayed keys share one timer.  Unlike there, namespaces can take turns.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from covey.kube.errors import AlreadyExists, ApiError, Conflict, Retryable, Unreachable
from covey.kube.rounds import Rounds
from covey.observability import metrics
from covey.observability.logging import get_logger

_log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):  # noqa: N818 - no error: the end
    """The queue was closed and everything that waited has been taken."""


class _End:
    """Stands in the queue behind the last key."""


_END: Final = _End()


class WorkQueue(Generic[K]):
    """Keys that wait for a worker; single-threaded, on one event loop.

    Args:
        name: its label in metrics.
        share_of: whose a key is: each share has one key in turn. None: keys are taken as they came.
        first_delay: seconds before the first retry of a key, doubled for each failure in a row.
        longest_delay: bound of that.
        clock: monotonic seconds, for metrics.
    """

    def __init__(
        self,
        name: str = "queue",
        *,
        clock: Callable[[], float],
        share_of: Callable[[K], Hashable] = lambda _: None,
        first_delay: float = 0.005,
        longest_delay: float = 30.0,
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._ready = Rounds(share_of)
        #: One for each ready key, and the end.
        self._tokens: asyncio.Queue[_End | None] = asyncio.Queue()
        self._dirty: set[K] = set()
        self._processing: set[K] = set()
        self._failures: dict[K, int] = {}
        self._delayed: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0
        self._closed = False
        self._metrics = _Metrics(name, clock)

    def __len__(self) -> int:
        """Keys ready to be taken; neither delayed ones nor those being worked on."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Make a key wait for a worker, unless it does already."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        self._metrics.note_added(key)
        if key not in self._processing:
            self._offer(key)

    def add_after(self, key: K, delay: float) -> None:
        """Add a key ``delay`` seconds from now; of several delays of one key the earliest counts."""
        if delay <= 0:
            self.add(key)
            return
        if self._closed:
            return
        due = asyncio.get_running_loop().time() + delay
        if due < self._delayed.get(key, float("inf")):
            self._delayed[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._schedule()

    async def get(self) -> K:
        """Take the key whose turn it is; call ``done`` for it whatever happens.

        Raises:
            QueueClosed: closed and empty.
        """
        token = await self._tokens.get()
        if token is not None:
            self._tokens.put_nowait(token)
            raise QueueClosed
        key = self._ready.first()
        self._ready.discard(key)
        self._dirty.discard(key)
        self._processing.add(key)
        self._metrics.note_taken(key)
        return key

    def done(self, key: K) -> None:
        """End the work on a key, whether it succeeded or not."""
        self._processing.discard(key)
        self._metrics.done(key)
        if key in self._dirty and not self._closed:
            self._offer(key)

    def retry(self, key: K) -> float:
        """Count a failure of a key and add it after its back-off; returns the seconds."""
        self._metrics.retries.inc()
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # Beyond 2**64 no float is needed: the bound was reached long before.
        delay = min(self._first_delay * 2.0 ** min(failures, 64), self._longest_delay)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the failures of a key that has succeeded: the next one counts as the first."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures of a key in a row."""
        return self._failures.get(key, 0)

    def close(self) -> None:
        """Take no more keys, drop the delayed ones; those that wait are still handed out."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._delayed.clear()
        self._heap.clear()
        self._tokens.put_nowait(_END)

    def _offer(self, key: K) -> None:
        self._metrics.depth.inc()
        self._ready.add(key)
        self._tokens.put_nowait(None)

    def _schedule(self) -> None:
        """Keep one timer, for the earliest delayed key."""
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        # What a loop answers need not know its time: uvloop gives a plain handle when the time has come already.
        self._timer = asyncio.get_running_loop().call_at(due, self._release)
        self._timer_due = due

    def _release(self) -> None:
        # The loop may fire a timer early by its clock's resolution; the key's own time is taken for now.
        now = max(asyncio.get_running_loop().time(), self._heap[0][0])
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            # A key added again with a shorter delay has left its older entry behind.
            if self._delayed.get(key) == due:
                del self._delayed[key]
                self.add(key)
        self._timer = None
        if self._heap:
            self._schedule()


class _Metrics:
    """Metrics of a queue as client-go has them.

    A key's wait begins when it is added, also while a worker still has it.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.depth = metrics.WORKQUEUE_DEPTH.labels(name)
        self.retries = metrics.WORKQUEUE_RETRIES.labels(name)
        self._adds = metrics.WORKQUEUE_ADDS.labels(name)
        self._waited = metrics.WORKQUEUE_QUEUE_DURATION.labels(name)
        self._worked = metrics.WORKQUEUE_WORK_DURATION.labels(name)
        self._clock = clock
        self._added: dict[Hashable, float] = {}
        self._begun: dict[Hashable, float] = {}

    def note_added(self, key: Hashable) -> None:
        self._adds.inc()
        self._added[key] = self._clock()

    def note_taken(self, key: Hashable) -> None:
        now = self._clock()
        self.depth.dec()
        self._waited.observe(now - self._added.pop(key, now))
        self._begun[key] = now

    def done(self, key: Hashable) -> None:
        begun = self._begun.pop(key, None)
        if begun is not None:
            self._worked.observe(self._clock() - begun)


async def run_workers(queue: WorkQueue[K], handler: Callable[[K], Awaitable[None]], workers: int) -> None:
    """Work on the queue's keys, that many at a time, until the queue is closed and empty.

    What ``handler`` raises decides when its key comes back: ``Retryable`` after its delay, anything else with
    back-off.
    """
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_work(queue, handler))


async def _work(queue: WorkQueue[K], handler: Callable[[K], Awaitable[None]]) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueClosed:
            return
        try:
            await handler(key)
        except Exception as error:  # noqa: BLE001 - one key's failure must not end the worker
            _after_failure(queue, key, error)
        else:
            queue.forget(key)
        finally:
            queue.done(key)


def _after_failure(queue: WorkQueue[K], key: K, error: Exception) -> None:
    """Make a failed key wait again, and log why: only what nobody expected with its traceback."""
    if isinstance(error, Retryable):
        queue.forget(key)
        queue.add_after(key, error.delay)
        _log.debug("again later", key=key, delay=error.delay, why=str(error))
    elif isinstance(error, Conflict | AlreadyExists):
        _log.debug("conflict", key=key, error=str(error), delay=queue.retry(key))
    elif isinstance(error, ApiError | Unreachable):
        _log.warning("request failed", key=key, error=str(error), delay=queue.retry(key))
    else:
        _log.error("work failed", key=key, delay=queue.retry(key), exc_info=error)
