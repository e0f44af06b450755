"""Random trees of groups and crowds of replicas on unlike nodes, against the solver."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from covey.placement.model import Refusal, Verdict
from covey.placement.planner import LIMIT, plan_minimum, plan_surplus
from oracle import cpsat, facts, trees
from oracle.checker import check, score
from oracle.crowds import crowd

pytestmark = pytest.mark.slow  # hundreds of cases are solved

SEEDS = range(20)
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


#: Trees that are judged; ``COVEY_TREES`` asks for that many.
COUNT = int(os.environ.get("COVEY_TREES", "60"))


def test_random_trees_get_the_right_verdict_and_a_plan_that_keeps_every_level() -> None:
    found = {seed: trees.judge(seed) for seed in range(COUNT)}
    wrong = [f"seed {seed}: {text}" for seed, one in found.items() for text in one.complaints]
    assert not wrong, "\n".join(wrong)
    seen = trees.tally(found)
    assert min(seen["Admitted"], seen["Infeasible"], seen["waits"]) >= COUNT / 10, seen
    assert seen["Unknown"] <= COUNT / 20, seen
    assert sum(one.feasible is None for one in found.values()) <= COUNT / 20
