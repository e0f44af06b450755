"""Prices compare as their counts do, however deep the tree, large the cluster and many the pods."""

from __future__ import annotations

import random
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import GPU, make_gang, make_inventory, make_node, make_role, make_shape
from covey.api import core
from covey.placement.capacity.tables import Vector
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Plan, Topology
from covey.placement.planner import plan_minimum
from covey.placement.sharing import cover_dp
from covey.placement.sharing.cost import Packing
from covey.placement.sharing.cover_dp import NO_WAY, ChildOffer, Cover, Points


def deep(levels: int, nodes: int, per_domain: int, fan: int) -> Inventory:
    """A tree whose every level separates: so many nodes in each of the finest domains, ``fan`` of those in the next."""
    inventory = Inventory([Topology("dc", tuple(Level(f"l{depth}", (f"l{depth}",)) for depth in range(levels)))])
    for number in range(nodes):
        labels, value = {}, number // per_domain
        for depth in reversed(range(levels)):
            labels[f"l{depth}"] = f"v{value}"
            value //= fan
        inventory.set_node(make_node(f"n{number}", labels=labels))
    return inventory


counts = st.lists(st.tuples(st.integers(0, 2**50), st.integers(1, 40)), min_size=1, max_size=24)


@given(counts, st.data())
def test_packed_counts_compare_and_add_as_the_counts_do(limits: list[tuple[int, int]], data: st.DataObject) -> None:
    packing = Packing([most * parts for most, parts in limits])
    draw = [st.integers(0, most) for most, _ in limits]
    parts = [[data.draw(st.tuples(*draw)) for _ in range(2)] for _ in range(2)]
    sums = [tuple(map(sum, zip(*some, strict=True))) for some in parts]
    bounded = [tuple(min(n, m * p) for n, (m, p) in zip(total, limits, strict=True)) for total in sums]
    one, other = (packing.pack(total) for total in bounded)
    assert (one < other) == (bounded[0] < bounded[1])
    assert all(0 <= word < 2**60 for word in (*one, *other))
    if bounded == sums:
        added = [tuple(map(sum, zip(*map(packing.pack, some), strict=True))) for some in parts]
        assert added == [one, other]


def test_a_count_that_fills_more_than_a_word_keeps_its_upper_bits() -> None:
    packing = Packing([5, 2**80, 3])
    assert packing.pack([1, 2**79, 0]) > packing.pack([1, 2**78, 3])
    assert packing.pack([2, 0, 0]) > packing.pack([1, 2**80, 3])


# --- whole hosts, and what is scarce


def chosen(gang: Gang, inventory: Inventory) -> set[str]:
    plan = plan_minimum(gang, inventory)
    assert isinstance(plan, Plan)
    return {each.node for each in plan.assignments}


@pytest.mark.parametrize("rules", [{"required": "rack"}, {"required": "block"}, {"required": "zone"}, {}])
def test_whole_nodes_are_left_whole_where_another_rack_has_room_on_broken_ones(rules: dict[str, str]) -> None:
    """The first rack is tighter, but has one GPU too few on the nodes that are in use."""
    inventory = make_inventory({"r1": [3, 8], "r2": [4, 4, 4, 4]})
    gang = make_gang(make_role("w", 4, shape=make_shape(2)), **rules)
    assert all(node.startswith("b-r2-") for node in chosen(gang, inventory))


def test_resources_of_different_measure_are_not_added_up() -> None:
    """Both racks have room; the second has fewer GPUs left, the first fewer bytes of huge pages and shares."""
    inventory = Inventory([make_inventory({}).topologies["dc"]])
    huge, share = "hugepages-2Mi", "rdma/share"
    for rack, gpus, pages, shares in (("r1", 8, 2**30, 10), ("r2", 4, 2**35, 1000)):
        labels = {"zone": "z", "block": "b", "rack": rack}
        inventory.set_node(make_node(rack, gpus, labels=labels, extra={huge: pages, share: shares}))
        inventory.hold(rack, rack, make_shape(1))
    shape = make_shape(2, extra={huge: 2**20, share: 1})
    assert chosen(make_gang(make_role("w", 1, shape=shape), required="rack"), inventory) == {"r2"}


# --- quantities as large as the API takes

LARGEST = 2**63 - 1
amounts = st.sampled_from([0, 1, 2**31, 2**62, LARGEST])


