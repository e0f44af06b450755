"""Devices of drivers as integers: as a naive allocator gives them away one by one, and case by case."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.devices import (
    DRIVER,
    GPU,
    IS_GPU,
    JUDGED,
    SAMPLE,
    Json,
    claim_body,
    class_body,
    device,
    gpus,
    read,
    rule_body,
    slice_body,
)
from builders.requests import make_node
from covey.api import core
from covey.placement.cluster.classes import IMPLICIT
from covey.placement.cluster.device_claims import DeviceAsk
from covey.placement.cluster.resources import amounts
from covey.placement.cluster.selectors import UnknownSelectorError, canonical_selector, parse_selector
from covey.placement.cluster.slices import DeviceCounts

BARE = make_node("n1", gpus=0)


def slice_of(name: str, *devices: Json, **more: Any) -> core.ResourceSlice:
    return read(slice_body(name, *devices, **more))


def class_of(name: str = DRIVER, *expressions: str, **more: Any) -> core.DeviceClass:
    return read(class_body(name, *expressions, **more))


def claim_of(name: str, *devices: tuple[str, str, str], **more: Any) -> core.ResourceClaim:
    return read(claim_body(name, *devices, **more))


def rule_of(name: str, effect: str = "NoSchedule", **selector: str) -> core.DeviceTaintRule:
    return read(rule_body(name, effect, **selector))


def counts_of(*things: Any) -> DeviceCounts:
    counts = DeviceCounts()
    for each in things:
        SETTERS[type(each)](counts, each)
    return counts


SETTERS: Mapping[type, Callable[[DeviceCounts, Any], object]] = {
    core.ResourceSlice: DeviceCounts.set_slice,
    core.DeviceClass: DeviceCounts.set_class,
    core.ResourceClaim: DeviceCounts.set_claim,
    core.DeviceTaintRule: DeviceCounts.set_rule,
    core.Node: DeviceCounts.set_node,
}


def seen(counts: DeviceCounts, resource: str = GPU, node: core.Node = BARE, **held: int) -> int:
    """What a node has of a resource; ``held`` is what pods hold of it."""
    extended = counts.extend(node, [(pod, ((resource, value),)) for pod, value in held.items()])
    return amounts(extended.status.allocatable).get(resource, 0)


FOUR = gpus(4)


def test_a_claim_in_flight_is_counted_once() -> None:
    """What is free is what the node has less what its pods hold: two, before and after the claim is allocated."""
    counts = counts_of(class_of(), slice_of("a", *FOUR))
    assert seen(counts, p=2) - 2 == 2
    counts.set_claim(claim_of("c", *((DRIVER, "n1", f"gpu-{n}") for n in range(2)), pod="p"))
    assert counts.has_claim("p")
    assert seen(counts, p=2) - 2 == 2
    assert seen(counts) == 2, "the pod does not hold the node (yet, or any more)"
    counts.remove_claim(("ns", "c"))
    assert seen(counts, p=2) - 2 == 2
    assert not counts.has_claim("p")


def test_a_pod_keeps_what_it_has_of_a_pool_that_is_written_anew() -> None:
    counts = counts_of(class_of(), slice_of("a", *FOUR), slice_of("b", *FOUR, pool="second"))
    counts.set_claim(claim_of("c", *((DRIVER, "second", f"gpu-{n}") for n in range(2)), pod="p"))
    counts.set_slice(slice_of("b", *FOUR, pool="second", of=2))
    assert seen(counts, p=2) - 2 == 4
    counts.remove_slice("a")
    counts.remove_slice("b")
    assert seen(counts, p=2) - 2 == 0


@pytest.mark.parametrize(
    ("things", "resource", "words"),
    [
        ([class_of(DRIVER, "device.driver.startsWith('x')")], GPU, "selectors Covey cannot judge"),
        ([class_of()], f"{IMPLICIT}{DRIVER}", f"is the same as {GPU}"),
        ([class_of(), class_of("b", resource="b/gpu")], GPU, "of DeviceClass b too"),
        ([class_of(), class_of("b", resource=None)], f"{IMPLICIT}b", f"of DeviceClass {DRIVER} too"),
        ([class_of(), slice_of("c", device("gpu-9"), node=None)], None, ""),
    ],
    ids=["selector", "implicit", "overlap", "implicit-overlap", "shared-beside"],
)
def test_what_cannot_be_counted_is_refused_by_name(things: Sequence[Any], resource: str | None, words: str) -> None:
    counts = counts_of(slice_of("a", *FOUR), *things)
    if resource is None:
        assert counts.problem(GPU) is None
        return
    assert words in (counts.problem(resource) or "")
    assert seen(counts, resource) == 0
    offered = make_node("n2", gpus=0, extra={resource: 1})
    counts.set_node(offered)
    assert counts.problem(resource) is None, "a node's own plugin needs no class"
    counts.remove_node("n2")
    assert counts.problem(resource)


def test_an_error_of_a_selector_gives_the_node_up_and_no_other() -> None:
    careless = class_of(DRIVER, "device.attributes['gpu.nvidia.com'].type == 'gpu'")
    nic = slice_of("nic", {"name": "nic-0"}, driver="nic", pool="nics")
    everywhere = slice_of("fabric", {"name": "port-0"}, node=None, driver="fabric")
    counts = counts_of(careless, slice_of("a", *FOUR), nic, slice_of("b", *FOUR, node="n2"))
    assert seen(counts) == 0
    assert seen(counts, node=make_node("n2", gpus=0)) == 4
    counts.set_slice(everywhere)
    assert "gives up every node" in (counts.problem(GPU) or "")
    counts.remove_slice("fabric")
    assert counts.problem(GPU) is None


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000 + IS_GPU + ")" * 5000, f"device.attributes['gpu.nvidia.com'].index == {'9' * 5000}"],
    ids=["deep", "long"],
)
def test_a_selector_that_breaks_the_parser_is_refused_and_stops_no_other_class(expression: str) -> None:
    counts = counts_of(slice_of("a", *FOUR), class_of("bad", expression, resource="bad/gpu"), class_of())
    assert "cannot judge" in (counts.problem("bad/gpu") or "")
    assert seen(counts) == 4


def test_a_claim_that_only_says_that_it_is_for_a_pod_adds_no_devices_and_unseats_no_other() -> None:
    own = claim_of("own", (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1"), pod="p")
    lie, away = claim_of("lie", (DRIVER, "n1", "gpu-2"), pod="p"), claim_of("away", (DRIVER, "n2", "gpu-0"), pod="q")
    counts = counts_of(class_of(), slice_of("a", *FOUR), slice_of("b", *FOUR, node="n2"), own, away)
    assert seen(counts, p=2) == 4
    assert seen(counts, q=4) == 2, "its devices are of another node"
    counts.set_claim(lie)
    assert seen(counts, p=2) == 3
    counts.remove_claim(lie.metadata.key)
    assert seen(counts, p=2) == 4
    counts.remove_claim(own.metadata.key)
    counts.set_claim(lie)
    assert seen(counts, p=4) == 4, "no more than there are"


def test_the_status_of_a_taint_rule_concerns_no_node() -> None:
    counts = counts_of(class_of(), slice_of("a", *FOUR), rule_of("r", device="gpu-0"))
    assert not counts.set_rule(rule_of("r", device="gpu-0"))
    assert not counts.set_rule(rule_of("soft", effect="None"))
    assert set(counts.set_rule(rule_of("r", device="gpu-1"))) == {"n1"}


@pytest.mark.parametrize(("expression", "answer"), JUDGED)
def test_selectors(expression: str, answer: bool | None) -> None:  # noqa: FBT001 - a table
    assert parse_selector(expression)(DRIVER, msgspec.convert(SAMPLE, core.Device)) is answer


@pytest.mark.parametrize(
    "expression",
    [
        "", "true", "device", "device.driver", "device.driver != 'x'", "device.driver == 'x' || true", "!(device.driver == 'x')",
        "device.driver.startsWith('x')", "'x' == device.driver", "device.driver == 'a\\'b'", "device.driver == 'x' &&",
        "(device.driver == 'x'", "device.driver == 'x')", "device.attributes['d'].a", "device.attributes[x].a == 1",
        "device.capacity['d'].m.compareTo(quantity('1Gi')) >= 1", "device.capacity['d'].m.compareTo(quantity('many')) >= 0",
        "device.capacity['d'].m.isGreaterThan(quantity('1Gi'))", "device.driver in []", "device.driver == 1.5",
        "device.allowMultipleAllocations == true", "has(device.driver)", "device.driver == x",
        "device.driver == 1", "device.driver in ['a', 1]", "device.attributes['d'].a in [1, '1']",
    ],
)  # fmt: skip
def test_any_other_expression_is_refused(expression: str) -> None:
    with pytest.raises(UnknownSelectorError):
        parse_selector(expression)


devices = st.builds(
    device,
    st.sampled_from(["d0", "d1", "d2", "d3"]),
    st.sampled_from(["gpu", "gpu", "mig"]),
    taints=st.sampled_from([[], [], [{"key": "k", "effect": "NoSchedule"}]]),
)
slices_of = st.lists(
    st.builds(
        lambda at, found, **more: (at, found, more),
        st.sampled_from([("n1", "p"), ("n1", "q"), ("n2", "r"), ("n2", "p")]),
        st.lists(devices, max_size=3),
        generation=st.integers(1, 2),
        of=st.integers(1, 2),
    ),
    max_size=6,
)
taken = st.lists(
    st.tuples(st.just(DRIVER), st.sampled_from("pqr"), st.sampled_from(["d0", "d1", "d2"])), max_size=4, unique=True
)


def give_away(slices: Sequence[core.ResourceSlice], allocated: set[tuple[str, str, str]], node: str, kind: str) -> int:
    """Allocate one device after the other, as the allocator looks for it, until there is none."""
    given = 0
    while True:
        pools: dict[str, list[core.ResourceSlice]] = {}
        for each in slices:
            pools.setdefault(each.spec.pool.name, []).append(each)
        choice = None
        for name, parts in pools.items():
            newest = [p for p in parts if not any(o.spec.pool.generation > p.spec.pool.generation for o in parts)]
            names = [d.name for p in newest for d in p.spec.devices or ()]
            if {p.spec.pool.resource_slice_count for p in newest} != {len(newest)} or len(names) != len(set(names)):
                continue
            for d in (d for p in newest if p.spec.node_name == node for d in p.spec.devices or ()):
                is_kind = (d.attributes or {})["type"].string == kind
                if is_kind and not d.taints and (DRIVER, name, d.name) not in allocated:
                    choice = (DRIVER, name, d.name)
        if choice is None:
            return given
        allocated = allocated | {choice}
        given += 1


@given(
    found=slices_of,
    strangers=st.lists(taken, max_size=2),
    own=taken,
    order=st.permutations(range(10)),
    again=st.booleans(),
)
def test_what_is_counted_is_what_an_allocator_would_give(
    *, found: list[Any], strangers: list[Any], own: list[Any], order: list[int], again: bool
) -> None:
    """In whatever order all of it is seen, and whatever was seen before."""
    mig = class_of("mig", IS_GPU.replace("== 'gpu'", "== 'mig'"), resource=None)
    slices = [slice_of(f"s{n}", *ds, node=at[0], pool=at[1], **more) for n, (at, ds, more) in enumerate(found)]
    claims = [claim_of(f"c{n}", *each) for n, each in enumerate(strangers)]
    things: list[Any] = [class_of(), mig, *slices, *claims, claim_of("own", *own, pod="mine")]
    counts = counts_of(*(things[n] for n in order if n < len(things)), *things[10:])
    if again:
        for each in slices:
            counts.set_slice(slice_of(each.metadata.name, device("gone"), node="n3", pool="p", generation=9))
        for each in slices:
            counts.set_slice(each)
    allocated = {each for claim in (*strangers, own) for each in claim}
    pools = {pool: {at[0] for at, _, _ in found if at[1] == pool} for _, pool in (at for at, _, _ in found)}
    kinds: dict[tuple[str, str], set[str]] = {}
    for (_, pool), ds, _ in found:
        for d in ds:
            kinds.setdefault((pool, d["name"]), set()).add(d["attributes"]["type"]["string"])
    for node in ("n1", "n2"):
        for resource, kind in ((GPU, "gpu"), (f"{IMPLICIT}mig", "mig")):
            free = give_away(slices, allocated, node, kind)
            assert seen(counts, resource, make_node(node, gpus=0)) == free
            held = seen(counts, resource, make_node(node, gpus=0), mine=len(own)) - len(own)
            mine = [
                name
                for _, pool, name in own
                if node in pools.get(pool, {node}) and kind in kinds.get((pool, name), {kind})
            ]
            assert held == free + len(mine) - len(own)


changes = st.lists(
    st.one_of(
        st.builds(
            lambda n, at, found, **more: slice_of(f"s{n}", *found, node=at[0], pool=at[1], **more),
            st.integers(0, 3),
            st.sampled_from([("n1", "p"), ("n2", "q"), ("n2", "p"), (None, "all")]),
            st.lists(devices, max_size=2),
            generation=st.integers(1, 2),
            driver=st.sampled_from([DRIVER, DRIVER, "nic"]),
        ),
        st.builds(
            class_of,
            st.sampled_from(["a", "b"]),
            st.sampled_from(
                [IS_GPU, "device.attributes['gpu.nvidia.com'].type in ['gpu', 'mig']", "device.driver.x()"]
            ),
            resource=st.sampled_from([GPU, None, "b/gpu"]),
            created=st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
        ),
        st.builds(lambda n, each: claim_of(f"c{n}", *each), st.integers(0, 1), taken),
        st.builds(lambda n, d: rule_of(f"r{n}", device=d), st.integers(0, 1), st.sampled_from(["d0", "d1"])),
        st.sampled_from([core.ResourceSlice, core.DeviceClass, core.ResourceClaim, core.DeviceTaintRule]),
    ),
    max_size=12,
)


@given(changes)
def test_every_node_that_a_change_concerns_is_named(steps: list[Any]) -> None:
    """Kinds stand for the removal of one; what is told step by step is what is told at once in the end."""
    counts, there = DeviceCounts(), dict[tuple[type, str], Any]()
    nodes = [make_node(name, gpus=0) for name in ("n1", "n2")]
    removals: Mapping[type, Callable[[str], object]] = {
        core.ResourceSlice: counts.remove_slice,
        core.DeviceClass: counts.remove_class,
        core.ResourceClaim: lambda name: counts.remove_claim(("ns", name)),
        core.DeviceTaintRule: counts.remove_rule,
    }
    for step in steps:
        before = {node.metadata.name: counts.extend(node) for node in nodes}
        if isinstance(step, type):
            name = next((name for kind, name in there if kind is step), "none")
            there.pop((step, name), None)
            touched: Any = removals[step](name)
        else:
            there[type(step), step.metadata.name] = step
            touched = SETTERS[type(step)](counts, step)
        changed = {node.metadata.name for node in nodes if counts.extend(node) != before[node.metadata.name]}
        assert changed <= set(touched)
    anew = counts_of(*there.values())
    assert [counts.extend(node) for node in nodes] == [anew.extend(node) for node in nodes]
    assert counts.classes.problems == anew.classes.problems


SELECTORS = [
    "device.attributes['gpu.nvidia.com'].type == 'gpu'",
    "device.attributes['gpu.nvidia.com'].type in ['gpu', 'mig']",
    "device.attributes['gpu.nvidia.com'].lacking == 1",
]
#: A pod asks for what one of these leaves of a class, or for nothing any more; a slice or a class changes meanwhile.
asking = st.one_of(
    st.tuples(st.sampled_from(["p", "q", "r"]), st.sampled_from(["a", "b"]), st.sampled_from([*SELECTORS, None])),
    st.builds(class_of, st.sampled_from(["a", "b"]), st.sampled_from([IS_GPU, *SELECTORS]), resource=st.none()),
    st.builds(
        lambda n, kinds: slice_of(f"s{n}", *(device(f"d{k}", kind) for k, kind in enumerate(kinds)), pool=f"p{n}"),
        st.integers(0, 1),
        st.lists(st.sampled_from(["gpu", "mig", "other"]), max_size=3),
    ),
)


@given(st.lists(st.lists(asking, max_size=4), max_size=5))
def test_devices_judged_by_what_is_new_alone_count_as_those_judged_by_all(turns: list[list[Any]]) -> None:
    counts, things, asks = DeviceCounts(), dict[str, Any](), dict[str, tuple[core.Pod, list[DeviceAsk]]]()

    def ask(of: DeviceCounts, change: tuple[str, str, str | None]) -> None:
        name, kind, selector = change
        pod = core.Pod(core.Meta(name=name, namespace="ns", uid=name, creation_timestamp="2026-01-01T00:00:00Z"))
        asks[name] = pod, [] if selector is None else [DeviceAsk(kind, (canonical_selector(selector),))]
        of.ask(*asks[name])

    for changes_ in turns:
        judging = counts.judge()
        for change in changes_:
            next(judging, None)
            if isinstance(change, tuple):
                ask(counts, change)
            elif isinstance(change, core.DeviceClass):
                things[change.metadata.name] = change
                counts.classes.note(change)
            else:
                things[change.metadata.name] = change
                counts.set_slice(change)
        deque(judging, maxlen=0)
        deque(counts.judge(), maxlen=0)
        anew = counts_of(*things.values())
        for found in asks.values():
            anew.ask(*found)
        deque(anew.judge(), maxlen=0)
        assert counts.extend(BARE) == anew.extend(BARE)
        assert (counts.classes.served, counts.classes.refused) == (anew.classes.served, anew.classes.refused)
