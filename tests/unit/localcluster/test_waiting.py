"""Waiting goes on over what passes by itself, and ends at what does not."""

from collections.abc import Callable

import pytest

from localcluster import ApiError, NotReachedError, eventually


def refused_once(code: int) -> Callable[[], str]:
    answers = iter([ApiError("GET /api", code, {"message": "no"}), "yes"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    return ask


@pytest.mark.parametrize("code", [404, 409, 429, 500, 503, 504])
def test_a_trouble_that_passes_is_waited_for(code: int) -> None:
    assert eventually(refused_once(code)) == "yes"


def test_a_field_that_is_not_written_yet_is_waited_for() -> None:
    answers = iter([{}, {"status": []}, {"status": ["yes"]}])
    assert eventually(lambda: next(answers)["status"][0]) == "yes"
    with pytest.raises(NotReachedError, match="KeyError\\('status'\\)"):
        eventually(lambda: {}["status"], timeout=0)


@pytest.mark.parametrize("code", [400, 401, 403, 422])
def test_a_refusal_for_good_is_raised_at_once(code: int) -> None:
    with pytest.raises(ApiError):
        eventually(refused_once(code))


def test_what_does_not_pass_in_time_is_told() -> None:
    def ask() -> bool:
        raise ApiError("GET /api", 503, {"message": "shutting down"})

    with pytest.raises(NotReachedError, match="an answer; GET /api: 503 shutting down"):
        eventually(ask, timeout=0, describe="an answer")
