"""Many gangs in one required level: minimums before surplus, no false refusal, and the fullest surplus beside the others."""

from __future__ import annotations

from collections import Counter

import pytest

from oracle.fleets import fleet, judge_fleet

#: Seeds, those of a chunk, and up to where `make test` goes.
SEEDS = 400
CHUNK = 40
QUICK = 40


@pytest.mark.parametrize(
    "start",
    [pytest.param(start, marks=[pytest.mark.slow] if start >= QUICK else []) for start in range(0, SEEDS, CHUNK)],
)
def test_a_round_of_gangs_when_each_is_required_in_one_domain_is_right_for_each(start: int) -> None:
    kinds, wrong = Counter[str](), []
    for seed in range(start, start + CHUNK):
        found, complaints = judge_fleet(fleet(seed))
        kinds += found
        wrong += [f"fleet {seed}: {text}" for text in complaints]
    assert not wrong, "\n".join(wrong)
    assert min(kinds[kind] for kind in ("whole", "minimum", "refused")) >= CHUNK / 10, kinds
