"""Which replicas come first where that is free: few choices out of very many, and none twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders.requests import make_gang, make_role, make_shape
from covey.placement.model import Gang, Refusal, Verdict
from covey.placement.question.free import CHOICES, choose_plan


def gang_of(kinds: list[int], wanted: int) -> Gang:
    """Single-pod replicas that ask for so many GPUs each, of which any ``wanted`` will do."""
    role = make_role("w", len(kinds), wanted)
    replicas = tuple(
        replace(replica, pods=tuple(replace(pod, shape=make_shape(gpus)) for pod in replica.pods))
        for replica, gpus in zip(role.replicas, kinds, strict=True)
    )
    return make_gang(replace(role, replicas=replicas, free=True))


def asked(gang: Gang) -> tuple[list[frozenset[int]], Verdict]:
    """The choices that were planned when none of them fits, and the verdict."""
    found: list[frozenset[int]] = []

    def refuse(choice: Gang, _told: bool) -> Refusal:  # noqa: FBT001 - the signature of a planner
        found.append(choice.roles[0].first)
        return Refusal(Verdict.INFEASIBLE, ())

    return found, choose_plan(gang, refuse).verdict


@pytest.mark.parametrize(
    ("kinds", "wanted"), [([1] * 200 + [2] * 200, 200), (list(range(1, 1501)), 700), (list(range(1, 1501)), 1499)]
)
def test_choices_are_few_however_many_there_are(kinds: list[int], wanted: int) -> None:
    found, verdict = asked(gang_of(kinds, wanted))
    assert (len(found), verdict) == (CHOICES, Verdict.UNKNOWN)
    assert all(len(choice) == wanted for choice in found)
    looks = [tuple(sorted(kinds[number] for number in choice)) for choice in found]
    assert len(set(looks)) == CHOICES


def test_the_first_choice_is_the_lowest_numbers() -> None:
    found, verdict = asked(gang_of([1, 2, 1, 2], 2))
    assert found == [frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 3})]
    assert verdict is Verdict.INFEASIBLE
