"""The patches' attempts, with the API server's answers given."""

from __future__ import annotations

from typing import Any

from covey.api import core
from covey.kube.errors import Unreachable
from covey.scheduler.writer import ATTEMPTS, FIRST_WAIT, Pinned, PodWriter
from scheduler_builders import GATE, member


class Silent:
    """An API server that cannot be reached."""

    def __init__(self) -> None:
        self.asked = 0

    async def json_patch(self, *_args: object, **_options: object) -> core.Pod:
        self.asked += 1
        raise Unreachable

    async def get(self, *_args: object, **_options: object) -> core.Pod:
        raise Unreachable


async def test_a_pin_that_nobody_takes_is_given_up_after_the_last_attempt() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    api: Any = Silent()
    result = await PodWriter(api, sleep=sleep).pin(member("decode", 0, gates=(GATE,)), "n1", {})
    assert result.outcome is Pinned.DENIED
    assert api.asked == ATTEMPTS
    assert slept == [FIRST_WAIT * 2**number for number in range(ATTEMPTS - 1)]
