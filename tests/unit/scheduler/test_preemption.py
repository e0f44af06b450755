from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders.members import cache, drop, group, member, node, pod, put, role_groups
from covey.scheduler.cache import Cache
from covey.scheduler.guard import ENCODER, PREEMPT_ARGS, MetaPod, MetaVictims, PreemptResult, allowed_victims

GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=4, minimum=1, size=1)]


def victims(*uids: str, violations: int = 0) -> MetaVictims:
    return MetaVictims(tuple(map(MetaPod, uids)), violations)


def preempts(made: Cache, *uids: str, gpus: int = 4, **fields: Any) -> bool:
    """May an ordinary pod evict these on node n1?"""
    return bool(allowed_victims(made, pod("high", gpus=gpus, **fields), {"n1": victims(*uids)}))


def test_a_member_that_waits_at_the_barrier_is_none_either() -> None:
    """kube-scheduler counts it as placed already, so it can be among its victims."""
    held = member("decode", 0, pin="n1")
    made = cache(*GROUPS, node("n1"), held)
    assert not preempts(made, held.metadata.uid, gpus=0)


def test_a_victim_that_the_watch_has_not_shown_may_be_a_member() -> None:
    assert not preempts(cache(*GROUPS, node("n1")), "uid-unknown")


def test_a_victim_frees_nothing_on_another_node() -> None:
    """What is said of n1 and what our cache says disagree: the room there is judged by our cache."""
    elsewhere = pod("moved", node="n2", gpus=8)
    made = cache(*GROUPS, node("n1"), node("n2"), member("decode", 0, pin="n1", gpus=8), elsewhere)
    assert not preempts(made, "uid-moved", gpus=8)


@given(st.lists(st.integers(0, 7), unique=True), st.integers(0, 9))
def test_a_node_that_is_left_would_pass_the_guard_once_the_victims_are_gone(gone: list[int], gpus: int) -> None:
    ordinary = [pod(f"p{n}", node="n1", gpus=1) for n in range(6)]
    made = cache(*GROUPS, node("n1"), *ordinary, *(member("decode", n, pin="n1", gpus=1) for n in range(2)))
    high = pod("high", gpus=gpus)
    chosen = [each for n, each in enumerate(ordinary) if n in gone]
    may = allowed_victims(made, high, {"n1": victims(*(each.metadata.uid for each in chosen))})
    for each in chosen:
        drop(made, each)
    assert bool(may) == (bool(chosen) and made.capacity.reserved_away(high, "n1") is None)


def test_go_field_names() -> None:
    body = b"""{"Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, "NodeNameToVictims": null,
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}}"""
    args = PREEMPT_ARGS.decode(body)
    assert args.node_name_to_meta_victims == {"n1": victims("v", violations=2)}
    answer = ENCODER.encode(PreemptResult(args.node_name_to_meta_victims))
    assert msgspec.json.decode(answer) == msgspec.json.decode(
        b'{"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}}'
    )


def test_room_that_was_made_for_a_pod_is_taken_by_no_gang() -> None:
    """Until the pod is bound, its nomination holds the room for it, and only for it."""
    nominee = {"status": {"phase": "Pending", "nominatedNodeName": "n1"}}
    made = cache(*GROUPS, node("n1"))
    waiting = msgspec.convert(msgspec.to_builtins(pod("high", gpus=6)) | nominee, type(pod()))
    put(made, waiting)
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 2
    assert made.capacity.reserved_away(waiting, "n1") is None
    put(made, pod("high", gpus=6))
    assert made.capacity.room.free("n1")["nvidia.com/gpu"] == 8
