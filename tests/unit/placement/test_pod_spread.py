"""Required spread of pods over a node label: kept as kube-scheduler's PodTopologySpread would keep it without pins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from builders.requests import make_gang, make_inventory, make_node, make_role, make_shape
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Plan, Refusal, Shape, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from covey.placement.question.demands import place

HOST = "kubernetes.io/hostname"
LABELS = {"app": "router"}


def spread_shape(key: str = HOST, max_skew: int = 1, gpus: int = 1, selector: Mapping[str, str] | None = None) -> Shape:
    """The shape of a pod that is spread among its like."""
    spread = core.TopologySpread(
        topology_key=key, max_skew=max_skew, label_selector=core.LabelSelector(match_labels=LABELS)
    )
    limits = {"nvidia.com/gpu": gpus}
    spec = core.PodSpec(
        containers=(core.Container(resources=core.Resources(requests=limits, limits=limits)),),
        topology_spread_constraints=(spread,),
        node_selector=dict(selector) if selector else None,
    )
    return shape_of(core.Pod(metadata=core.Meta(namespace="ns", labels=LABELS), spec=spec))


def labelled(gang: Gang, role_name: str = "router") -> Gang:
    """The gang whose pods of a role have their labels."""

    def with_labels(role_pods: Sequence[object]) -> tuple[object, ...]:
        return tuple(replace(pod, meta=core.Meta(namespace="ns", labels=LABELS)) for pod in role_pods)  # type: ignore[type-var]

    roles = tuple(
        replace(role, replicas=tuple(replace(r, pods=with_labels(r.pods)) for r in role.replicas))  # type: ignore[arg-type]
        if role.name == role_name
        else role
        for role in gang.roles
    )
    return replace(gang, roles=roles)


def routers(count: int, minimum: int | None = None, **more: object) -> Gang:
    return labelled(make_gang(make_role("router", count, minimum, shape=spread_shape(**more))))  # type: ignore[arg-type]


def nodes_of(plan: Plan | Refusal) -> list[str]:
    assert isinstance(plan, Plan), plan
    return [assignment.node for assignment in plan.assignments]


def run_pod(inventory: Inventory, name: str, node: str, **meta: object) -> None:
    """Let a pod that counts run on a node."""
    inventory.hold(name, node, make_shape(0), core.Meta(namespace="ns", labels=LABELS, **meta))  # type: ignore[arg-type]


def test_routers_when_their_owner_forbade_it_never_share_a_node() -> None:
    inventory = make_inventory({"r1": [8] * 2, "r2": [8] * 2})
    assert len(set(nodes_of(plan_minimum(routers(3), inventory)))) == 3


def test_routers_when_there_are_fewer_nodes_than_pods_differ_by_the_skew_at_most() -> None:
    inventory = make_inventory({"r1": [8] * 2, "r2": [8]})
    assert sorted(Counter(nodes_of(plan_minimum(routers(7), inventory))).values()) == [2, 2, 3]


def test_routers_when_the_emptiest_node_is_full_are_refused_by_what_they_ask_for() -> None:
    inventory = make_inventory({"r1": [8, 0]})
    refusal = plan_minimum(routers(2), inventory)
    assert isinstance(refusal, Refusal)
    assert refusal.verdict is Verdict.INFEASIBLE
    assert "topologySpreadConstraints over kubernetes.io/hostname with maxSkew 1" in refusal.message
    assert "z/b/r1/b-r1-n1 would have the fewest, 0" in refusal.message


def test_routers_when_there_is_no_room_at_all_are_refused_for_room() -> None:
    refusal = plan_minimum(routers(2), make_inventory({"r1": [0, 0]}))
    assert isinstance(refusal, Refusal)
    assert "capacity for 0 of 2 replicas" in refusal.message


def test_routers_when_no_level_has_the_label_as_domains_are_refused_by_its_name() -> None:
    refusal = plan_minimum(routers(2, key="example.com/room"), make_inventory({"r1": [8]}))
    assert isinstance(refusal, Refusal)
    assert refusal.message.startswith(
        "router: topologySpreadConstraints over example.com/room can be kept over a label"
    )


def test_routers_when_a_value_lies_in_two_domains_of_the_level_are_refused_by_its_name() -> None:
    refusal = plan_minimum(routers(2, key="rack"), make_inventory({"b1/r1": [8], "b2/r1": [8]}))
    assert isinstance(refusal, Refusal)
    assert "over rack can be kept over a label" in refusal.message


def test_a_router_when_others_with_its_labels_run_goes_where_fewest_are() -> None:
    inventory = make_inventory({"r1": [8], "r2": [8], "r3": [8]})
    run_pod(inventory, "one", "b-r1-n0")
    run_pod(inventory, "other", "b-r2-n0")
    assert nodes_of(plan_minimum(routers(1, key="rack"), inventory)) == ["b-r3-n0"]


def test_a_router_when_another_is_being_deleted_does_not_count_it() -> None:
    inventory = make_inventory({"r1": [8], "r2": [0]})
    run_pod(inventory, "one", "b-r1-n0", deletion_timestamp="2026-01-01T00:00:00Z")
    assert nodes_of(plan_minimum(routers(1, key="rack"), inventory)) == ["b-r1-n0"]


def test_surplus_when_it_is_spread_comes_as_far_as_the_emptiest_domain_allows() -> None:
    inventory = make_inventory({"r1": [8], "r2": [2]})
    gang = routers(8, minimum=2, key="rack")
    minimum = plan_minimum(gang, inventory)
    for assignment in minimum.assignments if isinstance(minimum, Plan) else ():
        run_pod(inventory, assignment.pod, assignment.node)
        inventory.hold(f"gpu/{assignment.pod}", assignment.node, make_shape(1))
    placed = place(gang, dict(zip((a.pod for a in minimum.assignments), nodes_of(minimum), strict=True)))  # type: ignore[union-attr]
    assert Counter(nodes_of(plan_surplus(placed, inventory))) == {"b-r1-n0": 2, "b-r2-n0": 1}


@dataclass(frozen=True)
class Case:
    """Nodes by rack, each with what is free, how many pods that count run there, and whether the selector allows it."""

    racks: tuple[tuple[tuple[int, int, bool], ...], ...]
    key: str
    max_skew: int
    pods: int
    gpus: int
    others: int
    other_gpus: int
    required: bool


node = st.tuples(st.integers(0, 4), st.sampled_from([0, 0, 0, 1, 2]), st.sampled_from([True, True, True, False]))
cases = st.builds(
    Case,
    racks=st.lists(st.lists(node, min_size=1, max_size=2).map(tuple), min_size=1, max_size=3).map(tuple),
    key=st.sampled_from(["rack", HOST]),
    max_skew=st.integers(1, 2),
    pods=st.integers(1, 5),
    gpus=st.integers(1, 2),
    others=st.integers(0, 2),
    other_gpus=st.integers(1, 3),
    required=st.booleans(),
)


def is_possible(case: Case) -> bool:
    """Try every order of placing: the others first, then one pod after another where kube-scheduler would let it."""
    names = [(rack, number) for rack, nodes in enumerate(case.racks) for number in range(len(nodes))]
    facts = [case.racks[rack][number] for rack, number in names]
    domain = [rack if case.key == "rack" else place_ for place_, (rack, _) in enumerate(names)]
    looked_at = {domain[n] for n, fact in enumerate(facts) if fact[2]}

    @cache
    def goes_on(free: tuple[int, ...], count: tuple[int, ...], others: int, pods: int, rack: int | None) -> bool:
        if not others and not pods:
            return True
        size = case.other_gpus if others else case.gpus
        had = Counter(dict.fromkeys(looked_at, 0))
        for n, fact in enumerate(facts):
            if fact[2]:
                had[domain[n]] += count[n]
        for n, fact in enumerate(facts):
            if free[n] < size or (rack is not None and names[n][0] != rack):
                continue
            if not others and (not fact[2] or had[domain[n]] + 1 - min(had.values()) > case.max_skew):
                continue
            rest = (*free[:n], free[n] - size, *free[n + 1 :])
            more = (*count[:n], count[n] + (not others), *count[n + 1 :])
            left = (others - 1, pods) if others else (0, pods - 1)
            if goes_on(rest, more, *left, names[n][0] if case.required else None):
                return True
        return False

    return goes_on(tuple(f[0] for f in facts), tuple(f[1] for f in facts), case.others, case.pods, None)


@given(case=cases)
@example(Case((((4, 0, True),), ((4, 0, True),), ((4, 0, True),)), "rack", 1, 4, 1, 0, 1, required=False))
@example(Case((((4, 0, True),), ((4, 1, True),)), "rack", 1, 2, 1, 0, 1, required=True))
@settings(max_examples=150)
def test_a_plan_when_pods_are_spread_exists_exactly_where_some_order_of_placing_has_one(case: Case) -> None:
    inventory = make_inventory({})
    for rack, nodes in enumerate(case.racks):
        for number, (free, count, selected) in enumerate(nodes):
            name = f"r{rack}-{number}"
            labels = {"zone": "z", "block": "b", "rack": f"r{rack}"} | ({"pool": "a"} if selected else {})
            inventory.set_node(make_node(name, labels=labels))
            inventory.hold(f"held/{name}", name, make_shape(8 - free))
            for one in range(count):
                run_pod(inventory, f"{name}/{one}", name)
    shape = spread_shape(case.key, case.max_skew, case.gpus, {"pool": "a"})
    roles = [make_role("router", case.pods, shape=shape)]
    roles += [make_role("w", case.others, shape=make_shape(case.other_gpus))] if case.others else []
    gang = labelled(make_gang(*roles, required="rack" if case.required else None))
    answer = plan_minimum(gang, inventory)
    assert answer.verdict is not Verdict.UNKNOWN
    assert isinstance(answer, Plan) is is_possible(case)
    if isinstance(answer, Plan):
        mine = [a.node for a in answer.assignments if a.pod.startswith("router")]
        assert can_come_one_by_one(case, mine)


def can_come_one_by_one(case: Case, chosen: Sequence[str]) -> bool:
    """Let the pods come to their nodes in the order that is best: always to the domain with the fewest."""
    had: Counter[str] = Counter()
    for rack, nodes in enumerate(case.racks):
        for number, (_, count, selected) in enumerate(nodes):
            if selected:
                had[f"r{rack}" if case.key == "rack" else f"r{rack}-{number}"] += count
    places = [name.split("-")[0] if case.key == "rack" else name for name in chosen]
    while places:
        first = min(places, key=lambda name: had[name])
        had[first] += 1
        if had[first] - min(had.values()) > case.max_skew:
            return False
        places.remove(first)
    return True
