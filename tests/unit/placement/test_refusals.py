"""What a refusal must be whatever the case: told once, the same in any order, true about what would help."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.requests import GPU, TOPOLOGY, make_gang, make_inventory, make_node, make_role, make_shape, place
from covey.placement.choice.candidates import Solution
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Exclusion, Gang, Plan, Refusal, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from oracle.certificate import plan_with_certificate


def refuse(gang: Gang, inventory: Inventory) -> Refusal:
    answer = plan_minimum(gang, inventory)
    assert isinstance(answer, Refusal)
    return answer


def test_the_order_of_nodes_does_not_matter() -> None:
    racks = {"b1/r1": [8], "b2/r1": [8, 8], "b10/r1": [8]}
    gang = make_gang(make_role("a", 3), required="block")
    first = refuse(gang, make_inventory(racks))
    assert first == refuse(gang, make_inventory(dict(reversed(racks.items()))))
    _, certificate = plan_with_certificate(gang, make_inventory(racks))
    assert [bound.path[1] for bound in certificate] == ["b1", "b2", "b10"]


def test_roles_that_do_not_fit_together_are_told_once() -> None:
    inventory = make_inventory({"b1/r1": [8, 8, 0, 0]})
    gang = make_gang(make_role("prefill", 2), make_role("decode", 2), required="block")
    refusal = refuse(gang, inventory)
    assert [(r.role, r.short) for r in refusal.reasons] == [("prefill", "16"), ("decode", "16")]
    assert refusal.message == (
        "prefill and decode each fit alone but not together in block z/b1: beside decode there is room for 0 of 2 "
        f"replicas of prefill; 16 more {GPU} there would do"
    )
    inventory.release("held/b1-r1-n2")
    assert refuse(gang, inventory).message.endswith(f"; 8 more {GPU} there would do")
    inventory.release("held/b1-r1-n3")
    assert isinstance(plan_minimum(gang, inventory), Plan)


def test_nothing_would_do_for_one_role_that_does_not_do_for_the_gang() -> None:
    inventory = make_inventory({"b1/r1": [8] * 6 + [0] * 2})
    gang = make_gang(make_role("prefill", 4, size=2), make_role("decode", 4, size=2), required="block")
    assert refuse(gang, inventory).message == (
        "prefill: room for 3 of 4 replicas in block z/b1, the best; "
        "decode: room for 3 of 4 replicas in block z/b1, the best"
    )


def test_more_nodes_are_called_more_nodes() -> None:
    gang = make_gang(make_role("a", 3), required="block")
    assert refuse(gang, make_inventory({"b1/r1": [8, 8]})).message == (
        f"a: room for 2 of 3 replicas in block z/b1, the best; 1 more pod's worth (8 {GPU}) is missing there"
    )


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


def test_a_half_placed_replica_is_not_satisfied() -> None:
    inventory = make_inventory({"r1": [8]})
    inventory.hold("a-0-0", "b-r1-n0", make_shape())
    gang = place(make_gang(make_role("a", 1, size=2, required="rack"), required="block"), {"a-0-0": "b-r1-n0"})
    (reason,) = refuse(gang, inventory).reasons
    assert (reason.required, reason.satisfied, reason.short) == (1, 0, "8")


def test_half_placed_replicas_that_compete_have_a_reason() -> None:
    inventory = make_inventory({"r1": [8, 8, 8]})
    nodes = {"a-0-0": "b-r1-n0", "a-1-0": "b-r1-n1"}
    for key, node in nodes.items():
        inventory.hold(key, node, make_shape())
    gang = place(make_gang(make_role("a", 2, size=2, required="rack"), required="block"), nodes)
    (reason,) = refuse(gang, inventory).reasons
    assert (reason.role, reason.satisfied, reason.short) == ("a", 0, "8")
    assert reason.message.startswith(
        "the missing pods of the replicas a 0 and a 1 must all join the others in rack z/b/r1"
    )


def test_a_role_from_outside_the_minimum_is_no_reason_of_its_own() -> None:
    inventory = make_inventory({"r1": [8]})
    marks = {0: "new"}
    gang = make_gang(make_role("a", 1, shape=make_shape(1), marks=marks), make_role("b", 1, 0, size=2, marks=marks))
    (reason,) = refuse(gang, inventory).reasons
    assert (reason.role, reason.required, reason.satisfied) == ("a", 1, 0)
    assert reason.message.startswith("a comes together with b; b: room for 0 of 1 replicas")


def test_a_node_is_out_once() -> None:
    inventory = make_inventory({"b1/r1": [8]})
    inventory.set_node(make_node("c", labels={"zone": "z"}, cordoned=True, pods=0))
    gang = make_gang(make_role("a", 3), required="block", excluded_nodes={"c": "volume", "b1-r1-n0": "volume"})
    answer = plan_minimum(gang, inventory)
    assert isinstance(answer, Refusal)
    assert answer.reasons[0].excluded == (Exclusion("cordoned", 1), Exclusion("excluded", 1))


def test_a_level_that_no_node_carries_is_told_with_the_minimum() -> None:
    inventory = Inventory([TOPOLOGY])
    inventory.set_node(make_node("n", labels={"zone": "z"}))
    (reason,) = refuse(make_gang(make_role("a", 2, required="rack")), inventory).reasons
    assert (reason.required, reason.satisfied) == (2, 0)


def test_many_roles_of_one_shape_have_a_certificate() -> None:
    roles = [make_role(name, count) for name, count in zip("abcde", (5, 6, 6, 6, 6), strict=True)]
    _, certificate = plan_with_certificate(make_gang(*roles, required="block"), make_inventory({"b1/r1": [8] * 2}))
    assert (2, 0, 0, 0, 0) in certificate[0].maximal
    assert all(sum(counts) == 2 for counts in certificate[0].maximal)


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
