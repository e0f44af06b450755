"""The inventory: any order of events leaves the same capacity as building it anew."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import GPU, TOPOLOGY, make_gang, make_inventory, make_node, make_role, make_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Shape, Topology
from covey.placement.planner import plan_minimum

RACK = {"zone": "z", "block": "b", "rack": "r"}


def state_of(inventory: Inventory) -> tuple[dict[str, Any], dict[Any, Any], int]:
    """All that planning depends on."""
    nodes = {name: (dict(state.free), state.in_use, sorted(state.guards)) for name, state in inventory.nodes.items()}
    domains = {
        (topology, path): ({r: n for r, n in d.free.items() if n}, d.broken, sorted(d.nodes), d.real)
        for topology, tree in inventory.trees.items()
        for path, d in tree.by_path.items()
        if d.nodes
    }
    return nodes, domains, inventory.full


node_names = st.sampled_from(["n1", "n2", "n3"])
events = st.one_of(
    st.tuples(st.just("node"), node_names, st.integers(0, 8), st.sampled_from(["r1", "r2", None]), st.booleans()),
    st.tuples(st.just("gone"), node_names),
    st.tuples(st.just("hold"), st.sampled_from("abcd"), node_names, st.integers(0, 4)),
    st.tuples(st.just("free"), st.sampled_from("abcd")),
)


@given(st.lists(events, max_size=25))
def test_incremental_equals_rebuilt(history: list[Any]) -> None:
    inventory = Inventory([TOPOLOGY])
    nodes: dict[str, core.Node] = {}
    holds: dict[str, tuple[str, Shape]] = {}
    for event in history:
        match event:
            case ("node", name, gpus, rack, cordoned):
                labels = {"block": "b"} | ({"rack": rack} if rack else {})
                nodes[name] = make_node(name, gpus, labels=labels, cordoned=cordoned, pods=2)
                inventory.set_node(nodes[name])
            case ("gone", name):
                nodes.pop(name, None)
                inventory.remove_node(name)
            case ("hold", key, name, gpus):
                holds[key] = (name, make_shape(gpus, host_ports=(("0.0.0.0", "TCP", 80),) if gpus == 3 else ()))
                inventory.hold(key, *holds[key])
            case ("free", key):
                holds.pop(key, None)
                inventory.release(key)
    fresh = Inventory([TOPOLOGY])
    for node in nodes.values():
        fresh.set_node(node)
    for key, (name, shape) in holds.items():
        fresh.hold(key, name, shape)
    assert state_of(inventory) == state_of(fresh)
    empty_paths = [path for path, d in inventory.trees["dc"].by_path.items() if path and not d.nodes]
    assert empty_paths == []


def test_capacity_held_on_a_node_not_yet_seen_counts_when_it_comes() -> None:
    inventory = Inventory([TOPOLOGY])
    inventory.hold("p", "n1", make_shape(3))
    inventory.set_node(make_node("n1", labels=RACK))
    assert inventory.free("n1")[GPU] == 5
    inventory.remove_node("n1")
    inventory.set_node(make_node("n1", labels=RACK))
    assert inventory.free("n1")[GPU] == 5
    assert inventory.holder("p") == "n1"


def test_holding_the_same_key_elsewhere_moves_it() -> None:
    inventory = make_inventory({"r1": [8, 8]})
    inventory.hold("p", "b-r1-n0", make_shape(3))
    inventory.hold("p", "b-r1-n1", make_shape(4))
    assert inventory.free("b-r1-n0")[GPU] == 8
    assert inventory.free("b-r1-n1")[GPU] == 4


def test_a_heartbeat_changes_nothing() -> None:
    inventory = make_inventory({"r1": [8]})
    before = inventory.trees["dc"].root.version
    node = make_node("b-r1-n0", labels={"zone": "z", "block": "b", "rack": "r1"})
    status = core.NodeStatus(
        allocatable=node.status.allocatable,
        conditions=(core.Condition(type="Ready", status="True", last_transition_time="2026-01-01T00:00:00Z"),),
    )
    inventory.set_node(core.Node(metadata=node.metadata, spec=node.spec, status=status))
    assert inventory.trees["dc"].root.version == before


def test_only_the_domains_of_the_node_change_their_version() -> None:
    inventory = make_inventory({"b1/r1": [8], "b1/r2": [8], "b2/r1": [8]})
    tree = inventory.trees["dc"]
    before = {path: domain.version for path, domain in tree.by_path.items()}
    inventory.hold("p", "b1-r2-n0", make_shape(1))
    changed = {path for path, domain in tree.by_path.items() if domain.version != before[path]}
    assert changed == {(), ("z",), ("z", "b1"), ("z", "b1", "r2"), ("z", "b1", "r2", "b1-r2-n0")}


def test_fits_names_the_cause() -> None:
    inventory = make_inventory({"r1": [2]})
    node = "b-r1-n0"
    port = (("0.0.0.0", "TCP", 80),)
    assert inventory.fits(make_shape(2), node) is None
    assert inventory.fits(make_shape(4), node) == f"insufficient {GPU}"
    assert inventory.fits(make_shape(1), "elsewhere") == "node not found"
    assert inventory.fits(make_shape(1, node_selector=(("x", "y"),)), node) == "node selector"
    inventory.hold("p", node, make_shape(0, host_ports=port))
    assert inventory.fits(make_shape(1, host_ports=port), node) == "host port"
    inventory.set_node(make_node(node, pods=2, labels=RACK))
    assert inventory.fits(make_shape(1), node) == "insufficient pods"


def test_a_node_that_lacks_a_level_still_counts_for_the_coarser_ones() -> None:
    inventory = make_inventory({"b1/r1": [8]})
    inventory.set_node(make_node("bare", labels={"zone": "z", "block": "b1"}))
    assert inventory.path("dc", "bare") == ("z", "b1", None, "bare")
    assert inventory.path("dc", "elsewhere") == ()
    assert len(inventory.trees["dc"].by_path["z", "b1"].nodes) == 2
    assert inventory.trees["dc"].by_path["z", "b1"].free[GPU] == 16
    assert [domain.path for domain in inventory.trees["dc"].at(2)] == [("z", "b1", "r1")]


def test_labels_that_do_not_nest_and_missing_levels_are_said() -> None:
    inventory = make_inventory({"b1/r1": [8], "b2/r1": [8]})
    inventory.set_node(make_node("bare", labels={"zone": "z", "block": "b1"}))
    assert inventory.warnings("dc") == (
        "labels do not nest: rack 'r1' lies under several broader domains; they are taken as different domains",
        "1 of 3 nodes have no level rack",
    )
    quiet = Topology("quiet", (Level("rack", ("rack",), optional=True),))
    inventory.set_topologies([quiet])
    assert inventory.warnings("quiet") == ()


def test_nodes_when_they_share_a_hostname_are_said() -> None:
    inventory = make_inventory({"b1/r1": [8]})
    inventory.set_node(
        make_node("clone", labels={"zone": "z", "block": "b1", "rack": "r1", "kubernetes.io/hostname": "b1-r1-n0"})
    )
    assert inventory.warnings("dc") == (
        "nodes b1-r1-n0, clone all have the label kubernetes.io/hostname=b1-r1-n0: to placement they are one host",
    )


def test_changing_topologies_rebuilds_the_trees_and_forgets_what_was_planned() -> None:
    inventory = make_inventory({"b1/r1": [8]})
    inventory.memo["x"] = 1
    inventory.set_topologies([TOPOLOGY])
    assert inventory.memo
    inventory.set_topologies([Topology("flat", (Level("rack", ("rack",)),))])
    assert not inventory.memo
    assert inventory.path("flat", "b1-r1-n0") == ("r1",)
    assert inventory.path("dc", "b1-r1-n0") == ()
    inventory.hold("p", "b1-r1-n0", make_shape(8))
    assert inventory.trees["flat"].by_path["r1",].free[GPU] == 0


def test_a_daemon_on_a_gpu_node_does_not_break_into_it() -> None:
    inventory = make_inventory({"r1": [8]})
    inventory.hold("daemon", "b-r1-n0", make_shape(0, extra={"cpu": 100}))
    assert inventory.trees["dc"].root.broken == 0
    inventory.hold("job", "b-r1-n0", make_shape(1))
    assert inventory.trees["dc"].root.broken == 1


NODES = [f"n{number}" for number in range(8)]
TAINT = core.Taint(key="only", value="", effect="NoSchedule")
SMALL, LARGE = make_shape(2), make_shape(8)
GANGS = (
    make_gang(make_role("prefill", 2, size=2, shape=SMALL, required="rack"), make_role("decode", 2, 1, shape=LARGE)),
    make_gang(make_role("decode", 3, size=2, shape=LARGE, required="rack"), required="block"),
    make_gang(make_role("router", 4, 2, shape=replace(SMALL, node_selector=(("pool", "a"),)))),
    make_gang(make_role("one", 2, shape=SMALL), make_role("two", 9, shape=LARGE)),
)


def some_node(source: random.Random, name: str) -> core.Node:
    """A node that often stays where it is, with what it has, and admits others."""
    number = int(name[1:])
    rack = {"zone": "z", "block": f"b{number // 4}", "rack": f"r{number // 2}"}
    if source.random() < 0.15:
        del rack[source.choice(list(rack))]
    return make_node(
        name,
        source.choice((8, 8, 8, 4)),
        labels=rack | source.choice(({}, {"pool": "a"}, {"pool": "b"})),
        taints=source.choice(((), (), (TAINT,))),
        cordoned=source.random() < 0.2,
        ready=source.random() < 0.9,
    )


def answers(gangs: tuple[Gang, ...], inventory: Inventory) -> list[object]:
    return [plan_minimum(gang, inventory) for gang in gangs]


@pytest.mark.parametrize("seed", range(6))
def test_nodes_that_change_between_plans(seed: int) -> None:
    source = random.Random(seed)
    nodes = {name: some_node(source, name) for name in NODES}
    held: dict[str, tuple[str, Shape]] = {}
    inventory = Inventory([TOPOLOGY])
    for node in nodes.values():
        inventory.set_node(node)
    for _ in range(12):
        name = source.choice(NODES)
        match source.choice(("changed", "changed", "gone", "held", "freed")):
            case "changed":
                nodes[name] = some_node(source, name)
                inventory.set_node(nodes[name])
            case "gone":
                nodes.pop(name, None)
                inventory.remove_node(name)
            case "held":
                held[f"on-{name}"] = (name, SMALL)
                inventory.hold(f"on-{name}", name, SMALL)
            case _:
                held.pop(f"on-{name}", None)
                inventory.release(f"on-{name}")
        fresh = Inventory([TOPOLOGY])
        for node in nodes.values():
            fresh.set_node(node)
        for key, (where, shape) in held.items():
            fresh.hold(key, where, shape)
        assert answers(GANGS, inventory) == answers(GANGS, fresh)


def test_a_node_that_stays_touches_no_sum() -> None:
    inventory = Inventory([TOPOLOGY])
    rack = {"zone": "z", "block": "b", "rack": "r"}
    inventory.set_node(make_node("n", labels=rack))
    (leaf,) = [domain for domain in inventory.trees["dc"].by_path.values() if domain.path[-1:] == ("n",)]
    before, changes = leaf.version, inventory.trees["dc"].changes
    inventory.set_node(make_node("n", labels=rack | {"stamp": "1"}, taints=[TAINT]))
    assert inventory.trees["dc"].by_path[leaf.path] is leaf
    assert inventory.trees["dc"].changes == changes
    assert leaf.version > before
    assert inventory.nodes["n"].static_cause(SMALL) == "taint only:NoSchedule"
