from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builders.members import PINNED, RELEASE, cache, group, member, node, pod, put, role_groups
from covey.admission.native import StoredGroup
from covey.api import core
from covey.kube.clock import SYSTEM
from covey.kube.resources import NATIVE_POD_GROUPS
from covey.scheduler.cache import Cache
from covey.scheduler.guard import (
    BIND_ARGS,
    ENCODER,
    FILTER_ARGS,
    FilterArgs,
    FilterResult,
    Guard,
    MetaPod,
    MetaVictims,
    PreemptArgs,
)

NODES = ["n1", "n2", "n3"]
GROUPS = [group("root", composite=True, minimum=1), *role_groups("decode", replicas=2, minimum=1, size=1)]


def ask(made: Cache, who: core.Pod, names: Sequence[str] | None = NODES, guard: Guard | None = None) -> FilterResult:
    args = FilterArgs(who, msgspec.Raw(json.dumps(names).encode()))
    result = (guard or Guard(made)).filter(args)
    return msgspec.json.decode(ENCODER.encode(result), type=FilterResult)


def names(result: FilterResult) -> list[str]:
    return (
        msgspec.json.decode(result.node_names, type=list[str])
        if isinstance(result.node_names, msgspec.Raw)
        else list(result.node_names)
    )


def test_the_cache_may_know_more_than_the_schedulers_copy() -> None:
    pinned = member("decode", 0, pin="n2")
    made = cache(*GROUPS, member("decode", 0, pin="n2", annotations={RELEASE: "Timeout"}))
    result = ask(made, pinned)
    assert names(result) == []
    assert all("given up" in why for why in result.failed_and_unresolvable_nodes.values())


def test_the_cache_may_know_less() -> None:
    made = cache(*GROUPS)
    assert names(ask(made, member("decode", 0, pin="n2"), ["n2"])) == ["n2"]


@given(
    reserved=st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 4)), max_size=4),
    used=st.lists(st.tuples(st.sampled_from(NODES), st.integers(1, 4)), max_size=4),
    wanted=st.integers(0, 8),
)
def test_strangers_get_what_is_left_and_no_more(
    reserved: list[tuple[str, int]], used: list[tuple[str, int]], wanted: int
) -> None:
    made = cache(*GROUPS, *(node(name) for name in NODES))
    for number, (name, gpus) in enumerate(used):
        put(made, pod(f"used-{number}", node=name, gpus=gpus))
    for number, (name, gpus) in enumerate(reserved):
        put(made, member("decode", number, pin=name, gpus=gpus))
    result = ask(made, pod("stranger", gpus=wanted))
    for name in NODES:
        left = 8 - sum(gpus for where, gpus in [*used, *reserved] if where == name)
        kept = any(where == name for where, _ in reserved)
        assert (name in names(result)) == (not kept or wanted <= max(left, 0))
        assert (name in names(result)) != (name in result.failed_and_unresolvable_nodes)


def test_the_wire_has_gos_field_names() -> None:
    body = b'{"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{}},"Nodes":null,"NodeNames":["a","b"]}'
    args = FILTER_ARGS.decode(body)
    assert args.pod.metadata.uid == "u"
    assert bytes(args.node_names) == b'["a","b"]'
    assert ENCODER.encode(FilterResult(args.node_names)) == b'{"NodeNames":["a","b"]}'
    refused = ENCODER.encode(FilterResult([], {"a": "no"}))
    assert refused == b'{"NodeNames":[],"FailedAndUnresolvableNodes":{"a":"no"}}'
    bind = BIND_ARGS.decode(b'{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"a"}')
    assert (bind.pod_name, bind.pod_namespace, bind.pod_uid, bind.node) == ("p", "n", "u", "a")


def test_a_member_of_a_native_group_is_one_in_kube_scheduler_s_words_too() -> None:
    """It makes room for itself nowhere, and one whose place was given up goes nowhere."""
    made = Cache(None, native=True, clock=SYSTEM)  # type: ignore[arg-type] # nothing is watched
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    pinned = pod("a", pin="n2", annotations={PINNED: "uid-a"}, spec=spec)
    found = msgspec.convert({"metadata": {"name": "g", "namespace": "ns", "uid": "g"}}, StoredGroup)
    made._on_native_group(NATIVE_POD_GROUPS, "ADDED", found, None)
    assert names(ask(made, pinned)) == ["n2"]
    victims = {"n2": MetaVictims((MetaPod("uid-x"),))}
    put(made, pod("x", node="n2"))
    assert Guard(made).preempt(PreemptArgs(pinned, victims)).node_name_to_meta_victims == {}
    ordinary = Guard(made).preempt(PreemptArgs(pod("b"), victims))
    assert ordinary.node_name_to_meta_victims == victims
    released = pod("a", pin="n2", annotations={PINNED: "uid-a", RELEASE: "Timeout"}, spec=spec)
    assert names(ask(made, released)) == []
