"""Room that is kept for gangs that have waited for long: closed to growth alone."""

from __future__ import annotations

import pytest

from covey.api import core
from covey.api.constants import ANNOTATION_DRAINING_SINCE, LABEL_REVISION
from scheduler_builders import GATE, cache, drop, group, member, node, put, role_groups
from scheduler_loop import Loop, labels

WISH = {"topology": [{"level": "rack", "mode": "Required"}]}
WAITED = {"type": "Admitted", "status": "False", "reason": "Infeasible", "lastTransitionTime": "2020-01-01T00:00:00Z"}


def gang(name: str, role: str = "worker", *, pods: int = 4, **root: object) -> list[core.Group | core.Pod]:
    """A gang that has waited for long for a rack of its own."""
    status = {"conditions": [WAITED]}
    return [
        group(name, composite=True, minimum=1, desired=1, schedulingConstraints=WISH, status=status, **root),
        *role_groups(role, replicas=pods, minimum=pods, size=1, root=name),
        *(member(role, number, root=name, gates=(GATE,), gpus=8) for number in range(pods)),
    ]


def service(*places: str) -> list[core.Group | core.Pod]:
    """A unit that needs one of its replicas."""
    return [
        group("svc", composite=True, minimum=1, desired=1, schedulingConstraints=WISH),
        *role_groups("decode", replicas=4, minimum=1, size=1, root="svc"),
        *(member("decode", number, root="svc", node=place, gpus=8) for number, place in enumerate(places)),
    ]


async def kept_beside(*places: str) -> Loop:
    """A rack of four nodes where a service runs, and which is kept for a gang."""
    nodes = [node(f"n{number}", labels=labels("r0")) for number in range(4)]
    loop = Loop(cache(*nodes, *service(*places), *gang("big")))
    assert await loop.turn() == {}
    return loop


async def test_what_was_lost_beside_a_waiting_gang_comes_back() -> None:
    loop = await kept_beside("n0", "n1", "n2")
    drop(loop.cache, loop.cache.pods.store["ns", "svc-decode-2-0"])
    put(loop.cache, member("decode", 2, root="svc", name="again", gates=(GATE,), gpus=8))
    assert set(await loop.turn()) == {"again"}


async def test_growth_beside_a_waiting_gang_waits() -> None:
    loop = await kept_beside("n0", "n1")
    put(loop.cache, member("decode", 2, root="svc", gates=(GATE,), gpus=8))
    assert await loop.turn() == {}


async def test_of_a_loss_and_growth_together_only_the_loss_is_replaced() -> None:
    loop = await kept_beside("n0", "n1")
    drop(loop.cache, loop.cache.pods.store["ns", "svc-decode-1-0"])
    for number in range(1, 4):
        put(loop.cache, member("decode", number, root="svc", name=f"new-{number}", gates=(GATE,), gpus=8))
    got = await loop.turn()
    assert len(got) == 1
    [(name, place)] = got.items()
    found = loop.cache.pods.store["ns", name]
    put(loop.cache, member("decode", int(name[-1]), root="svc", name=name, node=place, gpus=8), found)
    assert await loop.turn() == {}


@pytest.mark.parametrize("why", ["revision", "draining", "cordoned"])
async def test_the_successor_of_what_still_runs_is_no_growth(why: str) -> None:
    loop = await kept_beside("n0", "n1")
    old, new = loop.cache.pods.store["ns", "svc-decode-1-0"], {}
    match why:
        case "revision":
            new = {LABEL_REVISION: "two"}
        case "draining":
            notes = {ANNOTATION_DRAINING_SINCE: "2026-01-01T00:00:00Z"}
            put(loop.cache, member("decode", 1, root="svc", node="n1", gpus=8, annotations=notes), old)
        case _:
            put(loop.cache, node("n1", labels=labels("r0"), unschedulable=True))
    put(loop.cache, member("decode", 2, root="svc", gates=(GATE,), gpus=8, labels=new))
    assert set(await loop.turn()) == {"svc-decode-2-0"}
