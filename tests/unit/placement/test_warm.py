"""An inventory that was planned on while it changed answers as one that was built anew."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Shape
from covey.placement.planner import plan_minimum

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
