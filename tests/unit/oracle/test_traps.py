"""The traps of the field: each was seen to defeat a live scheduler or a plausible planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from covey.admission.round import plan_round
from covey.placement.model import Gang, Plan, Refusal, Verdict
from covey.placement.planner import plan_minimum, plan_surplus
from oracle import facts
from oracle.build import case, full, nodes, role
from oracle.case import Case, Hold
from oracle.checker import check, score
from oracle.written import shape


def planned(found: Case) -> Case:
    """The case after a checked plan of minimum and surplus."""
    first = plan_minimum(found.gang, found.inventory())
    assert isinstance(first, Plan), first
    assert check(found, first, "minimum") == []
    middle = found.after(first.assignments)
    growth = plan_surplus(middle.gang, middle.inventory())
    assert check(middle, growth, "surplus") == []
    return middle.after(growth.assignments)


def admitted(found: Case) -> tuple[int, ...]:
    return score(found, planned(found)).admitted


def refused(found: Case) -> Refusal:
    answer = plan_minimum(found.gang, found.inventory())
    assert isinstance(answer, Refusal)
    assert answer.verdict is Verdict.INFEASIBLE
    return answer


@pytest.mark.parametrize("sizes", sorted(set(permutations((2, 3, 2, 3, 2)))))
def test_racks_of_6_and_groups_of_2_and_3(sizes: Sequence[int]) -> None:
    groups = [role(f"g{number}", size=size, required="rack") for number, size in enumerate(sizes)]
    for required in (None, "block"):
        assert admitted(case(nodes(racks=2, per_rack=6), groups, required=required)) == (1, 1, 1, 1, 1)
    refused(case(nodes(racks=2, per_rack=6)[1:], groups))


@pytest.mark.parametrize(("room", "expected"), [(2, (1, 1)), (3, (2, 1)), (4, (2, 2)), (5, (3, 2)), (6, (4, 2))])
def test_desired_4_and_2_with_a_minimum_of_1_and_1(room: int, expected: tuple[int, int]) -> None:
    """With one place to spare the emptier role gets it."""
    roles = [role("prefill", minimum=1, desired=4), role("decode", minimum=1, desired=2)]
    for required in (None, "block"):
        assert admitted(case(nodes(per_rack=room), roles, required=required)) == expected
        refused(case(nodes(per_rack=1), roles, required=required))


@pytest.mark.parametrize("first", ["prefill", "decode"])
def test_a_role_declared_first_does_not_take_its_surplus_first(first: str) -> None:
    roles = [role("prefill", minimum=3, desired=9), role("decode", minimum=3, desired=9)]
    roles.sort(key=lambda found: found.name != first)
    assert admitted(case(nodes(per_rack=8), roles)) == (4, 4)
    assert admitted(case(nodes(per_rack=6), roles)) == (3, 3)


@pytest.mark.parametrize("order", list(permutations((2, 5, 7))))
def test_a_bigger_sibling_declared_last(order: Sequence[int]) -> None:
    """Racks of 7 and 7: the two smaller ones must share a rack, whoever comes first."""
    roles = [role(f"size-{size}", size=size, required="rack") for size in order]
    assert admitted(case(nodes(racks=2, per_rack=7), roles, required="block")) == (1, 1, 1)


def test_single_gpu_pods_in_partial_racks_leave_whole_racks_whole() -> None:
    floor = nodes(racks=3, per_rack=2)
    taken = [Hold(f"s{number}", f"b0-r1-n{number}", shape(6)) for number in range(2)]
    small = case(floor, [role("a", minimum=4, wants=shape(1))], holds=taken)
    after = planned(small)
    assert {pod.node for pod in facts.pods_of(after.gang.roles)} == {"b0-r1-n0", "b0-r1-n1"}
    big = replace(after, gang=replace(after.gang, roles=(role("b", size=2, minimum=2, required="rack"),)))
    assert admitted(big) == (2,)


def test_single_gpu_pods_over_partial_racks() -> None:
    """16 free GPUs in pieces: one pod a GPU fits, and what asks for a piece too large does not."""
    floor = nodes(racks=4, per_rack=2)
    taken = [Hold(f"s-{found.metadata.name}", found.metadata.name, shape(6)) for found in floor]
    assert admitted(case(floor, [role("a", minimum=16, wants=shape(1))], holds=taken)) == (16,)
    reason = refused(case(floor, [role("a", minimum=1, wants=shape(3))], holds=taken)).reasons[0]
    assert (reason.resource, reason.requested, reason.short) == ("nvidia.com/gpu", "3", "1")
    refused(case(floor, [role("a", size=5, wants=shape(1), required="rack")], holds=taken))


def test_the_same_rack_name_under_two_blocks() -> None:
    floor = nodes(blocks=2, racks=1, per_rack=2)
    refused(case(floor, [role("a", size=3, required="rack")]))
    reason = refused(case(floor, [role("a", size=4, required="rack")])).reasons[0]
    assert reason.best_domain in {("b0", "r0"), ("b1", "r0")}
    after = planned(case(floor, [role("a", size=2, minimum=2, required="rack")]))
    domains = [{pod.node[:2] for pod in replica.pods if pod.node} for replica in after.gang.roles[0].replicas]
    assert sorted(map(len, domains)) == [1, 1]


def test_two_gangs_race_for_the_last_block() -> None:
    """Whoever plans first has it whole; the other is refused whole, though single pods of it would fit."""
    floor = nodes(blocks=2, racks=2, per_rack=2)
    shared = case(floor, (), holds=full("b0-r0-n0"))

    def gang(name: str) -> Gang:
        return Gang("default", name, 0, (role(name, size=2, minimum=2, required="rack"),), "floor", required="block")

    first = replace(shared, gang=gang("first"))
    second = replace(planned(first), gang=gang("second"))
    reason = refused(second).reasons[0]
    assert (reason.required, reason.satisfied) == (2, 1)
    assert reason.best_domain[:1] == ("b0",)


def round_of(found: Case, *gangs: Gang) -> dict[str, int | None]:
    """How many pods each gang got in one round, by name; None where it was refused."""
    outcomes = plan_round(gangs, found.inventory())
    return {
        outcome.gang.name: len(outcome.assignments) if isinstance(outcome.plan, Plan) else None for outcome in outcomes
    }


def test_two_gangs_race_in_one_round() -> None:
    floor = case(nodes(blocks=2, racks=2, per_rack=2), (), holds=full("b0-r0-n0"))

    def gang(name: str, created: str, priority: int = 0) -> Gang:
        wants = role(name, size=2, minimum=2, required="rack")
        return Gang("default", name, 0, (wants,), "floor", required="block", created=created, priority=priority)

    old, new = gang("old", "2026-01-01T00:00:00Z"), gang("new", "2026-01-02T00:00:00Z")
    assert list(round_of(floor, new, old).items()) == [("old", 4), ("new", None)], "who came first is planned first"
    assert round_of(floor, old, gang("urgent", "2026-01-02T00:00:00Z", priority=1)) == {"old": None, "urgent": 4}


def test_every_minimum_of_a_round_comes_before_any_surplus() -> None:
    def gang(name: str, created: str) -> Gang:
        return Gang("default", name, 0, (role(name, minimum=1, desired=3),), "floor", created=created)

    old, new = gang("old", "2026-01-01T00:00:00Z"), gang("new", "2026-01-02T00:00:00Z")
    assert round_of(case(nodes(per_rack=1), ()), new, old) == {"old": 1, "new": None}
    assert round_of(case(nodes(per_rack=2), ()), new, old) == {"old": 1, "new": 1}
    assert round_of(case(nodes(per_rack=6), ()), new, old) == {"old": 3, "new": 3}


def test_many_gangs_of_one_required_level_are_whole_where_they_fit() -> None:
    """Sixteen nodes in racks of four, for gangs of two (or four) in one rack each: their surplus can come nowhere else."""
    floor = case([*nodes(blocks=2, racks=2, per_rack=4)], ())

    def gang(number: int, desired: int) -> Gang:
        wants = (role(f"w{number}", minimum=1, desired=desired),)
        return Gang("default", f"g{number}", 0, wants, "floor", required="rack", created=f"{number}")

    small = [gang(number, 2) for number in range(8)]
    assert round_of(floor, *small) == {f"g{number}": 2 for number in range(8)}
    mixed = [gang(number, 4 if number == 3 else 2) for number in range(7)]
    assert round_of(floor, *mixed) == {f"g{number}": 4 if number == 3 else 2 for number in range(7)}
    crowded = [gang(number, 4) for number in range(5)]
    found = round_of(floor, *crowded)
    assert None not in found.values(), "minimums come first"
    assert sum(count or 0 for count in found.values()) == 16, "and then all of the nodes are used"


def test_replacing_pods_of_two_dead_nodes_at_once() -> None:
    """Two nodes of the rack died; what is left of the replicas stays, the lost pods come back in the same rack."""
    floor = nodes(racks=2, per_rack=6)[2:]  # b0-r0-n0 and -n1 are gone
    left = {(0, 1): "b0-r0-n2", (1, 1): "b0-r0-n3", (0, 2): "b0-r0-n4"}
    broken = role("a", size=3, minimum=2, required="rack", placed=left)
    missing = role("a", size=3, minimum=1, required="rack", placed={(0, 1): "b0-r0-n2", (0, 2): "b0-r0-n3"})
    after = planned(case(floor, [missing]))
    assert {pod.node for pod in facts.pods_of(after.gang.roles)} <= {f"b0-r0-n{number}" for number in (2, 3, 4, 5)}
    refused(case(floor, [broken]))  # three lost pods, one free node in the rack they are pinned to
    refused(case(floor, [missing], holds=full("b0-r0-n4", "b0-r0-n5")))  # never in the other rack, though that is free


def test_a_pinned_unit_grows_where_it_is() -> None:
    floor = nodes(blocks=2, racks=1, per_rack=2)
    settled = role("a", minimum=1, desired=4, placed={(0, 0): "b0-r0-n0"})
    assert admitted(case(floor, [settled], required="block")) == (2,)


def test_a_pinned_domain_that_no_longer_exists_pins_nothing() -> None:
    floor = nodes(blocks=2, racks=1, per_rack=2)[2:]  # block b0 is gone, and with it the node of the first pod
    orphan = role("a", minimum=2, placed={(0, 0): "b0-r0-n0"})
    plan = plan_minimum((found := case(floor, [orphan], required="block")).gang, found.inventory())
    assert isinstance(plan, Plan)
    assert [entry.path[0] for entry in plan.assignments] == ["b1"]


def test_the_domain_of_the_minimum_is_chosen_for_the_surplus() -> None:
    """The tightest block takes the minimum alone; the other takes everything."""
    floor = [*nodes(blocks=1, racks=1, per_rack=2), *nodes(blocks=2, racks=1, per_rack=4)[4:]]
    roles = [role("a", minimum=1, desired=2), role("b", minimum=1, desired=2)]
    assert admitted(case(floor, roles, required="block")) == (2, 2)


def test_a_replica_of_two_shapes_is_whole_in_its_rack() -> None:
    floor = nodes(racks=2, per_rack=2)
    half = [Hold(f"s{number}", f"b0-r{number}-n0", shape(4)) for number in range(2)]
    leads = role("a", size=2, minimum=2, leader=shape(4), required="rack")
    assert admitted(case(floor, [leads], holds=half)) == (2,)
    refused(case(floor, [leads], holds=[*half, Hold("s2", "b0-r1-n0", shape(1))]))


def test_exclusive_pods_take_a_host_each() -> None:
    lonely = replace(shape(1), host_ports=(("0.0.0.0", "TCP", 8000),))
    assert admitted(case(nodes(racks=2, per_rack=2), [role("a", minimum=4, wants=lonely)])) == (4,)
    refused(case(nodes(racks=2, per_rack=2), [role("a", minimum=5, wants=lonely)]))


def test_a_role_outside_the_gang_never_stands_in_its_way() -> None:
    roles = [role("router", minimum=0, desired=2), role("prefill", minimum=2), role("decode", minimum=1)]
    assert admitted(case(nodes(per_rack=3), roles)) == (0, 2, 1)
    assert admitted(case(nodes(per_rack=4), roles)) == (1, 2, 1)


def test_sets_come_all_or_none() -> None:
    roles = [role(name, minimum=1, desired=2, together={1: "new"}) for name in ("prefill", "decode")]
    assert admitted(case(nodes(per_rack=3), roles)) == (1, 1)
    assert admitted(case(nodes(per_rack=4), roles)) == (2, 2)


def test_a_gang_whose_pods_do_not_all_exist() -> None:
    short = replace(role("a", minimum=1), minimum=2, desired=2, missing="3 of 4 pods exist")
    assert "3 of 4 pods exist" in refused(case(nodes(per_rack=4), [short])).message
