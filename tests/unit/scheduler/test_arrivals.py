"""Nodes that come one by one for a gang that an autoscaler was asked for: they are kept for it, and not for ever."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from builders.members import Seen, cache, drop, node, pod, put, root_key
from covey.api import core
from covey.api.annotations import NodesAsked
from covey.api.constants import ANNOTATION_CAPACITY_ASKED
from covey.scheduler import arrivals
from covey.scheduler.reservations import Limits
from scheduler_loop import Loop, labels, tree

RACK = {"topology": [{"level": "rack", "mode": "Required"}]}
WAIT = 900.0


def ago(seconds: float) -> str:
    return core.rfc3339(time.time() - seconds)


def refused(seconds: float) -> dict[str, Any]:
    said = {"type": "Admitted", "status": "False", "reason": "Infeasible", "lastTransitionTime": ago(seconds)}
    return {"conditions": [said]}


def asking(
    name: str = "big", *, replicas: int = 4, since: float = 100.0, waited: float = 200.0, **of: Any
) -> list[Seen]:
    """A gang that has waited for a while, and for which nodes were asked."""
    asked, root = of.pop("asked", NodesAsked(time.time() - since, WAIT)), {"schedulingConstraints": RACK, **of}
    first, *rest = tree(name, replicas=replicas, minimum=replicas, status=refused(waited), **root)
    notes = {ANNOTATION_CAPACITY_ASKED: asked.dump()} if asked is not None else {}
    return [msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, annotations=notes)), *rest]


def fresh(name: str, *, seconds: float = 10.0, rack: str = "new", **of: Any) -> core.Node:
    """A node that has come."""
    return node(name, labels=labels(rack), created=ago(seconds), **of)


def kept(loop: Loop, root: str = "big") -> tuple[str, ...]:
    claim = loop.claim(root)
    return claim.nodes if claim is not None and claim.purpose == "Capacity" else ()


def small(name: str = "small", **root: Any) -> list[Seen]:
    return tree(name, created="2026-02-01T00:00:00Z", **root)


def put_all(loop: Loop, *objects: Seen) -> None:
    for each in objects:
        put(loop.cache, each)


async def test_gang_keeps_nothing_when_more_nodes_came_than_a_status_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_NODES", 1)
    loop = Loop(cache(node("old", gpus=1, labels=labels()), *asking()))
    await loop.turn()
    put_all(loop, fresh("n0"), fresh("n1"))
    await loop.turn()
    assert loop.claim("big") is None


async def test_each_node_begins_the_wait_anew_and_none_is_kept_for_ever() -> None:
    """Nodes of a busy cluster come all the time; a gang that never fits has each for a while."""
    loop = Loop(cache(*asking(replicas=4)))
    put(loop.cache, fresh("n0", seconds=0.0))
    await loop.turn()
    loop.now = WAIT - 60.0
    put(loop.cache, fresh("n1", seconds=-loop.now))
    await loop.turn()
    loop.now = 2 * WAIT - 120.0
    put(loop.cache, fresh("n2", seconds=-loop.now))
    await loop.turn()
    assert kept(loop) == ("n0", "n1", "n2")
    loop.now = 3 * WAIT - 200.0
    put(loop.cache, fresh("n5", rack="other", seconds=-loop.now))
    await loop.turn()
    assert kept(loop) == ("n0", "n1", "n2"), "another rack has less of what it needs"
    loop.now = 3 * WAIT + 1.0
    loop.queue.requeue(root_key("big"))
    await loop.turn()
    assert kept(loop) == ("n5",), "there is no patience any more with those of the first"
    assert "n0" not in kept(loop)


@pytest.mark.parametrize(
    "of",
    [
        {"asked": None},
        {"since": 100.0},
        {"since": 100_000.0, "waited": 100.0},
        {"asked": NodesAsked(0.0, WAIT, {"rack": "named"})},
        {"gpus": 16},
    ],
    ids=["not asked", "there before", "there before it waited", "not of the domain", "of no use"],
)
async def test_nothing_else_is_kept(of: dict[str, Any]) -> None:
    """A note that somebody has written by hand closes no room that others had."""
    loop = Loop(cache(*asking(**of), fresh("n0", seconds=150.0), fresh("n1", seconds=150.0)))
    await loop.turn()
    assert loop.claim("big") is None
    put_all(loop, *small())
    assert await loop.turn()


async def test_a_note_for_longer_than_an_hour_is_one_for_an_hour() -> None:
    loop = Loop(cache(*asking(asked=NodesAsked(0.0, 1e300)), fresh("n0")))
    await loop.turn()
    assert kept(loop) == ("n0",)
    loop.now = 3600.0
    loop.queue.requeue(root_key("big"))
    await loop.turn()
    assert not kept(loop)


async def test_levels_that_have_changed_under_a_gang_stop_nobody() -> None:
    """While it is looked whom a node helps, others have their turn."""
    loop = Loop(cache(node("old", gpus=1, labels=labels()), *asking()))
    await loop.turn()
    known = loop.cache.capacity.planned.topologies.values()
    loop.cache.capacity.set_topologies([replace(each, levels=each.levels[:1]) for each in known])
    put_all(loop, *small(), fresh("n0"))
    assert await loop.turn() == {"small-decode-0-0": "n0"}


@pytest.mark.parametrize("comes", [node("late", labels=labels()), fresh("late")], ids=["old", "new"])
async def test_room_on_an_old_node_is_no_question_to_anybody(monkeypatch: pytest.MonkeyPatch, comes: core.Node) -> None:
    """Room changes all the time, and ten thousand may ask; where a node is new they are looked at one by one."""
    loop, asked, breaths = Loop(cache(node("old", gpus=1, labels=labels()), *asking("a"), *asking("b"))), [], []
    await loop.turn()
    awaits, take = loop.reservations.arrivals.awaits, loop.admission.fair_loop.share

    async def breathe() -> None:
        breaths.append(len(asked))
        await take()

    monkeypatch.setattr(loop.reservations.arrivals, "awaits", lambda *given: asked.append(given) or awaits(*given))
    monkeypatch.setattr(loop.admission.fair_loop, "share", breathe)
    put(loop.cache, comes)
    await loop.turn()
    assert len(asked) == (2 if comes.metadata.creation_timestamp > "2026-01-02" else 0)
    assert not asked or 1 in breaths


async def test_what_came_is_not_counted_where_others_lose_room() -> None:
    """The first in line is not bound by the limit in percent: who has nodes that came is no first in line."""
    full = [node(f"f{i}", labels=labels("full")) for i in range(4)]
    pods = [pod(f"p{i}", node=f"f{i}", gpus=8) for i in range(4)]
    loop = Loop(cache(*full, *pods, *asking(), fresh("n0"), fresh("n1")), limits=Limits(4, 4, 1))
    await loop.turn()
    assert kept(loop) == ("n0", "n1")
    waits = {"schedulingConstraints": RACK, "created": "2026-02-01T00:00:00Z", "status": refused(1e6)}
    put_all(loop, *tree("waits", replicas=3, minimum=3, **waits))
    await loop.turn()
    claim = loop.claim("waits")
    assert claim is not None
    assert len(claim.nodes) == 3


async def test_nodes_that_are_gone_are_kept_for_nobody() -> None:
    """Also those that were kept for another reason."""
    full = [node(f"f{i}", labels=labels("full")) for i in range(4)]
    pods = [pod(f"p{i}", node=f"f{i}", gpus=8) for i in range(4)]
    loop = Loop(cache(node("old", gpus=1, labels=labels()), *full, *pods, *asking(asked=None, waited=1e6)))
    await loop.turn()
    claim = loop.claim("big")
    assert claim is not None
    assert len(claim.nodes) == 4
    for each in (*pods, *full):
        drop(loop.cache, each)
    await loop.turn()
    assert loop.claim("big") is None


async def test_a_domain_with_as_much_is_no_reason_to_change_over() -> None:
    loop = Loop(cache(*asking(), fresh("z0", rack="one")))
    await loop.turn()
    put_all(loop, fresh("a0", seconds=20.0, rack="two"))
    await loop.turn()
    assert kept(loop) == ("z0",)
    put_all(loop, fresh("a1", rack="two"))
    await loop.turn()
    assert kept(loop) == ("a0", "a1")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"since": "x"}', '{"since": "2020-01-01T00:00:00Z", "waitSeconds": NaN, "labels": {}}'],
)
async def test_a_note_that_cannot_be_read_is_none(text: str) -> None:
    first, *rest = asking(asked=None)
    meta = msgspec.structs.replace(first.metadata, annotations={ANNOTATION_CAPACITY_ASKED: text})
    loop = Loop(cache(msgspec.structs.replace(first, metadata=meta), *rest, fresh("n0")))
    await loop.turn()
    assert loop.claim("big") is None
