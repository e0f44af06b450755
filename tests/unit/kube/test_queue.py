import asyncio
from operator import itemgetter

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from covey.kube.clock import SYSTEM
from covey.kube.errors import ApiError, Conflict, Retryable, Unreachable
from covey.kube.queue import QueueClosed, WorkQueue, run_workers
from virtual_time import now, run, virtual


@virtual
async def test_a_key_added_while_it_is_worked_on_runs_again_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=SYSTEM.monotonic)
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


@virtual
async def test_shares_take_turns() -> None:
    """However many keys one namespace has, and however often they come back, another one's is the next but one."""
    queue: WorkQueue[tuple[str, int]] = WorkQueue(share_of=itemgetter(0), clock=SYSTEM.monotonic)
    for number in range(1000):
        queue.add(("many", number))
    queue.add(("few", 0))
    queue.add(("one", 0))
    assert len(queue) == 1002
    taken = [await queue.get() for _ in range(5)]
    assert taken == [("many", 0), ("few", 0), ("one", 0), ("many", 1), ("many", 2)]
    queue.add(("few", 0))
    queue.done(("few", 0))
    assert [await queue.get(), await queue.get()] == [("many", 3), ("few", 0)]


def test_a_delay_beside_one_that_ends_now_on_the_loop_that_the_processes_run() -> None:
    async def main() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(clock=SYSTEM.monotonic)
        queue.add_after("now", 0.0001)  # less than uvloop's millisecond
        queue.add_after("later", 0.01)
        return [await queue.get(), await queue.get()]

    assert uvloop.run(main()) == ["now", "later"]


@virtual
async def test_closing_hands_out_what_waits_and_drops_what_is_delayed() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=SYSTEM.monotonic)
    queue.add("waits")
    queue.add_after("delayed", 1)
    queue.close()
    queue.close()
    queue.add("too late")
    queue.add_after("too late", 1)
    assert await queue.get() == "waits"
    queue.add("waits")
    queue.done("waits")
    for _ in range(2):
        with pytest.raises(QueueClosed):
            await queue.get()
    assert len(queue) == 0


def worked(failure: Exception | None, times: int) -> list[float]:
    """When a handler is called that fails so often, and what becomes of its key."""

    async def main() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(first_delay=1.0, clock=SYSTEM.monotonic)
        calls: list[float] = []

        async def handle(_: str) -> None:
            calls.append(now())
            if failure and len(calls) <= times:
                raise failure

        queue.add("a")
        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(queue, handle, 2))
            await asyncio.sleep(1000)
            assert queue.failures("a") == 0
            queue.close()
        return calls

    return run(main())


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (None, [0]),
        (Retryable(60.0, "waits for something"), [0, 60, 120, 180]),
        (Conflict(409), [0, 1, 3, 7]),
        (Unreachable("gone"), [0, 1, 3, 7]),
        (ApiError(500), [0, 1, 3, 7]),
        (LookupError("a bug"), [0, 1, 3, 7]),
    ],
)
def test_what_a_failure_does_to_its_key(failure: Exception | None, expected: list[float]) -> None:
    assert worked(failure, 3) == pytest.approx(expected)


@virtual
async def test_a_cancelled_worker_gives_its_key_back() -> None:
    queue: WorkQueue[str] = WorkQueue(clock=SYSTEM.monotonic)

    async def forever(_: str) -> None:
        await asyncio.sleep(float("inf"))

    queue.add("a")
    work = asyncio.create_task(run_workers(queue, forever, 1))
    await asyncio.sleep(1)
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    queue.add("a")
    assert len(queue) == 1


@given(
    adds=st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10), st.floats(0, 10)), max_size=30),
    costs=st.lists(st.floats(0, 5), min_size=1),
    workers=st.integers(1, 4),
)
def test_no_key_runs_twice_at_once_and_none_is_missed(
    adds: list[tuple[str, float, float]], costs: list[float], workers: int
) -> None:
    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=SYSTEM.monotonic)
        running: set[str] = set()
        begun: dict[str, float] = {}
        wanted: dict[str, float] = {}
        turn = 0

        async def handle(key: str) -> None:
            nonlocal turn
            assert key not in running
            running.add(key)
            begun[key] = now()
            turn += 1
            await asyncio.sleep(costs[turn % len(costs)])
            running.remove(key)

        async def add() -> None:
            for key, pause, delay in adds:
                await asyncio.sleep(pause)
                queue.add_after(key, delay)
                wanted[key] = max(now(), wanted.get(key, 0.0))

        async with asyncio.TaskGroup() as group:
            group.create_task(run_workers(queue, handle, workers))
            await add()
            await asyncio.sleep(1000)
            queue.close()
        # Every key was begun once more after it was last added.
        assert all(begun[key] >= time for key, time in wanted.items())

    run(main())
