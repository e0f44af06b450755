"""Replicas that leave their nodes before their successors have places: what these need is kept for them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from builders.members import GATE, Seen, cache, drop, group, member, node, pod, put, role_groups
from covey.api import core
from covey.api.constants import ANNOTATION_DRAIN_UNTIL, LABEL_DRAINING
from scheduler_loop import Loop, labels, tree

DRAINS = {"labels": {LABEL_DRAINING: "true"}, "annotations": {ANNOTATION_DRAIN_UNTIL: "2026-01-01T00:00:00Z"}}
ADMITTED = {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
YOUNG = "2026-02-01T00:00:00Z"
#: The places of the successor, once the replica on the cordoned node is gone.
PLACES = {"svc-decode-2-0": "beside", "svc-decode-2-1": "free"}


def replica(number: int, *places: str, root: str = "svc", **state: object) -> list[Seen]:
    """The pods of a replica of two nodes: on these, or waiting."""
    waits = {} if places else {"gates": (GATE,)}
    nodes = places or (None, None)
    return [
        member("decode", number, index, size=2, root=root, node=place, gpus=8, **waits, **state)
        for index, place in enumerate(nodes)
    ]


def service(*, minimum: int = 1, **root: object) -> list[Seen]:
    """One that serves; its first replica drains, for a node of it is to be empty, and the third is to succeed it."""
    marks = {"covey.dev/inference": "svc", "covey.dev/unit": "0"}
    root = {"status": ADMITTED, "holdSeconds": 60, **root}
    return [
        group("svc", composite=True, minimum=1, desired=1, labels=marks, **root),
        *role_groups("decode", replicas=3, minimum=minimum, size=2, root="svc"),
        *replica(0, "left", "beside", **DRAINS),
        *replica(1, "n1", "n2"),
        *replica(2),
    ]


def cluster(*more: str, cordoned: bool = True) -> list[Seen]:
    """A node that is to be empty, one that comes free with it, and a free one: room for the successor, with both."""
    names = ("beside", "n1", "n2", "free", *more)
    nodes = [node("left", unschedulable=cordoned, labels=labels()), *(node(name, labels=labels()) for name in names)]
    return [*nodes, node("tiny", gpus=1)]


def lose(loop: Loop, *, first: int = 0, last: int = 1) -> None:
    """Pods of the replica that drains are gone."""
    for index in range(first, last + 1):
        drop(loop.cache, loop.cache.pods.store["ns", f"svc-decode-0-{index}"])


def put_all(loop: Loop, objects: list[Seen]) -> None:
    for each in objects:
        put(loop.cache, each)


def store(loop: Loop, objects: list[Seen]) -> list[Seen]:
    """The objects as they are once the claim is written."""
    claim = loop.claim("svc")
    return [
        msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, claim=claim))
        if isinstance(each, core.Group) and each.metadata.name == "svc"
        else each
        for each in objects
    ]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (0, 1)])
async def test_room_of_a_successor_when_pods_go_while_it_is_planned_is_kept(
    monkeypatch: pytest.MonkeyPatch, first: int, last: int
) -> None:
    loop = Loop(cache(*cluster(), *service()))
    await loop.turn()
    put_all(loop, [*tree("young", created=YOUNG), *replica(2)])
    in_thread = asyncio.to_thread

    async def lose_them(*arguments: Any) -> Any:
        answer = await in_thread(*arguments)
        monkeypatch.undo()
        lose(loop, first=first, last=last)
        return answer

    monkeypatch.setattr(asyncio, "to_thread", lose_them)
    places = {**await loop.turn(), **await loop.turn()}
    if not places:
        lose(loop, first=last ^ 1, last=last ^ 1)
        places = await loop.turn()
    assert places == PLACES


async def test_nothing_is_kept_where_what_goes_leaves_room_enough() -> None:
    """As in a rollout: each process holds the rooms of what it saw go, and the next one of what is there."""
    loop = Loop(cache(*cluster(cordoned=False), *service()))
    await loop.turn()
    assert loop.claim("svc") is None
    put_all(loop, tree("young", created=YOUNG))
    assert await loop.turn() == {"young-decode-0-0": "free"}
    lose(loop)
    assert await loop.turn() == {"svc-decode-2-0": "beside", "svc-decode-2-1": "left"}


async def test_a_replica_that_does_not_go_keeps_the_room_of_its_successor_for_a_bounded_time() -> None:
    """Whoever may mark pods could keep nodes from everybody else for ever."""
    loop = Loop(cache(*cluster(), *service()), reserve_after=100.0)
    await loop.turn()
    put_all(loop, tree("young", created=YOUNG))
    loop.now = 290.0
    put_all(loop, service())
    assert await loop.turn() == {}
    loop.now = 310.0
    put_all(loop, service())
    await loop.turn()
    claim = loop.claim("svc")
    assert claim is not None
    assert (claim.nodes, claim.retry_time is not None) == ((), True)
    loop.now = 590.0
    put_all(loop, [*service(), node("more", gpus=1, labels=labels())])
    await loop.turn()
    assert loop.claim("svc") == claim, "it rests"
    assert loop.place("young-decode-0-0") == "free"
    drop(loop.cache, loop.cache.pods.store["ns", "young-decode-0-0"])
    loop.now = 620.0
    put_all(loop, service())
    await loop.turn()
    again = loop.claim("svc")
    assert again is not None
    assert again.nodes == ("beside", "free")


async def test_each_pod_that_goes_gives_it_more_time() -> None:
    loop = Loop(cache(*cluster(), *service()), reserve_after=100.0)
    await loop.turn()
    loop.now = 290.0
    lose(loop, last=0)
    assert await loop.turn() == {}
    loop.now = 310.0
    put(loop.cache, node("another", labels=labels(), gpus=1))
    assert await loop.turn() == {}
    claim = loop.claim("svc")
    assert claim is not None
    assert claim.nodes == ("beside", "free")


async def test_a_claim_that_rests_ends_with_what_drains() -> None:
    loop = Loop(cache(*cluster(), *service()), reserve_after=100.0)
    await loop.turn()
    loop.now = 310.0
    put_all(loop, service())
    await loop.turn()
    put(loop.cache, pod("stranger", node="free", gpus=8))
    lose(loop)
    assert await loop.turn() == {}
    assert loop.claim("svc") is None


async def test_the_rest_of_a_minimum_that_may_go_below_has_its_room_too() -> None:
    loop = Loop(cache(*cluster(), *service(minimum=2)))
    await loop.turn()
    lose(loop, last=0)
    assert await loop.turn() == {}
    claim = loop.claim("svc")
    assert claim is not None
    assert claim.nodes == ("beside", "free")
    put_all(loop, tree("young", created=YOUNG))
    assert await loop.turn() == {}
    lose(loop, first=1)
    assert await loop.turn() == PLACES


async def test_the_sentence_of_a_claim_stays_short_however_many_drain() -> None:
    count, marks = 11, {"covey.dev/inference": "svc", "covey.dev/unit": "0"}
    loop = Loop(
        cache(
            *(node(f"left{number}", unschedulable=True, labels=labels()) for number in range(count)),
            *(node(name, labels=labels()) for name in ["free", *(f"beside{number}" for number in range(count))]),
            group("svc", composite=True, minimum=1, desired=1, labels=marks, status=ADMITTED),
            *role_groups("decode", replicas=2 * count, minimum=1, size=2, root="svc"),
            *(each for n in range(count) for each in replica(n, f"left{n}", f"beside{n}", **DRAINS)),
            *(each for n in range(count) for each in replica(count + n)),
        )
    )
    await loop.turn()
    claim = loop.claim("svc")
    assert claim is not None
    assert len(claim.nodes) == count + 1
    assert claim.message.endswith("decode/6 and 3 more of unit 0 drain, and successors get their capacity")
