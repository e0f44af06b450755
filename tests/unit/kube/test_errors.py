import json

import pytest

from covey.kube import errors
from covey.kube.errors import ApiError, api_error


def status(reason: str, message: str = "m", **details: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": 1, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", ApiError),
        (503, "ServiceUnavailable", ApiError),
    ],
)
def test_classes(code: int, reason: str, expected: type[ApiError]) -> None:
    error = api_error(code, status(reason, "what is wrong", name="x"))
    assert type(error) is expected
    assert (error.code, error.reason, error.message) == (code, reason, "what is wrong")
    assert error.details == {"name": "x"}
    assert "what is wrong" in str(error)


def test_a_conflict_is_not_a_name_taken() -> None:
    assert not issubclass(errors.AlreadyExists, errors.Conflict)


def test_a_patch_with_the_uid_of_another_incarnation_is_a_conflict() -> None:
    cause = {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}
    assert type(api_error(422, status("Invalid", causes=[cause]))) is errors.Conflict
    assert type(api_error(422, status("Invalid", causes=[{**cause, "field": "spec"}, "?"]))) is errors.Invalid


def test_a_page_of_a_proxy_is_the_message() -> None:
    error = api_error(502, b"<html>Bad Gateway</html>")
    assert (error.code, error.reason, error.message) == (502, "", "<html>Bad Gateway</html>")


def test_json_that_is_no_status() -> None:
    assert api_error(404, b'"page not found"').message == '"page not found"'


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [(None, {}, None), (3.0, {}, 3.0), (None, {"retryAfterSeconds": 2}, 2.0), (3.0, {"retryAfterSeconds": 2}, 3.0)],
)
def test_retry_after(header: float | None, details: dict[str, int], expected: float | None) -> None:
    assert api_error(429, status("TooManyRequests", "m", **details), header).retry_after == expected


def test_an_event_of_a_watch_has_its_code_in_the_status() -> None:
    assert isinstance(api_error(0, b'{"kind":"Status","code":410,"reason":"Expired"}'), errors.Gone)


def test_every_class_is_in_the_tree() -> None:
    tree = errors.__doc__ or ""
    names = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(names) > 10
    assert [name for name in names if name not in tree] == []


def test_covey_s_own() -> None:
    assert errors.Retryable(2.5).delay == 2.5