@given(
    st.lists(st.tuples(st.integers(0, 3), amounts, amounts, amounts), max_size=12),
    st.lists(st.tuples(amounts, amounts), min_size=4, max_size=4),
    st.integers(0, 2**30),
)
def test_the_largest_quantities_of_strangers_break_nothing(
    held: list[tuple[int, int, int, int]], extra: list[tuple[int, int]], seed: int
) -> None:
    inventory = make_inventory({"b1/r1": [8, 8], "b2/r1": [8, 8]})
    names = sorted(inventory.nodes)
    for name, (memory, devices) in zip(names, extra, strict=True):
        old = inventory.nodes[name].node
        more = {**(old.status.allocatable or {}), "memory": str(memory), "example.com/dev": str(devices)}
        inventory.set_node(core.Node(old.metadata, old.spec, core.NodeStatus(allocatable=more)))
    gang = make_gang(make_role("a", 2, shape=make_shape(4)), make_role("b", 2, shape=make_shape(2)), required="block")
    for number, (node, gpus, memory, cpu) in enumerate(held):
        requests = {GPU: gpus, "memory": memory, "cpu": 1000 * cpu, "example.com/dev": memory, "pods": 1}
        inventory.hold(f"s{number}", names[node], make_shape(0, extra={k: v for k, v in requests.items() if v}))
    left = {name: 8 - sum(gpus for node, gpus, *_ in held if names[node] == name) for name in names}
    fits = any(
        4 * a + 2 * b <= left[f"{block}-r1-n0"] and 4 * (2 - a) + 2 * (2 - b) <= left[f"{block}-r1-n1"]
        for block in ("b1", "b2")
        for a in range(3)
        for b in range(3)
        if min(left[f"{block}-r1-n0"], left[f"{block}-r1-n1"]) >= 0
    )
    assert isinstance(plan_minimum(gang, inventory), Plan) is fits
    for tree in inventory.trees.values():
        for domain in tree.by_path.values():
            assert all(value >= 0 for value in domain.free.values())
            for name in domain.free:
                assert domain.free[name] == sum(max(0, node.free.get(name, 0)) for node in domain.nodes.values())
    order = list(range(len(held)))
    random.Random(seed).shuffle(order)
    for number in order:
        inventory.release(f"s{number}")
    assert isinstance(plan_minimum(gang, inventory), Plan)


def test_pods_that_ask_for_the_largest_quantities_are_counted_exactly() -> None:
    inventory = Inventory([make_inventory({}).topologies["dc"]])
    for name, memory in (("n1", LARGEST), ("n2", LARGEST - 1)):
        inventory.set_node(make_node(name, labels={"rack": "r"}, extra={"memory": str(memory)}))
    whole, half = (make_shape(1, extra={"memory": size}) for size in (LARGEST, LARGEST // 2))
    roles = [make_role("whole", 1, shape=whole), make_role("half", 2, shape=half)]
    assert isinstance(plan_minimum(make_gang(*roles), inventory), Plan)
    roles = [make_role("whole", 1, shape=whole), make_role("half", 3, shape=half)]
    assert not isinstance(plan_minimum(make_gang(*roles), inventory), Plan)


#: Prices of two words that may be large, or have nothing in their lowest bits.
price = st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from([0, 20, 40])).map(
    lambda each: (each[0] << each[2], each[1] << 30)
)
needs = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)


@st.composite
def offers_of(draw: st.DrawFn) -> tuple[Vector, list[list[tuple[Vector, tuple[int, int]]]]]:
    need = draw(needs)
    vector = st.tuples(*(st.integers(0, most) for most in need)).filter(any) if any(need) else st.just(need)
    child = st.lists(st.tuples(vector, price), min_size=1, max_size=9)
    return need, draw(st.lists(child, max_size=5))


def made(need: Vector, children: list[list[tuple[Vector, tuple[int, int]]]]) -> Cover[int]:
    offers = [
        ChildOffer(
            number, {0: (Points([v for v, _ in child], need), np.array([p for _, p in child], dtype=np.int64).T)}
        )
        for number, child in enumerate(children)
    ]
    return Cover(need, offers, words=2)


@given(offers_of(), st.booleans(), st.sampled_from([1, 1 << 15]))
def test_prices_are_the_lowest_however_they_are_worked_out(
    found: tuple[Vector, list[list[tuple[Vector, tuple[int, int]]]]],
    kept: bool,  # noqa: FBT001 - hypothesis gives it
    cells: int,
) -> None:
    need, children = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cover_dp, "_KEPT", 1 << 16 if kept else 0)
        patch.setattr(cover_dp, "_CELLS", cells)
        asked = made(need, children)
        known = dict.fromkeys(product(*(range(most + 1) for most in need)), (NO_WAY, 0))
        known[(0,) * len(need)] = (0, 0)
        for child in children:
            known = {
                vector: min(
                    before,
                    *(
                        (rest[0] + own[0], rest[1] + own[1])
                        for point, own in child
                        if (rest := known[tuple(max(0, a - b) for a, b in zip(vector, point, strict=True))])[0] < NO_WAY
                    ),
                    before,
                )
                for vector, before in known.items()
            }
        for vector, right in known.items():
            if right[0] >= NO_WAY:
                assert asked.price(vector)[0] >= NO_WAY
                continue
            assert asked.price(vector) == right
            shares = asked.shares(vector, 0)
            total = [sum(part) for part in zip(*(share.vector for share in shares), strict=True)] or [0] * len(need)
            assert tuple(total) == vector


def test_in_a_deep_tree_the_fewest_domains_are_taken_at_every_level() -> None:
    inventory = deep(10, 4096, 2, 2)
    plan = plan_minimum(make_gang(make_role("w", 32)), inventory)
    assert isinstance(plan, Plan)
    number = [len({each.path[: depth + 1] for each in plan.assignments}) for depth in range(10)]
    assert number == [1, 1, 1, 1, 1, 1, 2, 4, 8, 16]
    assert all(finer <= 2 * coarser for coarser, finer in pairwise(number))
