from __future__ import annotations

from typing import Any

import pytest

from builders.members import cache, drop, member, node, put, queue, root_key
from covey.api import core
from scheduler_loop import Loop, tree


def nodes(count: int, **more: Any) -> list[core.Node]:
    return [node(f"n{number}", **more) for number in range(count)]


def said(loop: Loop, name: str) -> tuple[str | None, str]:
    decision = loop.queue.decision(root_key(name))
    return decision.reason, decision.message


async def settle(loop: Loop) -> dict[str, str]:
    """Turns until nothing more is given; what was given is bound."""
    given: dict[str, str] = {}
    while found := await loop.turn():
        given |= found
        loop.bind(found)
    return given


def end(loop: Loop, name: str) -> None:
    for pod in [each for each in loop.cache.pods.store.values() if each.metadata.name.startswith(f"{name}-")]:
        drop(loop.cache, pod)


async def test_pods_are_charged_when_their_node_comes_back() -> None:
    groups = [each for each in tree("a") if isinstance(each, core.Group)]
    loop = Loop(cache(*nodes(1), queue("team", 8), *groups, member("decode", 0, root="a", node="gone", gpus=8)))
    assert await settle(loop) == {}
    put(loop.cache, node("gone"))
    for each in tree("b", created="2026-01-02T00:00:00Z"):
        put(loop.cache, each)
    assert await settle(loop) == {}
    assert said(loop, "b")[0] == "OverQuota"


@pytest.mark.parametrize("name", ["no-such", "others"])
async def test_no_name_sets_the_quota_free_of_what_has_its_places(name: str) -> None:
    others = queue("others", 8, namespaces={"selector": {"matchLabels": {"team": "others"}}})
    loop = Loop(cache(*nodes(2), queue("team", 8), others, *tree("a"), *tree("b", created="2026-01-02T00:00:00Z")))
    assert set(await settle(loop)) == {"a-decode-0-0"}
    put(loop.cache, tree("a", queue=name)[0])
    assert await settle(loop) == {}
    assert said(loop, "a")[0] in {"QueueNotFound", "QueueDenied"}
    assert said(loop, "b")[0] == "OverQuota"
    end(loop, "a")
    assert set(await settle(loop)) == {"b-decode-0-0"}
