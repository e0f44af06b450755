"""Waiting goes on over what passes by itself, and ends at what does not."""

import json
from collections.abc import Callable

import pytest
from kubernetes.client import ApiException

from localcluster import NotReachedError, eventually


def refused_once(code: int) -> Callable[[], str]:
    answers = iter([ApiException(code, "no"), "yes"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, ApiException):
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
    with pytest.raises(ApiException):
        eventually(refused_once(code))


def test_what_does_not_pass_in_time_is_told() -> None:
    def ask() -> bool:
        raise ApiException(503, "Service Unavailable", body=json.dumps({"message": "shutting down"}))

    with pytest.raises(NotReachedError, match="an answer; 503 shutting down"):
        eventually(ask, timeout=0, describe="an answer")
