"""Hypothetical changes of an inventory leave nothing behind: no sum, no order, no version, no remembered plan."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from covey.api import core
from covey.placement.anti_affinity import Term
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Shape
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum

NODES = [f"n{number}" for number in range(6)]
KEYS = [f"pod-{number}" for number in range(10)]
APART = Term("block", frozenset({"default"}), None, (core.Requirement("app", "In", ("a",)),))
HOST = replace(APART, key="kubernetes.io/hostname")
SHAPES = (
    make_shape(1),
    make_shape(2),
    make_shape(8),
    make_shape(1, host_ports=(("0.0.0.0", "TCP", 80),)),
    replace(make_shape(1), anti_affinity=(HOST,)),
    replace(make_shape(1), wide_terms=(APART,)),
)
META = core.Meta(name="x", namespace="default", uid="x", labels={"app": "a"})
GANGS = (
    make_gang(make_role("prefill", 2, size=2, shape=SHAPES[1], required="rack"), make_role("decode", 2, 1)),
    make_gang(make_role("decode", 2, size=2, shape=SHAPES[1], required="rack"), required="block"),
    make_gang(make_role("router", 3, 2, shape=SHAPES[3])),
)

holds = st.tuples(st.just("hold"), st.sampled_from(KEYS), st.sampled_from([*NODES, "gone"]), st.sampled_from(SHAPES))
removals = st.tuples(st.just("remove"), st.lists(st.sampled_from(KEYS), max_size=4))
plans = st.tuples(st.just("plan"), st.integers(0, len(GANGS) - 1))
nested = st.tuples(st.just("inside"), st.lists(st.one_of(holds, removals, plans), max_size=4))
histories = st.lists(st.one_of(holds, removals, plans, nested), max_size=10)


def build(held: dict[str, tuple[str, Shape]]) -> Inventory:
    inventory = Inventory([TOPOLOGY])
    for number, name in enumerate(NODES):
        labels = {"zone": "z", "block": f"b{number // 4}", "rack": f"r{number // 2}"}
        inventory.set_node(make_node(name, 8, labels=labels))
    for key, (node, shape) in held.items():
        inventory.hold(key, node, shape, META)
    return inventory


def content(inventory: Inventory) -> dict[str, Any]:
    """All of an inventory, the orders and versions included."""
    return {
        "nodes": {
            name: (state.version, state.facts, state.in_use, list(state.free.items()), *_holders(state))
            for name, state in inventory.nodes.items()
        },
        "domains": {
            (name, path): (domain.version, domain.broken, list(domain.free.items()), list(domain.nodes))
            for name, tree in inventory.trees.items()
            for path, domain in tree.by_path.items()
        },
        "held": {key: inventory.hold_of(key) for key in KEYS},
        "terms": (inventory.terms.version, inventory.terms.matching(META)),
        "off": inventory.kept_off(replace(make_shape(1), matched=frozenset({APART}))),
        "counts": (inventory.full, inventory.facts),
    }


def _holders(state: Any) -> tuple[Any, ...]:
    return list(state.held.items()), list(state.guards.items())


def play(inventory: Inventory, history: list[Any]) -> None:
    with overlay(inventory) as changes:
        for event in history:
            match event:
                case ("hold", key, node, shape):
                    changes.hold(key, node, shape, META)
                case ("remove", keys):
                    changes.remove(keys)
                case ("plan", number):
                    plan_minimum(GANGS[number], inventory)
                case ("inside", events):
                    play(inventory, events)


@given(
    st.dictionaries(st.sampled_from(KEYS), st.tuples(st.sampled_from(NODES), st.sampled_from(SHAPES)), max_size=8),
    st.lists(histories, min_size=1, max_size=3),
)
def test_nothing_differs_afterwards(held: dict[str, tuple[str, Shape]], histories: list[list[Any]]) -> None:
    inventory = build(held)
    for gang in GANGS:  # what is remembered from before must hold again
        plan_minimum(gang, inventory)
    before = content(inventory)
    for history in histories:
        play(inventory, history)
        assert content(inventory) == before
        fresh = build(held)
        assert [plan_minimum(gang, inventory) for gang in GANGS] == [plan_minimum(gang, fresh) for gang in GANGS]


@pytest.mark.parametrize("seed", range(4))
def test_changes_after_an_overlay_are_seen(seed: int) -> None:
    """Numbers that were given out meanwhile stand for nothing that comes later."""
    source = random.Random(seed)
    held = {key: (source.choice(NODES), SHAPES[1]) for key in KEYS[:6]}
    inventory = build(held)
    for _ in range(12):
        with overlay(inventory) as changes:
            changes.remove(source.sample(KEYS, 3))
            changes.hold("trial", source.choice(NODES), source.choice(SHAPES), META)
            plan_minimum(source.choice(GANGS), inventory)
        key = source.choice(KEYS)
        held[key] = (source.choice(NODES), source.choice(SHAPES))
        inventory.release(key)
        inventory.hold(key, *held[key], META)
        fresh = build(held)
        assert [plan_minimum(gang, inventory) for gang in GANGS] == [plan_minimum(gang, fresh) for gang in GANGS]
