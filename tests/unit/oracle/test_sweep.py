"""A thousand random cases, the same each time: the planner against the solver and the checker."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor

import pytest
from hypothesis import given

from oracle import instances
from oracle.case import Case
from oracle.judge import Judgement, judge, judge_seeds

#: Size, number of cases, cases in a chunk.
SWEEP = {
    "small": (instances.SMALL, 900, 150),
    "medium": (instances.MEDIUM, 250, 50),
    "large": (instances.LARGE, 30, 15),
}
#: The cases up to which `make test` goes; `make test-slow` has the others.
QUICK = {"small": 150, "medium": 50, "large": 0}
#: The share of cases on which the solver may give up.
UNDECIDED = {"small": 0.02, "medium": 0.02, "large": 0.2}
CHUNKS = [
    pytest.param(name, start, marks=[pytest.mark.slow] if start >= QUICK[name] else [])
    for name, (_, count, step) in SWEEP.items()
    for start in range(0, count, step)
]


Chunk = tuple[str, int]
Judged = dict[int, Judgement]


@pytest.fixture(scope="module")
def judged(request: pytest.FixtureRequest) -> Iterator[Callable[[str, int], Judged]]:
    """The judgements of a chunk, by seed; all cores judge but one, which the tests on a control plane have."""
    wanted = dict.fromkeys(
        (item.callspec.params["name"], item.callspec.params["start"])
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function) and hasattr(item, "callspec")
    )

    def submit(chunk: Chunk) -> Future[Judged]:
        size, _, step = SWEEP[chunk[0]]
        return pool.submit(judge_seeds, size, range(chunk[1], chunk[1] + step))

    workers = max(1, (os.cpu_count() or 1) - 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = {chunk: submit(chunk) for chunk in wanted}
        yield lambda name, start: futures[name, start].result()
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("name", "start"), CHUNKS)
def test_the_planner_never_does_worse_than_the_solver(
    judged: Callable[[str, int], Judged], name: str, start: int
) -> None:
    found = judged(name, start)
    wrong = [f"{name} {seed}: {text}" for seed, one in found.items() for text in one.complaints]
    assert not wrong, "\n".join(wrong)
    # The comparison means something: both answers occur, and the solver is sure of nearly all.
    seen = Counter(one.feasible for one in found.values())
    undecided = seen[None] + sum(one.feasible is True and not one.proven for one in found.values())
    assert min(seen[True], seen[False]) >= len(found) / 10, seen
    assert undecided <= len(found) * UNDECIDED[name]


@pytest.mark.parametrize(("name", "start"), CHUNKS)
def test_every_refusal_says_why_and_proves_it(judged: Callable[[str, int], Judged], name: str, start: int) -> None:
    untold = [f"{name} {seed}: {text}" for seed, one in judged(name, start).items() for text in one.untold]
    assert not untold, "\n".join(untold)


@given(case=instances.cases(instances.TINY))
def test_tiny_cases(case: Case) -> None:
    found = judge(case)
    assert not found.complaints + found.untold


@given(case=instances.cases(instances.SMALL))
def test_small_cases(case: Case) -> None:
    found = judge(case)
    assert not found.complaints + found.untold
