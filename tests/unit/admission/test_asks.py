"""What a refused gang waits for: never less than what would help it, and the counts that it stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from builders.requests import make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.admission.fit_counts import FitCounts, room_for
from covey.admission.hints import hint_for_minimum, hint_for_surplus
from covey.api.core import Meta, Requirement
from covey.placement.anti_affinity import Term
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal, RolesTogether
from covey.placement.planner import plan_minimum, plan_surplus

LEVELS = st.sampled_from([None, "block", "rack"])
FREE = st.lists(st.integers(0, 8), min_size=1, max_size=4)
RACKS = st.fixed_dictionaries(dict.fromkeys(("b1/r1", "b1/r2", "b2/r1"), FREE))


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    """One or two roles, levels at every scope, perhaps a rule between the two."""
    roles = [
        make_role(
            name,
            draw(st.integers(1, 3)),
            size=draw(st.integers(1, 2)),
            shape=make_shape(draw(st.sampled_from([0, 2, 4, 8]))),
            required=draw(LEVELS),
            follow_unit=draw(st.booleans()),
        )
        for name in ("p", "d")[: draw(st.integers(1, 2))]
    ]
    near = (RolesTogether(("p", "d"), "block", required=True),) if len(roles) > 1 and draw(st.booleans()) else ()
    return make_gang(*roles, required=draw(LEVELS), proximity=near)


@given(gangs(), RACKS, st.integers(0, 11))
def test_whatever_makes_a_refused_gang_fit_is_seen_to_help(
    gang: Gang, racks: dict[str, Sequence[int]], number: int
) -> None:
    inventory = make_inventory(racks)
    if not isinstance(plan_minimum(gang, inventory), Refusal):
        return
    ask, slots = hint_for_minimum(gang, inventory), FitCounts()
    nodes = sorted(inventory.nodes)
    for name in (nodes[number % len(nodes)], nodes[(number + 1) % len(nodes)]):
        inventory.release(f"held/{name}")
        slots.note_changes([name])
        if not isinstance(plan_minimum(gang, inventory), Refusal):
            assert ask.can_help(inventory.nodes[name], inventory, slots)
            return


@given(gangs(), RACKS, st.integers(0, 11))
def test_whatever_lets_surplus_in_is_seen_to_help(gang: Gang, racks: dict[str, Sequence[int]], number: int) -> None:
    inventory = make_inventory(racks)
    role = replace(gang.roles[0], minimum=1, desired=4, replicas=make_role("p", 4, shape=make_shape(4)).replicas)
    gang = replace(gang, roles=(role, *gang.roles[1:]))
    minimum = plan_minimum(gang, inventory)
    if isinstance(minimum, Refusal):
        return
    taken = {each.pod: each.node for each in minimum.assignments}
    shapes = {pod.key: pod.shape for role in gang.roles for replica in role.replicas for pod in replica.pods}
    for key, node in taken.items():
        inventory.hold(key, node, shapes[key])
    gang = place(gang, taken)
    if plan_surplus(gang, inventory).assignments:
        return
    ask, slots = hint_for_surplus(gang, inventory), FitCounts()
    nodes = sorted(inventory.nodes)
    name = nodes[number % len(nodes)]
    inventory.release(f"held/{name}")
    slots.note_changes([name])
    if plan_surplus(gang, inventory).assignments:
        assert ask.can_help(inventory.nodes[name], inventory, slots)


@given(RACKS, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 8)), max_size=20))
def test_counts_that_are_kept_up_are_those_that_are_made_anew(
    racks: dict[str, Sequence[int]], changes: list[tuple[int, int]]
) -> None:
    inventory, slots, shape = make_inventory(racks), FitCounts(), make_shape(3)
    names = sorted(inventory.nodes)
    for number, gpus in changes:
        name = names[number % len(names)]
        if gpus == 8:
            inventory.remove_node(name)
        elif name not in inventory.nodes:
            inventory.set_node(make_node(name, labels={"zone": "z", "block": "b2", "rack": "r9"}))
        inventory.hold(f"held/{name}", name, make_shape(gpus))
        slots.note_changes([name])
        for path in ((), ("z",), ("z", "b1"), ("z", "b1", "r2"), ("z", "b2", "r9")):
            domain = inventory.trees["dc"].by_path.get(path)
            anew = sum(room_for(state, shape) for state in domain.nodes.values()) if domain else 0
            assert slots.at(shape, "dc", path, inventory) == anew


def test_pods_that_keep_off_others_may_share_a_node() -> None:
    """Two pods of four devices each fit on one node: their anti-affinity does not speak of themselves."""
    for app, helps in (("noisy", True), ("engine", False)):
        apart = Term("kubernetes.io/hostname", frozenset({"default"}), None, (Requirement("app", "In", (app,)),))
        shape = replace(make_shape(4), anti_affinity=(apart,))
        gang = make_gang(make_role("w", 2, shape=shape), required="rack")
        meta = Meta(name="w", namespace="default", labels={"app": "engine"})
        role = gang.roles[0]
        replicas = tuple(replace(r, pods=tuple(replace(pod, meta=meta) for pod in r.pods)) for r in role.replicas)
        gang = replace(gang, roles=(replace(role, replicas=replicas),))
        inventory = make_inventory({"b1/r1": [0]})
        ask, slots = hint_for_minimum(gang, inventory), FitCounts()
        inventory.release("held/b1-r1-n0")
        slots.note_changes(["b1-r1-n0"])
        assert isinstance(plan_minimum(gang, inventory), Plan) == helps
        assert ask.can_help(inventory.nodes["b1-r1-n0"], inventory, slots) == helps


def test_an_inventory_without_the_topology_is_no_proof() -> None:
    gang = make_gang(make_role("w", 1), topology="gone")
    inventory = make_inventory({"b1/r1": [0]})
    assert hint_for_minimum(gang, inventory).can_help(inventory.nodes["b1-r1-n0"], inventory, FitCounts())
    assert Inventory().topologies.get("gone") is None
