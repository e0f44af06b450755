"""What the reflector does with given answers; how the answers come about is tested against a real API server."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast

from builders import pods
from covey.api.core import Meta, Pod
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import Gone, NotFound, Unreachable
from covey.kube.reflector import Reflector
from covey.kube.resources import PODS
from virtual_time import now, run, virtual

Event = tuple[str, Pod]


def pod(name: str, version: int) -> Pod:
    return pods.pod(name, resourceVersion=str(version))


def bookmark(version: int) -> Event:
    return ("BOOKMARK", Pod(metadata=Meta(resource_version=str(version))))


class Script:
    """Gives the answers it was given, one for each request; each is asserted to be for the right kind of request.

    A list answer is ``(pods, version)``, a watch answer a list of events, and pauses as numbers, then the stream
    ends; an exception, alone or among the events, is raised.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, float]] = []
        self.done = asyncio.Event()

    async def list(self, *_: Any, **__: Any) -> tuple[list[Pod], str]:
        answer = await self.next("list")
        assert isinstance(answer, tuple), answer
        return list(answer[0]), str(answer[1])

    async def watch(self, *_: Any, resource_version: str, **__: Any) -> AsyncGenerator[Event, None]:
        for step in await self.next(f"watch {resource_version}"):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int):
                await asyncio.sleep(step)
            else:
                yield step

    async def next(self, request: str) -> Any:
        self.asked.append((request, now()))
        if not self.answers:
            self.done.set()
            await asyncio.sleep(float("inf"))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Follower:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, kind: str, new: Pod, old: Pod | None) -> None:
        before = f" after {old.metadata.resource_version}" if old else ""
        self.seen.append(f"{kind} {new.metadata.name} {new.metadata.resource_version}{before}")


def reflected(*answers: Any) -> tuple[list[str], list[str], list[float]]:
    """What is announced, what is asked for, and when, under a script of answers."""

    async def main() -> tuple[list[str], list[str], list[float]]:
        script, follower = Script(*answers), Follower()
        reflector = Reflector(
            cast(Client, script),
            PODS,
            Pod,
            on_event=follower,
            clock=Clock(asyncio.get_running_loop().time, random=random.Random(0).random),
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            await script.done.wait()
            task.cancel()
        assert reflector.synced.is_set()
        return follower.seen, [request for request, _ in script.asked], [time for _, time in script.asked]

    return run(main())


def test_an_expired_version_leads_to_a_list_with_synthetic_deletions() -> None:
    seen, asked, _ = reflected(
        ([pod("a", 3), pod("b", 4)], 5),
        [("ADDED", pod("c", 6)), 5, Gone(410, "Expired")],
        ([pod("b", 4), pod("c", 9)], 20),
        [],
    )
    assert asked == ["list", "watch 5", "list", "watch 20", "watch 20"]
    assert seen == ["ADDED a 3", "ADDED b 4", "ADDED c 6", "DELETED a 3 after 3", "MODIFIED c 9 after 6"]


def test_a_server_that_is_away_for_days_is_still_found_again() -> None:
    _, asked, _ = reflected(*[Unreachable("away")] * 1100, ([], 2), [60])
    assert asked[1100:1102] == ["list", "watch 2"]


def test_watches_that_end_at_once_are_not_asked_for_in_a_hot_loop() -> None:
    _, asked, times = reflected(([], 5), [], [], [], [])
    assert asked == ["list", *["watch 5"] * 5]
    assert times[-1] >= 0.2 + 0.4 + 0.8 + 1.6


def test_a_watch_that_was_cut_short_with_news_is_resumed_at_once() -> None:
    _, asked, times = reflected(([], 5), [("ADDED", pod("a", 6))], [("ADDED", pod("b", 7))], [60])
    assert asked == ["list", "watch 5", "watch 6", "watch 7", "watch 7"]
    assert times == [0, 0, 0, 0, 60]


def with_reflector(script: Script, check: Callable[[Reflector[Pod]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        reflector = Reflector(cast(Client, script), PODS, Pod, clock=Clock(asyncio.get_running_loop().time))
        task = asyncio.create_task(reflector.run())
        await check(reflector)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def test_a_callback_that_fails_stops_neither_the_others_nor_the_reflector() -> None:
    follower = Follower()

    def fails(*_: object) -> None:
        raise LookupError

    async def check(reflector: Reflector[Pod]) -> None:
        reflector.subscribe(fails)
        reflector.subscribe(follower)
        await asyncio.sleep(10)
        assert follower.seen == ["ADDED a 1", "MODIFIED a 3 after 1"]
        assert reflector.store["ns", "a"].metadata.resource_version == "3"

    with_reflector(Script(([pod("a", 1)], 2), [("MODIFIED", pod("a", 3)), 60]), check)


@virtual
async def test_a_resource_that_is_not_served_is_empty_until_it_is() -> None:
    absent = NotFound(404, "NotFound", "the server could not find the requested resource")
    script = Script(absent, absent, ([pod("a", 1)], 5), [5, absent], absent)
    follower = Follower()
    changes: list[bool] = []
    reflector = Reflector(
        cast(Client, script),
        PODS,
        Pod,
        on_event=follower,
        clock=Clock(asyncio.get_running_loop().time, random=random.Random(0).random),
    )
    reflector.on_served(lambda: changes.append(reflector.served))
    task = asyncio.create_task(reflector.run())
    await reflector.settled.wait()
    assert not reflector.served
    assert not reflector.synced.is_set()
    await reflector.synced.wait()
    assert reflector.served
    await script.done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Its objects went with it.
    assert follower.seen == ["ADDED a 1", "DELETED a 1 after 1"]
    assert not reflector.store
    assert changes == [False, True, False]
    # It answers, if only that it has no such thing.
    assert reflector.silence < 60


def test_a_collection_that_is_listed_anew_is_not_steady_until_all_of_it_is_told() -> None:
    async def check(reflector: Reflector[Pod]) -> None:
        steady: list[bool] = []
        reflector.subscribe(lambda *_: steady.append(reflector.steady.is_set()))
        assert reflector.steady.is_set()
        await reflector.synced.wait()
        await asyncio.sleep(100)
        assert len(steady) > 1000
        assert not any(steady)
        assert reflector.steady.is_set()

    first = [pod(f"p{i}", 1) for i in range(1000)]
    with_reflector(Script((first, 2), [5, Gone(410, "Expired")], ([], 20), [600]), check)


def test_a_version_is_reached_by_a_list_an_event_or_a_bookmark() -> None:
    async def check(reflector: Reflector[Pod]) -> None:
        assert await reflector.reach("5", 1.0)
        assert not await reflector.reach("7", 1.0)
        assert await reflector.reach("7", 10.0)
        assert now() == 5.0
        assert await reflector.reach("9", 100.0)
        assert now() == 15.0

    events = [5, ("MODIFIED", pod("a", 8)), 10, bookmark(40), 600]
    with_reflector(Script(([pod("a", 3)], 5), events), check)
