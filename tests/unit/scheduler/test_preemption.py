from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.members import RELEASE, cache, drop, group, member, node, pod, put, role_groups
from covey.scheduler.cache import Cache
from covey.scheduler.guard import ENCODER, PREEMPT_ARGS, MetaPod, MetaVictims, PreemptResult, allowed_victims

GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=4, minimum=1, size=1)]


def victims(*uids: str, violations: int = 0) -> MetaVictims:
    return MetaVictims(tuple(map(MetaPod, uids)), violations)


def preempts(made: Cache, *uids: str, gpus: int = 4, **fields: Any) -> bool:
    """May an ordinary pod evict these on node n1?"""
    return bool(allowed_victims(made, pod("high", gpus=gpus, **fields), {"n1": victims(*uids)}))


def test_ordinary_pods_evict_each_other_and_the_answer_is_what_was_asked() -> None:
    made = cache(*GROUPS, node("n1"), node("n2"), *(pod(f"p{n}", node=f"n{n % 2 + 1}", gpus=4) for n in range(4)))
    asked = {"n1": victims("uid-p2", "uid-p0", violations=1), "n2": victims("uid-p1")}
    assert allowed_victims(made, pod("high", gpus=4), asked) == asked


def test_a_member_never_evicts() -> None:
    made = cache(*GROUPS, node("n1"), pod("low", node="n1"))
    assert allowed_victims(made, member("decode", 0, pin="n1"), {"n1": victims("uid-low")}) == {}
    assert not preempts(made, "uid-low", labels={"scheduling.covey.dev/pod-group": "no-such-group"})


def test_a_member_is_never_evicted_and_other_nodes_are_left() -> None:
    bound = member("decode", 0, pin="n1", node="n1")
    made = cache(*GROUPS, node("n1"), node("n2"), bound, pod("low", node="n1"), pod("other", node="n2"))
    asked = {"n1": victims("uid-low", bound.metadata.uid), "n2": victims("uid-other")}
    assert allowed_victims(made, pod("high"), asked) == {"n2": asked["n2"]}


def test_a_member_that_waits_at_the_barrier_is_none_either() -> None:
    """kube-scheduler counts it as placed already, so it can be among its victims."""
    held = member("decode", 0, pin="n1")
    made = cache(*GROUPS, node("n1"), held)
    assert not preempts(made, held.metadata.uid, gpus=0)


@pytest.mark.parametrize(("priority", "may"), [(1_999_999_999, False), (2_000_000_000, True), (2_000_001_000, True)])
def test_members_give_way_to_pods_of_the_system(priority: int, may: bool) -> None:  # noqa: FBT001 - a table
    bound, pinned = member("decode", 0, pin="n1", node="n1", gpus=4), member("decode", 1, pin="n1", gpus=4)
    made = cache(*GROUPS, node("n1"), bound, pinned)
    assert preempts(made, bound.metadata.uid, spec={"priority": priority}) is may
    assert preempts(made, "uid-unknown", spec={"priority": priority}) is may
    taken = made.capacity.reserved_away(pod("high", gpus=4, spec={"priority": priority}), "n1")
    assert (taken is None) is may
    made.capacity.yields_to = 5
    assert preempts(made, bound.metadata.uid, spec={"priority": 5})


@pytest.mark.parametrize(
    "fields", [{"deleted": True}, {"phase": "Failed"}, {"annotations": {RELEASE: "Timeout"}, "node": None}]
)
def test_a_member_that_is_going_anyway_protects_nothing(fields: dict[str, Any]) -> None:
    going = member("decode", 0, **{"pin": "n1", "node": "n1"} | fields)
    made = cache(*GROUPS, node("n1"), going)
    assert preempts(made, going.metadata.uid)


def test_the_label_of_a_group_protects_nobody_who_is_no_member() -> None:
    forged = pod("forged", group="root-decode", node="n1", owner={"kind": "Thing", "uid": "else", "controller": True})
    made = cache(*GROUPS, node("n1"), forged, pod("lost", group="no-such-group", node="n1"))
    assert preempts(made, "uid-forged")
    assert preempts(made, "uid-lost")


def test_a_victim_that_the_watch_has_not_shown_may_be_a_member() -> None:
    assert not preempts(cache(*GROUPS, node("n1")), "uid-unknown")


def test_nobody_evicts_for_room_that_is_reserved() -> None:
    """8 GPUs: 4 reserved, 4 taken; who evicts these 4 gets 4 of them, not 5."""
    made = cache(*GROUPS, node("n1"), member("decode", 0, pin="n1", gpus=4), pod("low", node="n1", gpus=4))
    assert preempts(made, "uid-low", gpus=4)
    assert not preempts(made, "uid-low", gpus=5)
    drop(made, made.pods.store["ns", member("decode", 0).metadata.name])
    assert preempts(made, "uid-low", gpus=5)


def test_what_a_gang_does_not_ask_for_is_not_reserved() -> None:
    made = cache(*GROUPS, node("n1"), member("decode", 0, pin="n1", gpus=8), pod("low", node="n1", gpus=0))
    assert preempts(made, "uid-low", gpus=0)


def test_a_victim_frees_nothing_on_another_node() -> None:
    """What is said of n1 and what our cache says disagree: the room there is judged by our cache."""
    elsewhere = pod("moved", node="n2", gpus=8)
    made = cache(*GROUPS, node("n1"), node("n2"), member("decode", 0, pin="n1", gpus=8), elsewhere)
    assert not preempts(made, "uid-moved", gpus=8)


def test_a_node_without_victims_is_left_out() -> None:
    made = cache(*GROUPS, node("n1"))
    assert allowed_victims(made, pod("high"), {"n1": victims(), "n2": MetaVictims(None)}) == {}


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
