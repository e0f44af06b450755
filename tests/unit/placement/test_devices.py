"""What is free, stranded, and fits as one gang: as a naive count of every domain says it, and as ``covey top`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import GPU, TOPOLOGY
from covey.picture.floor import NodeUsage
from covey.placement.cluster.devices import CLUSTER, Kind, LevelReport, NodeDevices, devices_of, kind_of, report
from covey.watching.usage import measure

LEVELS = [level.name for level in TOPOLOGY.levels]
H100, H200, NIC = Kind(GPU, "H100"), Kind(GPU, "H200"), Kind("rdma/ib")


def node(path: tuple[str | None, ...], kinds: dict[Kind, tuple[int, int]], *, closed: bool = False) -> NodeDevices:
    labels = {f"{kind.resource}.product": kind.product for kind in kinds}
    has = {kind.resource: has for kind, (has, _) in kinds.items()}
    free = {kind.resource: has - taken for kind, (has, taken) in kinds.items()}
    return devices_of(path, labels, has, free, closed=closed)


racks = st.tuples(
    st.just("z"), st.sampled_from(["b1", "b2", None]), st.sampled_from(["r1", "r2", None]), st.sampled_from("abcde")
)
amounts = st.tuples(st.integers(1, 4), st.integers(0, 5))
nodes_of = st.lists(
    st.tuples(racks, st.dictionaries(st.sampled_from([H100, NIC]), amounts, max_size=2), st.booleans()), max_size=12
)


def naive(nodes: Sequence[NodeDevices], kind: Kind, depth: int) -> LevelReport:
    """Word for word: look at every domain, and at every node of it."""
    mine = [each for each in nodes if kind in each.shares]
    domains = {each.path[: depth + 1] for each in mine if depth < 0 or each.path[depth] is not None}
    inside = [[each for each in mine if each.path[: depth + 1] == domain] for domain in domains]
    untouched = [[each for each in members if not each.closed and each.shares[kind].used == 0] for members in inside]
    largest = max((sum(each.shares[kind].free for each in members) for members in untouched), default=0)
    wholly = [members for members in inside if not any(each.closed or each.shares[kind].used > 0 for each in members)]
    free = sum(each.shares[kind].free for each in mine)
    stranded = free - sum(each.shares[kind].free for members in wholly for each in members)
    usable = sum(each.shares[kind].free for each in mine if not each.closed)
    sizes = [sum(each.shares[kind].total for each in members if not each.closed) for members in inside]
    best = min(usable, max(sizes, default=0))
    return LevelReport(largest, stranded, 1 - largest / best if best else 0.0, len(wholly))


@given(nodes_of)
def test_as_a_naive_count(drawn: list[Any]) -> None:
    nodes = [node(path, kinds, closed=closed) for path, kinds, closed in drawn]
    found = report(nodes, LEVELS, 16)
    for kind, total in found.shares.items():
        assert total.total == sum(has for _, kinds, _ in drawn for each, (has, _) in kinds.items() if each == kind)
        assert min(total) >= 0
        for depth, name in enumerate([CLUSTER, *LEVELS], start=-1):
            assert found.levels[kind, name] == naive(nodes, kind, depth)
    assert found.shares.keys() == {kind for each in nodes for kind in each.shares}
    assert found.dropped == 0


@given(nodes_of)
def test_what_holds_of_every_count(drawn: list[Any]) -> None:
    found = report([node(path, kinds, closed=closed) for path, kinds, closed in drawn], LEVELS, 16)
    for kind, total in found.shares.items():
        levels = [found.levels[kind, name] for name in (CLUSTER, *LEVELS)]
        gangs = [each.largest_gang for each in levels]
        assert gangs[0] == total.whole == max(gangs)
        if all(None not in path for path, _, _ in drawn):
            assert gangs == sorted(gangs, reverse=True), "a narrower level holds no larger gang"
        assert all(0 <= each.fragmentation <= 1 for each in levels)
        assert all(total.closed <= each.stranded <= total.free for each in levels)
        usable = total.whole + total.partial
        assert levels[0].fragmentation == (1 - total.whole / usable if usable else 0)


@given(nodes_of)
def test_top_says_the_same(drawn: list[Any]) -> None:
    """One definition: what the metrics call partial and closed ``covey top`` calls stranded."""
    grounds = [
        NodeUsage(
            str(number),
            path,
            {kind.resource: has for kind, (has, _) in kinds.items()},
            {kind.resource: taken for kind, (_, taken) in kinds.items()},
            "cordoned" if closed else None,
        )
        for number, (path, kinds, closed) in enumerate(drawn)
    ]
    found = report([node(path, kinds, closed=closed) for path, kinds, closed in drawn], LEVELS, 16)
    for kind, total in found.shares.items():
        whole, *_ = measure(grounds, TOPOLOGY, kind.resource).domains
        assert (whole.capacity, whole.free, whole.stranded) == (total.total, total.free, total.stranded)


def test_kinds_that_strangers_make_up_are_counted_and_not_told() -> None:
    made_up = [node(("z", "b", "r", "a"), {Kind(f"x{number}.example.com/thing"): (1, 0)}) for number in range(1000)]
    found = report([*made_up, node(("z", "b", "r", "b"), {H100: (8, 0)})], LEVELS, 16)
    assert len(found.shares) == 16
    assert next(iter(found.shares)) == H100
    assert found.dropped == 985
    assert len(found.levels) == 16 * (len(LEVELS) + 1)


@pytest.mark.parametrize(
    ("resource", "labels", "product"),
    [
        (GPU, {"nvidia.com/gpu.product": "H100"}, "H100"),
        (GPU, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, "nvidia-h100-80gb"),
        (GPU, {"nvidia.com/gpu.product": "", "amd.com/gpu.product-name": "MI300X"}, ""),
        ("nvidia.com/mig-1g.10gb", {"nvidia.com/mig-1g.10gb.product": "H100-MIG-1g.10gb"}, "H100-MIG-1g.10gb"),
        ("amd.com/gpu", {"amd.com/gpu.product-name": "MI300X"}, "MI300X"),
        ("gpu.intel.com/i915", {"gpu.intel.com/product": "Max_1550"}, "Max_1550"),
        ("google.com/tpu", {"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"}, "tpu-v5p-slice"),
        ("example.com/thing", {}, ""),
    ],
)
def test_the_product_of_a_kind(resource: str, labels: dict[str, str], product: str) -> None:
    assert kind_of(resource, labels) == Kind(resource, product)
