"""The patches' attempts, with the API server's answers given."""

from __future__ import annotations

import asyncio
from typing import Any

from builders.members import GATE, member
from covey.api import core
from covey.kube.clock import SYSTEM, Clock
from covey.kube.errors import Unreachable
from covey.scheduler.writer import ATTEMPTS, FIRST_WAIT, PATIENCE, Pinned, PodWriter
from virtual_time import now, run, virtual


class Silent:
    """An API server that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    async def merge_patch(self, *_args: object, **_options: object) -> core.Pod:
        self.asked += 1
        raise Unreachable

    async def get(self, *_args: object, **_options: object) -> core.Pod:
        raise Unreachable


async def test_a_pin_that_nobody_takes_is_given_up_after_the_last_attempt() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    api: Any = Silent()
    result = await PodWriter(api, clock=Clock(sleep=sleep)).pin(member("decode", 0, gates=(GATE,)), "n1", {})
    assert result.outcome is Pinned.DENIED
    assert api.asked == ATTEMPTS
    assert slept == [FIRST_WAIT * 2**number for number in range(ATTEMPTS - 1)]


class Slow:
    """An API server that answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answer = asyncio.Event()

    async def merge_patch(self, _resource: object, name: str, *_args: object, **_options: object) -> core.Pod:
        self.sent.append(name)
        await self.answer.wait()
        return member("decode", 0)


@virtual
async def test_what_was_sent_is_waited_for_when_its_task_is_cancelled() -> None:
    api: Any = Slow()
    writer = PodWriter(api, clock=SYSTEM)
    deciding = writer.while_leading(lambda: True)
    task = asyncio.create_task(deciding.pin(member("decode", 0, gates=(GATE,)), "n1", {}))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not await writer.wait_until_idle(0.01)
    asyncio.get_running_loop().call_later(0.01, api.answer.set)
    assert await writer.wait_until_idle(5.0)


def test_a_patch_without_an_answer_ends_before_anybody_else_may_lead() -> None:
    class Dumb:
        async def merge_patch(self, *_args: object, **_options: object) -> core.Pod:
            return await asyncio.get_running_loop().create_future()

        async def get(self, *_args: object, **_options: object) -> core.Pod:
            return member("decode", 0, pin="n1")

    async def late() -> float:
        api: Any = Dumb()
        result = await PodWriter(api, clock=SYSTEM).pin(member("decode", 0, gates=(GATE,)), "n1", {})
        assert result.outcome is Pinned.DONE  # it had arrived all the same
        return now()

    assert run(late()) == PATIENCE
