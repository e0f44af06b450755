"""Times as the API writes them, and as anybody may have written them."""

from __future__ import annotations

import pytest

from covey.api import core


@pytest.mark.parametrize(
    "text", [None, "", "soon", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00", "٢٠٢٦-01-01T00:00:00Z", "9" * 5000]
)
def test_what_is_no_time_is_none(text: str | None) -> None:
    found = core.seconds(text)
    assert found is None or core.rfc3339(found) == "1000-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1_767_225_600.9, "2026-01-01T00:00:00Z"),
        (-1e12, "1000-01-01T00:00:00Z"),
        (1e15, "9999-12-31T23:59:59Z"),
        (float("inf"), "9999-12-31T23:59:59Z"),
    ],
)
def test_every_time_can_be_written(seconds: float, text: str) -> None:
    assert core.rfc3339(seconds) == text


def test_what_is_written_is_read() -> None:
    assert core.seconds(core.rfc3339(1_767_225_600.0)) == 1_767_225_600.0
    assert core.seconds("2026-01-01T01:00:00+01:00") == 1_767_225_600.0
