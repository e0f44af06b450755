"""The solver itself: known answers, and all layouts tried one by one."""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from oracle import brute, cpsat, facts, instances
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
