"""One object that cannot be read stops nobody: a reflector has all others, of lists and of watches."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

from covey.api.core import Pod
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.reflector import Reflector
from covey.kube.resources import PODS
from covey.observability.families import REGISTRY
from unit.kube.test_transport import says_nothing, streams, talking

DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000


def pod(name: str, version: int, more: str = "") -> str:
    return f'{{"metadata":{{"name":"{name}","namespace":"ml","uid":"uid-{name}","resourceVersion":"{version}"}}{more}}}'


def event(kind: str, item: str) -> bytes:
    return f'{{"type":"{kind}","object":{item}}}\n'.encode()


def items(*pods: str) -> bytes:
    return f'{{"metadata":{{"resourceVersion":"9"}},"items":[{",".join(pods)}]}}'.encode()


#: A field that no projection declares, one of another type than it declares, and no object at all.
UNREADABLE = {"too deep": pod("bad", 5, f',"zzz":{DEEP}'), "wrong type": pod("bad", 5, ',"spec":3'), "no object": "3"}


@pytest.mark.parametrize("bad", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_reflector_has_all_others(bad: str) -> None:
    watch = [event("ADDED", bad), event("ADDED", pod("c", 11)), event("BOOKMARK", pod("", 12))]
    async with (
        talking(streams(items(pod("a", 1), bad, pod("b", 2))), streams(*watch, then=says_nothing)) as (client, _),
        following(client) as reflector,
    ):
        await until(lambda: len(reflector.store) == 3)
        assert {name for _, name in reflector.store} == {"a", "b", "c"}
        assert reflector.synced.is_set()
        counted = REGISTRY.get_sample_value("covey_unreadable_objects_total", {"resource": "pods"})
        assert counted is not None
        assert counted >= 2


async def test_what_is_known_of_it_stays_as_it_was() -> None:
    unread = pod("a", 5, ',"spec":3')
    first = streams(items(pod("a", 1)))
    expired = streams(
        event("MODIFIED", unread), json.dumps({"type": "ERROR", "object": {"code": 410}}).encode() + b"\n"
    )
    again, quiet = streams(items(unread, pod("b", 7))), streams(b"", then=says_nothing)
    async with talking(first, expired, again, quiet) as (client, _), following(client) as reflector:
        await until(lambda: ("ml", "b") in reflector.store)
        assert reflector.store["ml", "a"].metadata.resource_version == "1"


@contextlib.asynccontextmanager
async def following(client: Client) -> AsyncIterator[Reflector[Pod]]:
    reflector = Reflector(client, PODS, Pod, clock=SYSTEM)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - a store that a reflector fills
            await asyncio.sleep(0.005)
