from __future__ import annotations

import asyncio
from typing import Any

from builders.members import cache, pod
from covey.api import core
from covey.kube.errors import KubeError, NotFound, Unreachable
from covey.scheduler.turns import ActiveLabel

LABEL = "scheduling.covey.dev/extender"


class Api:
    """Answers to patches in order, then success."""

    def __init__(self, *answers: KubeError) -> None:
        self.answers = list(answers)
        self.written: list[str | None] = []

    async def merge_patch(self, _resource: Any, name: str, namespace: str, body: Any, **_: Any) -> core.Pod:
        if self.answers:
            raise self.answers.pop(0)
        assert (namespace, name) == ("ns", "me")
        self.written.append(body["metadata"]["labels"][LABEL])
        return pod("me")


def label(api: Api, *pods: core.Pod, rounds: int = 3) -> ActiveLabel:
    left = iter(range(rounds))

    async def sleep(_seconds: float) -> None:
        if next(left, None) is None:
            raise asyncio.CancelledError
        await asyncio.sleep(0)

    client: Any = api
    return ActiveLabel(client, cache(*pods), "ns", "me", sleep=sleep)


async def test_what_an_earlier_process_left_is_taken_off_though_the_api_server_fails_first() -> None:
    api = Api(Unreachable(), Unreachable())
    await label(api, pod("me", labels={LABEL: "active"})).clear()
    assert api.written == [None]


async def test_a_pod_that_is_not_there_has_no_label() -> None:
    api = Api(NotFound(404))
    await label(api).clear()
    assert api.written == []


async def test_the_label_is_put_on_once_and_again_when_it_is_taken_off() -> None:
    api = Api(Unreachable())
    found = label(api, pod("me"), rounds=1)
    await asyncio.gather(found.keep(), return_exceptions=True)
    assert api.written == ["active"]
    found = label(api, pod("me", labels={LABEL: "active"}))
    await asyncio.gather(found.keep(), return_exceptions=True)
    assert api.written == ["active"], "it is there already"
    found = label(api, pod("me"), rounds=0)
    await asyncio.gather(found.keep(), return_exceptions=True)
    assert api.written == ["active", "active"]
