"""Room that is kept for gangs that have waited for long: closed to growth alone."""

from __future__ import annotations

import msgspec
import pytest

from builders.members import GATE, cache, drop, group, member, node, pod, put, role_groups, root_key
from covey.api import core
from covey.api.constants import ANNOTATION_DRAIN_UNTIL, LABEL_REVISION
from covey.scheduler.reservations import Limits
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


def in_namespace(objects: list[core.Group | core.Pod], namespace: str) -> list[core.Group | core.Pod]:
    return [
        msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, namespace=namespace))
        for each in objects
    ]


def kept(loop: Loop) -> set[tuple[str, str]]:
    """Gangs that have a domain."""
    return {(root.namespace, root.name) for root, claim in loop.claims().items() if claim and claim.nodes}


def racks(count: int) -> list[core.Node | core.Pod]:
    """Racks of four nodes, of which one is taken."""
    nodes = [node(f"n{rack}-{number}", labels=labels(f"r{rack}")) for rack in range(count) for number in range(4)]
    return [*nodes, *(pod(f"taken-{rack}", node=f"n{rack}-0", gpus=8) for rack in range(count))]


@pytest.mark.parametrize(("percent", "gangs"), [(0, 1), (33, 1), (34, 2), (100, 4)])
async def test_but_for_the_first_only_a_share_is_kept(percent: int, gangs: int) -> None:
    waiting = [each for n in range(6) for each in in_namespace(gang(f"big-{n}", f"w{n}"), f"ns-{n}")]
    loop = Loop(cache(*racks(6), *waiting), limits=Limits(percent=percent))
    await loop.turn()
    assert kept(loop) == {(f"ns-{number}", f"big-{number}") for number in range(gangs)}


async def test_for_how_long_a_gang_comes_no_nearer_and_rests_outlives_a_restart() -> None:
    objects = [*racks(2), *gang("a-first"), *gang("b-second", "other")]
    seen = []
    for now in (0.0, 3 * 300.0 + 1.0, 4 * 300.0, 6 * 300.0 + 5.0):
        loop = Loop(cache(*objects))
        loop.now = now
        await loop.turn()
        seen.append({name for _, name in kept(loop)})
        objects = [
            msgspec.structs.replace(
                each, status=msgspec.structs.replace(each.status, claim=loop.queue.decision(key).claim)
            )
            if isinstance(each, core.Group) and (key := root_key(each.metadata.name)) in loop.cache.index.roots()
            else each
            for each in objects
        ]
    assert seen == [{"a-first"}, {"b-second"}, {"b-second"}, {"a-first"}]


async def test_nothing_is_kept_for_what_cannot_be_planned_and_its_clock_goes_on() -> None:
    waiting = gang("a-first")
    loop = Loop(cache(*racks(2), *waiting, *gang("b-second", "other")))
    await loop.turn()
    assert kept(loop) == {("ns", "a-first")}
    drop(loop.cache, waiting[-1])
    await loop.turn()
    assert kept(loop) == {("ns", "b-second")}
    loop.now = 3 * 300.0 + 1.0
    put(loop.cache, waiting[-1])
    await loop.turn()
    claim = loop.queue.decision(root_key("a-first")).claim
    assert claim is not None
    assert claim.retry_time is not None, "it came no nearer for long, whatever its pods did"


async def kept_beside(*places: str) -> Loop:
    """A rack of four nodes where a service runs, and which is kept for a gang."""
    nodes = [node(f"n{number}", labels=labels("r0")) for number in range(4)]
    loop = Loop(cache(*nodes, *service(*places), *gang("big")))
    assert await loop.turn() == {}
    return loop


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
            notes = {ANNOTATION_DRAIN_UNTIL: "2026-01-01T00:00:00Z"}
            put(loop.cache, member("decode", 1, root="svc", node="n1", gpus=8, annotations=notes), old)
        case _:
            put(loop.cache, node("n1", labels=labels("r0"), unschedulable=True))
    put(loop.cache, member("decode", 2, root="svc", gates=(GATE,), gpus=8, labels=new))
    assert set(await loop.turn()) == {"svc-decode-2-0"}
