"""What a refusal must be whatever the case: told once, the same in any order, true about what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import GPU, TOPOLOGY, make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.api import core
from covey.placement.choice.candidates import Solution
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Refusal, Shape, Verdict
from covey.placement.planner import plan_minimum, plan_surplus


def affinity(key: str, operator: str, *values: str) -> core.NodeSelector:
    return core.NodeSelector((core.NodeSelectorTerm((core.Requirement(key, operator, values),)),))


def refuse(gang: Gang, inventory: Inventory) -> Refusal:
    answer = plan_minimum(gang, inventory)
    assert isinstance(answer, Refusal)
    return answer


def more(free: Sequence[int], amount: int) -> Iterator[list[int]]:
    """Every way in which so many more GPUs can be free on nodes of eight."""
    for after in product((0, 4, 8), repeat=len(free)):
        if sum(after) - sum(free) == amount and all(a >= f for a, f in zip(after, free, strict=True)):
            yield list(after)


def test_minimum_is_refused_by_the_domains_when_it_is_torn_between_two() -> None:
    gang = place(make_gang(make_role("a", 3), required="rack"), {"a-0-0": "b-x-n0", "a-1-0": "b-y-n0"})
    answer = refuse(gang, make_inventory({"b/x": [8, 8], "b/y": [8, 8]}))
    assert "requires one rack, but has members in z/b/x and z/b/y" in answer.message


@given(
    racks=st.lists(st.lists(st.sampled_from((0, 4, 8)), min_size=1, max_size=4), min_size=1, max_size=2),
    roles=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 2), st.sampled_from((4, 8)), st.sampled_from((None, "rack"))),
        min_size=1,
        max_size=2,
    ),
    required=st.sampled_from((None, "block")),
)
def test_what_is_said_to_do_does(
    racks: list[list[int]], roles: list[tuple[int, int, int, str | None]], required: str | None
) -> None:
    """In some way at least: which nodes the capacity must come to is not said."""
    floor = {f"b{i // 2}/r{i}": free for i, free in enumerate(racks)}
    gang = make_gang(
        *(
            make_role(name, count, size=size, shape=make_shape(gpus), required=level)
            for name, (count, size, gpus, level) in zip("ab", roles, strict=False)
        ),
        required=required,
    )
    answer = plan_minimum(gang, make_inventory(floor))
    if isinstance(answer, Plan):
        return
    assert answer.reasons
    for reason in answer.reasons:
        said = re.search(r"; (\d+) more \S+ there would do", reason.message)
        if said is None:
            continue
        inside = [rack for rack in floor if ("z", *rack.split("/"))[: len(reason.best_domain)] == reason.best_domain]
        free = [gpus for rack in inside for gpus in floor[rack]]
        helped = []
        for after in more(free, int(said[1])):
            left = iter(after)
            changed = floor | {rack: [next(left) for _ in floor[rack]] for rack in inside}
            helped.append(isinstance(plan_minimum(gang, make_inventory(changed)), Plan))
        assert any(helped), reason.message


@st.composite
def helpless(draw: st.DrawFn) -> tuple[dict[str, list[int]], Gang]:
    """Small clusters, and a gang that may ask for what no node has: a resource, a size, a label, one host for all."""
    racks = draw(st.lists(st.lists(st.sampled_from((0, 4, 8)), min_size=1, max_size=3), min_size=1, max_size=2))
    amount, kind = draw(st.sampled_from((4, 8, 16))), draw(st.sampled_from((GPU, GPU, f"{GPU}s")))
    pool = draw(st.sampled_from((None, None, "blue", "gold")))
    selector = (("pool", pool),) if pool is not None else ()
    shape = make_shape(0, extra={kind: amount}, node_selector=selector)
    role = make_role("w", draw(st.integers(1, 3)), size=draw(st.integers(1, 3)), shape=shape)
    role = replace(role, required=draw(st.sampled_from((None, "rack", "host"))))
    gang = make_gang(role, required=draw(st.sampled_from((None, "block", "host"))))
    return {f"b{number}/r": free for number, free in enumerate(racks)}, gang


@given(helpless())
def test_refusal_that_asks_for_nodes_is_over_when_such_nodes_are_added(case: tuple[dict[str, list[int]], Gang]) -> None:
    floor, gang = case
    inventory = make_inventory(floor)
    for state in list(inventory.nodes.values()):
        labels = {**(state.node.metadata.labels or {}), "pool": "blue"}
        inventory.set_node(make_node(state.name, labels=labels))
    answer = plan_minimum(gang, inventory)
    if isinstance(answer, Plan):
        return
    (reason,) = answer.reasons
    shape = gang.roles[0].replicas[0].pods[0].shape
    (resource, amount) = next(request for request in shape.requests if "/" in request[0])
    values = re.search(r"nodes have pool: (\w+)", reason.message)
    if f"no node has {resource}" in reason.message:
        assert GPU in reason.message.removeprefix(f"w: no node has {resource}")
        count, size = sum(len(replica.pods) for replica in gang.roles[0].replicas), amount
    elif values is not None:
        renamed = replace(shape, node_selector=(("pool", values[1]),))
        after = plan_minimum(with_shape(gang, renamed), inventory)
        assert isinstance(after, Plan) or "no node has" not in after.message
        return
    elif told := re.search(r"asks for (\d+) \S+ in one host, and the largest has (\d+)", reason.message):
        assert int(told[1]) > int(told[2])
        count, size = gang.roles[0].minimum, int(told[1])
    elif told := re.search(
        r"a pod asks for (\d+) \S+, and the largest node that|a pod asks for (\d+) \S+, and", reason.message
    ):
        count, size = sum(len(replica.pods) for replica in gang.roles[0].replicas), int(told[1] or told[2])
    elif told := re.search(r"(\d+) more (?:usable nodes?|pods?'s? worth|pods' worth)", reason.message):
        count, size = int(told[1]), 8
    else:
        return
    where = dict(zip(("zone", "block", "rack"), reason.best_domain or ("z", "b0", "r"), strict=False))
    labels = {
        "zone": "z",
        "block": "b0",
        "rack": "r",
        **where,
        "pool": shape.node_selector[0][1] if shape.node_selector else "blue",
    }
    for number in range(count):
        inventory.set_node(make_node(f"new-{number}", 0, labels=labels, extra={GPU: max(size, 8), resource: size}))
    after = plan_minimum(gang, inventory)
    assert isinstance(after, Plan) or after.message != answer.message, answer.message


def with_shape(gang: Gang, shape: Shape) -> Gang:
    """The gang with this shape for all pods of its first role."""
    role = gang.roles[0]
    replicas = tuple(
        replace(each, pods=tuple(replace(pod, shape=shape) for pod in each.pods)) for each in role.replicas
    )
    return replace(gang, roles=(replace(role, replicas=replicas),))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (make_shape(0, extra={f"{GPU}s": 1}), f"w: no node has {GPU}s; nodes have {GPU}"),
        (make_shape(16), f"w: a pod asks for 16 {GPU}, and the largest node has 8"),
        (make_shape(8, extra={"cpu": 65_000}), "w: a pod asks for 65000m cpu, and the largest node has 64000m"),
        (
            make_shape(8, node_selector=(("rack", "r7"),)),
            "w: no node has the label rack=r7 of its node selector; nodes have rack: r1, r2",
        ),
        (
            make_shape(8, node_selector=(("pool", "gold"),)),
            "w: no node has the label pool=gold of its node selector; no node has a label pool",
        ),
        (
            make_shape(8, node_selector=(("rack", "r1"), ("block", "b2"))),
            "w: no node has all labels of its node selector: rack=r1, block=b2",
        ),
        (
            make_shape(8, node_affinity=affinity("rack", "In", "r8", "r9")),
            "w: no node has the label rack in (r8, r9) of its node affinity; nodes have rack: r1, r2",
        ),
    ],
    ids=["resource", "size", "cpu", "value", "key", "both", "affinity"],
)
def test_refusal_of_a_pod_that_no_node_can_hold_says_what_nodes_have(shape: Shape, words: str) -> None:
    inventory = make_inventory({"b1/r1": [8], "b2/r2": [8]})
    message = refuse(make_gang(make_role("w", 1, shape=shape)), inventory).message
    assert re.sub(r"; 2 nodes are out: 2 node (selector|affinity)$", "", message) == words


def test_refusal_where_no_device_is_on_any_node_asks_for_the_plugin() -> None:
    inventory = Inventory([TOPOLOGY])
    inventory.set_node(make_node("n", 0))
    message = refuse(make_gang(make_role("w", 1)), inventory).message
    assert message == f"w: no node has {GPU}, or any other device: see whether the device plugin runs"


def test_refusal_of_what_must_share_a_host_says_how_large_hosts_are() -> None:
    inventory = make_inventory({"b1/r1": [8, 8]})
    unit = refuse(make_gang(make_role("p", 1), make_role("d", 2), required="host"), inventory)
    assert unit.message == f"p and d: the minimum of the unit asks for 24 {GPU} in one host, and the largest has 8"
    replica = refuse(make_gang(make_role("d", 1, size=2, required="host")), inventory)
    assert replica.message == f"d: a replica asks for 16 {GPU} in one host, and the largest has 8"


def test_refusal_when_nodes_of_two_domains_lack_a_broader_label_is_the_same_in_any_order_of_nodes() -> None:
    places = [{"zone": "z", "block": "b1"}, {"block": "b1"}, {"zone": "z", "block": "b2"}, {"block": "b2"}]
    nodes = [make_node(f"n{number}", 4, labels=labels) for number, labels in enumerate(places)]
    messages = set()
    for order in permutations(nodes):
        inventory = Inventory([TOPOLOGY])
        for node in order:
            inventory.set_node(node)
        messages.add(refuse(make_gang(make_role("w", 1), required="block"), inventory).message)
    (message,) = messages
    assert "block b1 is taken for several domains, as 1 of its nodes has no label zone" in message


def test_a_role_from_outside_the_minimum_is_no_reason_of_its_own() -> None:
    inventory = make_inventory({"r1": [8]})
    marks = {0: "new"}
    gang = make_gang(make_role("a", 1, shape=make_shape(1), marks=marks), make_role("b", 1, 0, size=2, marks=marks))
    (reason,) = refuse(gang, inventory).reasons
    assert (reason.role, reason.required, reason.satisfied) == ("a", 1, 0)
    assert reason.message.startswith("a comes together with b; b: capacity for 0 of 1 replicas")


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner that loses the last pod of every placement."""
    whole = Solution.place

    def partly(*args: object) -> dict[str, str]:
        return dict(list(whole(*args).items())[:-1])  # type: ignore[arg-type]  # handed on as they are

    monkeypatch.setattr(Solution, "place", partly)


@pytest.mark.usefixtures("forgetful")
def test_an_incomplete_minimum_is_never_a_plan() -> None:
    answer = plan_minimum(make_gang(make_role("a", 2, size=2)), make_inventory({"r1": [8] * 4}))
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.UNKNOWN
    assert "leaves 1 pod without a node" in answer.message


@pytest.mark.usefixtures("forgetful")
def test_incomplete_surplus_is_no_surplus() -> None:
    inventory = make_inventory({"r1": [8] * 4})
    inventory.hold("a-0-0", "b-r1-n0", make_shape())
    gang = place(make_gang(make_role("a", 1), make_role("b", 1, 0, size=2)), {"a-0-0": "b-r1-n0"})
    assert plan_surplus(gang, inventory).assignments == ()
