"""The solver itself: known answers, and all layouts tried one by one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given

from covey.placement.model import Proximity, Spread
from oracle import brute, cpsat, facts, instances
from oracle.build import RACKS, case, nodes, role
from oracle.case import Case

pytestmark = pytest.mark.slow  # hundreds of cases are solved

PODS_FOR_BRUTE_FORCE = 5


def agree(found: Case) -> None:
    best = brute.best(found)
    assert cpsat.solve(found, surplus=False).feasible == brute.feasible(found)
    assert cpsat.solve(found) == cpsat.Best(feasible=best is not None, score=best)


@pytest.mark.parametrize("chunk", range(4))
def test_agrees_with_brute_force(chunk: int) -> None:
    tried = feasible = 0
    for seed in range(100 * chunk, 100 * chunk + 100):
        found = instances.seeded(seed, instances.TINY)
        if len(facts.pods_of(found.gang.roles)) <= PODS_FOR_BRUTE_FORCE:
            agree(found)
            tried += 1
            feasible += cpsat.solve(found).feasible is True
    assert tried > 40
    assert 0.2 < feasible / tried < 0.8  # neither verdict may be rare


@given(found=instances.cases(instances.TINY))
def test_agrees_with_brute_force_when_explored(found: Case) -> None:
    assume(len(facts.pods_of(found.gang.roles)) <= PODS_FOR_BRUTE_FORCE)
    agree(found)


def admitted(found: Case) -> tuple[int, ...] | None:
    score = cpsat.solve(found).score
    return score.admitted if score else None


def test_whole_racks_of_groups() -> None:
    groups = [role(name, size=size, required="rack") for name, size in zip("abcde", (2, 3, 2, 3, 2), strict=True)]
    assert cpsat.solve(case(nodes(racks=2, per_rack=6), groups)).feasible
    assert cpsat.solve(case(nodes(racks=2, per_rack=6)[:-1], groups)).feasible is False


def test_surplus_is_leximin() -> None:
    roles = [role("a", minimum=1, desired=4), role("b", minimum=1, desired=2)]
    assert [admitted(case(nodes(racks=1, per_rack=room), roles)) for room in range(1, 8)] == [
        None,
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 2),
        (4, 2),
        (4, 2),
    ]


def test_leximin_counts_ratios_not_replicas() -> None:
    score = cpsat.solve(case(nodes(racks=1, per_rack=5), [role("a", desired=8), role("b", desired=2)])).score
    assert score is not None
    assert (score.admitted, score.fill) == ((4, 1), (Fraction(1, 2), Fraction(1, 2)))


def test_ties_go_in_declared_order() -> None:
    assert admitted(case(nodes(racks=1, per_rack=3), [role("a", desired=2), role("b", desired=2)])) == (2, 1)


def test_a_replica_never_straddles_its_level() -> None:
    four = role("a", size=4, required="rack")
    assert cpsat.solve(case(nodes(racks=2, per_rack=3), [four])).feasible is False
    assert cpsat.solve(case(nodes(racks=1, per_rack=4), [four])).feasible


def test_equal_rack_names_under_two_blocks_are_two_racks() -> None:
    two_blocks = nodes(blocks=2, racks=1, per_rack=2)
    assert {node.metadata.labels[RACKS] for node in two_blocks if node.metadata.labels} == {"r0"}
    assert cpsat.solve(case(two_blocks, [role("a", size=3, required="rack")])).feasible is False


def test_the_preferred_level_comes_before_surplus() -> None:
    floor = [*nodes(blocks=1, racks=2, per_rack=2), *nodes(blocks=2, racks=4, per_rack=1)[4:]]
    wants = [role("a", minimum=2, desired=4)]
    near = cpsat.solve(case(floor, wants, required="block", preferred="rack")).score
    assert near is not None
    assert near.preferred == (1, 0)
    assert near.admitted == (4,)
    spread = [*nodes(blocks=1, racks=3, per_rack=1), *nodes(blocks=2, racks=1, per_rack=2)[2:]]
    near = cpsat.solve(case(spread, wants, required="block", preferred="rack")).score
    assert near is not None
    assert near.preferred == (1, 0)
    assert near.admitted == (2,)


def test_required_proximity_and_spread() -> None:
    floor = nodes(blocks=2, racks=2, per_rack=2)
    both = [role("a", minimum=2), role("b", minimum=1)]
    near = Proximity(("a", "b"), "rack", required=True)
    assert cpsat.solve(case(floor, both)).feasible
    assert cpsat.solve(case(floor, both, proximity=(near,))).feasible is False
    apart = Spread("block", required=True, max_per_domain=1, occupied={("b0",): 1})
    assert cpsat.solve(case(floor, both, spread=apart)).feasible
    full = Spread("block", required=True, max_per_domain=1, occupied={("b0",): 1, ("b1",): 2})
    assert cpsat.solve(case(floor, both, spread=full)).feasible is False
