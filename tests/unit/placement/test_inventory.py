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
from covey.placement.model import Gang, Level, Plan, Refusal, Shape, Topology, Verdict
from covey.placement.planner import plan_minimum
from covey.placement.question.minimum_choice import CHOICES, choose_plan

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


def test_holding_the_same_key_elsewhere_moves_it() -> None:
    inventory = make_inventory({"r1": [8, 8]})
    inventory.hold("p", "b-r1-n0", make_shape(3))
    inventory.hold("p", "b-r1-n1", make_shape(4))
    assert inventory.free("b-r1-n0")[GPU] == 8
    assert inventory.free("b-r1-n1")[GPU] == 4


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


def gang_of(kinds: list[int], wanted: int) -> Gang:
    """Single-pod replicas that ask for so many GPUs each, of which any ``wanted`` will do."""
    role = make_role("w", len(kinds), wanted)
    replicas = tuple(
        replace(replica, pods=tuple(replace(pod, shape=make_shape(gpus)) for pod in replica.pods))
        for replica, gpus in zip(role.replicas, kinds, strict=True)
    )
    return make_gang(replace(role, replicas=replicas, free=True))


def asked(gang: Gang) -> tuple[list[frozenset[int]], Verdict]:
    """The choices that were planned when none of them fits, and the verdict."""
    found: list[frozenset[int]] = []

    def refuse(choice: Gang, _told: bool) -> Refusal:  # noqa: FBT001 - the signature of a planner
        found.append(choice.roles[0].first)
        return Refusal(Verdict.INFEASIBLE, ())

    return found, choose_plan(gang, refuse).verdict


@pytest.mark.parametrize(
    ("kinds", "wanted"), [([1] * 200 + [2] * 200, 200), (list(range(1, 1501)), 700), (list(range(1, 1501)), 1499)]
)
def test_choices_are_few_however_many_there_are(kinds: list[int], wanted: int) -> None:
    found, verdict = asked(gang_of(kinds, wanted))
    assert (len(found), verdict) == (CHOICES, Verdict.UNKNOWN)
    assert all(len(choice) == wanted for choice in found)
    looks = [tuple(sorted(kinds[number] for number in choice)) for choice in found]
    assert len(set(looks)) == CHOICES


def test_the_first_choice_is_the_lowest_numbers() -> None:
    found, verdict = asked(gang_of([1, 2, 1, 2], 2))
    assert found == [frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 3})]
    assert verdict is Verdict.INFEASIBLE


#: So little work that exact tables give up on anything with several roles.
TIGHT = 300_000


def varied(*numbers: int) -> Gang:
    roles = [
        make_role(f"g{i}", n, size=2, shape=make_shape(1 + i % 4, extra={"cpu": 1000 * (i + 1)}), required="rack")
        for i, n in enumerate(numbers)
    ]
    return make_gang(*roles, required="block")


def test_a_placement_is_found_role_after_role() -> None:
    inventory = make_inventory({"b1/r1": [8] * 4, "b1/r2": [8] * 4, "b2/r1": [8] * 2})
    gang = varied(2, 2, 1, 2, 1)
    shapes = {pod.key: pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods}
    answer = plan_minimum(gang, inventory, TIGHT)
    assert isinstance(answer, Plan)
    assert len(answer.assignments) == 16
    for number, assignment in enumerate(answer.assignments):
        inventory.hold(f"placed-{number}", assignment.node, shapes[assignment.pod])
    assert all(amount >= 0 for name in inventory.nodes for amount in inventory.free(name).values())


def test_what_is_neither_found_nor_refuted_is_unknown_and_never_infeasible() -> None:
    racks = {"b1/r1": [8] * 3 + [5] * 4}
    gang = varied(2, 2, 2, 2, 2)
    assert plan_minimum(gang, make_inventory(racks)).verdict is Verdict.ADMITTED
    answer = plan_minimum(gang, make_inventory(racks), 1)
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.message.startswith("the search limit was met: 5 pod shapes on 7 nodes")
