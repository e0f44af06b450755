"""Many replicas on unlike nodes: verdicts and surplus against the solver, with a full and with a small budget."""

from __future__ import annotations

from collections import Counter

import pytest

from covey.placement.model import Refusal, Verdict
from covey.placement.planner import LIMIT, plan_minimum, plan_surplus
from oracle import cpsat, facts
from oracle.checker import check, score
from oracle.crowds import crowd

SEEDS = range(40)
#: So little work that exact tables settle next to nothing.
LITTLE = LIMIT // 60


@pytest.mark.parametrize("seed", SEEDS)
def test_a_crowd_gets_the_right_verdict_and_the_fullest_surplus(seed: int) -> None:
    case = crowd(seed)
    known = cpsat.solve(case)
    for limit in (LIMIT, LITTLE):
        answer = plan_minimum(case.gang, case.inventory(), limit)
        if isinstance(answer, Refusal):
            assert known.feasible is not True or answer.verdict is Verdict.UNKNOWN
            assert limit == LITTLE or answer.verdict is Verdict.INFEASIBLE
            continue
        assert known.feasible is not False
        assert not check(case, answer, "minimum")
        after = case.after(answer.assignments)
        growth = plan_surplus(after.gang, after.inventory(), limit)
        assert not check(after, growth, "surplus")
        there = cpsat.solve(after).score
        if there is not None and limit == LIMIT:  # more than the solver, where it lets a stuck replica hold up others
            assert score(case, after.after(growth.assignments)).fill >= there.fill


def test_crowds_are_what_no_table_holds() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        case = crowd(seed)
        replicas = [replica for role in case.gang.roles for replica in role.replicas]
        seen["many"] += len(replicas) > 60
        seen["led"] += any(one.pods[0].shape != one.pods[-1].shape for one in replicas)
        seen["torn"] += any(any(pod.node for pod in one.pods) and not one.placed for one in replicas)
        seen["unlike"] += len({tuple(facts.free(case, name).items()) for name in case.node}) > len(case.nodes) * 2 // 3
        seen["three shapes or more"] += len({pod.shape for one in replicas for pod in one.pods}) > 2
    assert min(seen[kind] for kind in ("many", "led", "torn", "unlike", "three shapes or more")) >= 4, seen
