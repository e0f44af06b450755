"""Laws that hold for every instance: exactness against exhaustion, and what must not change a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.requests import TOPOLOGY, make_gang, make_node, make_role, make_shape
from covey.admission.round import apply
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Level, Plan, Proximity, Refusal, RoleRequest, Topology, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from oracle.certificate import check_certificate, plan_with_certificate
from unit.placement import brute

PORT = (("0.0.0.0", "TCP", 80),)
SHAPES = [
    make_shape(1),
    make_shape(2),
    make_shape(1, extra={"cpu": 30_000}),
    make_shape(1, host_ports=PORT),
    make_shape(2, host_ports=PORT),
]
MOST_PODS = 6

labels = st.fixed_dictionaries(
    {},
    optional={
        "zone": st.sampled_from(["z1", "z2"]),
        "block": st.sampled_from(["b1", "b2"]),
        "rack": st.sampled_from(["r1", "r2"]),
    },
)
Nodes = list[tuple[int, int, dict[str, str]]]
node_lists: st.SearchStrategy[Nodes] = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 1), labels), min_size=2, max_size=5
)


@st.composite
def gangs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Gang:
    roles: list[RoleRequest] = []
    pods = 0
    for name in "abc"[: draw(st.integers(1, 3))]:
        size = draw(st.integers(1, 3))
        most = (MOST_PODS - pods) // size
        if most == 0:
            break
        replicas = draw(st.integers(1, min(3, most)))
        pods += size * replicas
        roles.append(
            make_role(
                name,
                replicas,
                draw(st.integers(0 if roles else 1, replicas)),
                size=size,
                shape=draw(st.sampled_from(SHAPES)),
                leader=draw(st.none() | st.sampled_from(SHAPES)),
                required=draw(st.sampled_from([None, None, "zone", "block", "rack", "host"])),
                follow_unit=draw(st.sampled_from([True, True, True, False])),
            )
        )
    rule = Proximity(tuple(role.name for role in roles[:2]), draw(st.sampled_from(["block", "rack"])), required=True)
    return make_gang(
        *roles,
        required=draw(st.sampled_from([None, "zone", "block", "rack"])),
        proximity=(rule,) if draw(st.integers(0, 3)) == 0 else (),
    )


def build(nodes: Nodes, topology: Topology = TOPOLOGY, keys: Callable[[str], str] = str) -> Inventory:
    inventory = Inventory([topology])
    for index, (gpus, held, found) in enumerate(nodes):
        inventory.set_node(make_node(f"n{index}", gpus, labels={keys(k): keys(v) for k, v in found.items()}))
        if held:
            inventory.hold(f"held{index}", f"n{index}", make_shape(1))
    return inventory


@given(node_lists, gangs())
def test_a_minimum_is_placed_exactly_when_exhaustion_places_it(nodes: Nodes, gang: Gang) -> None:
    inventory = build(nodes)
    answer, certificate = plan_with_certificate(gang, inventory)
    feasible = brute.feasible(gang, inventory, tuple(role.minimum for role in gang.roles))
    assert answer.verdict is (Verdict.ADMITTED if feasible else Verdict.INFEASIBLE)
    if isinstance(answer, Plan):
        assert brute.valid(gang, inventory, answer.assignments)
        placed = apply(answer, gang, inventory)
        for role in placed.roles:
            assert sum(replica.placed for replica in role.replicas) == role.minimum
    else:
        assert answer.reasons
        assert check_certificate(gang, inventory, answer, certificate) is not False


@given(node_lists, gangs())
def test_surplus_is_the_leximin_of_all_that_fits(nodes: Nodes, gang: Gang) -> None:
    inventory = build(nodes)
    answer = plan_minimum(gang, inventory)
    if isinstance(answer, Refusal):
        return
    placed = apply(answer, gang, inventory)
    surplus = plan_surplus(placed, inventory)
    assert brute.valid(placed, inventory, surplus.assignments)
    full = apply(surplus, placed, inventory)
    got = [sum(replica.placed for replica in role.replicas) for role in full.roles]

    def fill(counts: Any) -> list[Fraction]:
        return sorted(Fraction(n, role.desired) for n, role in zip(counts, gang.roles, strict=True))

    fresh = build(nodes)
    possible = product(*(range(role.minimum, role.desired + 1) for role in gang.roles))
    assert fill(got) == max(fill(counts) for counts in possible if brute.feasible(gang, fresh, counts))


@given(node_lists, gangs(), st.randoms(use_true_random=False))
def test_order_of_nodes_roles_and_replicas_changes_no_verdict(nodes: Nodes, gang: Gang, random: Any) -> None:
    verdict = plan_minimum(gang, build(nodes)).verdict
    shuffled = list(nodes)
    random.shuffle(shuffled)
    roles = [replace(role, replicas=tuple(reversed(role.replicas))) for role in gang.roles]
    random.shuffle(roles)
    assert plan_minimum(replace(gang, roles=tuple(roles)), build(shuffled)).verdict is verdict


@given(node_lists, gangs(), labels)
def test_a_further_node_never_makes_a_gang_infeasible(nodes: Nodes, gang: Gang, found: dict[str, str]) -> None:
    before = plan_minimum(gang, build(nodes)).verdict
    after = plan_minimum(gang, build([*nodes, (4, 0, found)])).verdict
    assert before is not Verdict.ADMITTED or after is Verdict.ADMITTED


@given(node_lists, gangs())
def test_renaming_labels_changes_nothing(nodes: Nodes, gang: Gang) -> None:
    def other(text: str) -> str:
        return text if text == "kubernetes.io/hostname" else f"x-{text}"

    renamed = Topology("dc", tuple(Level(level.name, tuple(map(other, level.keys))) for level in TOPOLOGY.levels))
    plain, changed = plan_minimum(gang, build(nodes)), plan_minimum(gang, build(nodes, renamed, other))
    assert plain.verdict is changed.verdict
    if isinstance(plain, Plan) and isinstance(changed, Plan):
        assert [(a.pod, a.node) for a in plain.assignments] == [(a.pod, a.node) for a in changed.assignments]


@given(node_lists, gangs(), gangs())
def test_what_was_planned_before_changes_no_answer(nodes: Nodes, gang: Gang, earlier: Gang) -> None:
    """Tables live on between plans; a warm answer must be the cold one."""
    warm = build(nodes)
    plan_minimum(gang, warm)
    first = plan_minimum(earlier, warm)
    if isinstance(first, Plan):
        apply(first, earlier, warm)
        for assignment in first.assignments:
            warm.release(assignment.pod)
    assert plan_minimum(gang, warm) == plan_minimum(gang, build(nodes))
