"""Random clusters: moves that free a rack or start a gang, against the laws of moves and against the solver."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from covey.admission.defrag import Consolidation, MovePlan
from covey.placement.model import Plan, Verdict
from covey.placement.planner import plan_minimum
from oracle.build import TOPOLOGY
from oracle.moves import MoveCase, draw, fewest

pytestmark = pytest.mark.slow  # hundreds of cases are solved

CASES = 100


@cache
def found(seed: int, start: bool) -> tuple[MoveCase, MovePlan]:  # noqa: FBT001 - a parameter of tests
    case = draw(seed)
    asker = Consolidation(case.inventory(), case.mobiles())
    return case, asker.start(case.gang()) if start else asker.free(TOPOLOGY.name, "rack")


@pytest.mark.parametrize("start", [False, True])
def test_each_prefix_is_a_state_that_may_stay(start: bool) -> None:  # noqa: FBT001 - a parameter of tests
    for seed in range(CASES):
        case, answer = found(seed, start)
        inventory = case.inventory()
        keys = {(unit.candidate.unit.key, r.replica): r for unit in case.mobiles() for r in unit.gang.roles[0].replicas}
        for move in answer.moves:
            old = keys[move.unit, move.replica]
            assert tuple(pod.node for pod in old.pods) == move.source, f"{seed}: moved twice, or from elsewhere"
            # K1, K3: all of the successor has its room while the old one is there, so nothing is ever fewer.
            for pod, target in zip(old.pods, move.target, strict=True):
                assert inventory.fits(pod.shape, target) is None, f"{seed}: K1, {move}"
                inventory.hold(f"new-{pod.key}", target, pod.shape)
            for pod in old.pods:
                inventory.release(pod.key)
        if answer.verdict is not Verdict.ADMITTED:
            assert not answer.moves
        elif start:
            assert isinstance(plan_minimum(case.gang(), inventory), Plan), f"{seed}: K2"
        else:
            assert all(inventory.trees[TOPOLOGY.name].by_path[path].broken == 0 for path in answer.paths), f"{seed}: K2"
            # K5: no domain that was free is used.
            before = {d.path for d in case.inventory().trees[TOPOLOGY.name].at(1) if not d.broken}
            assert before <= set(answer.paths), f"{seed}: K5"


def test_a_question_leaves_the_inventory_as_it_was() -> None:
    for seed in range(30):
        case = draw(seed)
        inventory = case.inventory()
        tree = inventory.trees[TOPOLOGY.name]
        before = {path: (domain.version, dict(domain.free)) for path, domain in tree.by_path.items()}
        Consolidation(inventory, case.mobiles()).free(TOPOLOGY.name, "rack")
        Consolidation(inventory, case.mobiles()).start(case.gang())
        assert {path: (domain.version, dict(domain.free)) for path, domain in tree.by_path.items()} == before


@pytest.mark.parametrize("start", [False, True])
def test_it_hardly_ever_moves_more_than_the_solver_needs(start: bool) -> None:  # noqa: FBT001 - a parameter of tests
    counts: Counter[str] = Counter()
    for seed in range(CASES):
        case, answer = found(seed, start)
        best = fewest(case, start=start)
        if isinstance(best, str):
            counts[best] += 1
            continue
        if answer.verdict is Verdict.INFEASIBLE:
            assert best is None, f"{seed}: the solver needs {best} moves"
        if answer.verdict is not Verdict.ADMITTED:
            counts["none" if best is None else "missed"] += 1
            continue
        assert best is not None, f"{seed}: {answer} where nothing does"
        assert len(answer.moves) >= best, f"{seed}: fewer than the solver"
        assert not answer.least or len(answer.moves) == best, f"{seed}: not the least"
        counts["zero" if not best else "equal" if len(answer.moves) == best else "more"] += 1
        counts["proven"] += answer.least and best > 0
    print(dict(counts))
    assert counts["equal"] >= 0.85 * (counts["equal"] + counts["more"] + counts["missed"]), counts
    assert counts["unknown"] <= CASES / 20, counts
    assert min(counts["equal"], counts["zero"]) >= 10, counts
