"""Random full clusters: what a search for victims takes, against the laws of a claim and against the solver."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from covey.admission.preemption import PLANS, Nobody, Taking, search
from covey.admission.victims import Terms
from covey.model import podstate
from covey.placement.model import Plan, Refusal, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum
from oracle.claims import NOW, ClaimCase, draw, least

#: The cases of `make test`, a chunk of 30; `make test-slow` has the others.
CASES, QUICK, CHUNK = 300, 60, 30
CHUNKS = [pytest.param(start, marks=[pytest.mark.slow] if start >= QUICK else []) for start in range(0, CASES, CHUNK)]


@cache
def found(seed: int, *, with_ordinary: bool = False) -> tuple[ClaimCase, Taking | Nobody]:
    case = draw(seed, with_ordinary=with_ordinary)
    answer = search(
        *(case.gang, case.inventory(), case.candidates, Terms(NOW)), ordinary=case.ordinary, freeing=case.leaving()
    )
    return case, answer


@pytest.mark.parametrize("start", CHUNKS)
def test_the_laws_of_a_claim(start: int) -> None:
    for seed in range(start, start + CHUNK):
        case, answer = found(seed)
        assert answer.plans <= PLANS, f"{seed}: L8"
        if isinstance(answer, Taking):
            _check_laws(seed, case, answer)


def _check_laws(seed: int, case: ClaimCase, answer: Taking) -> None:
    inventory = case.inventory()
    with overlay(inventory) as changes:
        changes.remove(case.leaving())
        assert isinstance(plan_minimum(case.gang, inventory), Refusal), f"{seed}: the minimum fits"
    for without in (None, *answer.steps):
        with overlay(inventory) as changes:
            changes.remove(case.leaving())
            changes.remove(key for step in answer.steps if step is not without for key in step.keys)
            answered = plan_minimum(case.gang, inventory)
            if without is None:
                assert isinstance(answered, Plan), f"{seed}: L1, there is no plan"
            else:
                assert answer.unproven or answered.verdict is Verdict.INFEASIBLE, f"{seed}: L2, {without.text}"
    assert all(step.priority < case.gang.priority for step in answer.steps), f"{seed}: L7"
    gone = {key for step in answer.steps for key in step.keys} | case.leaving()
    assert sum(len(step.keys) for step in answer.steps) == len(gone - case.leaving()), f"{seed}: a pod is named twice"
    touched = {step.unit for step in answer.steps}
    for unit in (each.unit for each in case.candidates if each.unit.key in touched):
        # The unit keeps its minimum, or nothing that is not on its way out already.
        left = [pod.metadata.uid for pod in unit.pods() if pod.metadata.uid not in gone and podstate.occupies_node(pod)]
        minimum = unit.minimum_met(lambda pod: pod.metadata.uid not in gone and podstate.occupies_node(pod))
        assert minimum or not left, f"{seed}: L3, {unit.key.name}"


def test_it_is_hardly_ever_dearer_than_the_solver_knows() -> None:
    _compare(range(QUICK))


@pytest.mark.slow
def test_it_is_hardly_ever_dearer_than_the_solver_knows_in_all_other_cases() -> None:
    _compare(range(QUICK, CASES))


def test_it_is_hardly_ever_dearer_with_ordinary_pods() -> None:
    _compare(range(QUICK), with_ordinary=True)
    for seed in range(QUICK):
        case, answer = found(seed, with_ordinary=True)
        if isinstance(answer, Taking):
            _check_laws(seed, case, answer)


@pytest.mark.slow
def test_it_is_hardly_ever_dearer_with_ordinary_pods_in_all_other_cases() -> None:
    _compare(range(QUICK, CASES), with_ordinary=True)


def _compare(seeds: range, *, with_ordinary: bool = False) -> None:
    counts: Counter[str] = Counter()
    for seed in seeds:
        case, answer = found(seed, with_ordinary=with_ordinary)
        best = least(case)
        assert best != "unknown", f"{seed}: the solver does not know"
        if not isinstance(best, tuple):
            expected = Verdict.ADMITTED if best == "fits" else Verdict.INFEASIBLE
            assert not isinstance(answer, Taking), f"{seed}: {answer} where the solver says {best}"
            assert answer.verdict is expected, f"{seed}: {answer} where the solver says {best}"
            counts[answer.verdict.value] += 1
            continue
        assert isinstance(answer, Taking), f"{seed}: {answer} where the solver knows {best}"
        cost = tuple(answer.cost)
        assert cost[0] == best[0], f"{seed}: priority {cost[0]}, not {best[0]}"
        assert cost[1:3] <= (best[1], best[2] + 1), f"{seed}: {cost}, not {best}"
        counts["equal" if cost == best else "dearer"] += 1
    print(dict(counts))
    assert counts["equal"] >= 0.95 * (counts["equal"] + counts["dearer"]), counts
    assert min(counts["equal"], counts["Admitted"], counts["Infeasible"]) >= len(seeds) / 10, counts
