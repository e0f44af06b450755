"""What pods are told of those before them, and what strangers may have written there."""

from __future__ import annotations

import pytest

from covey.compile.pods import NO_PAST, Past


def test_what_is_told_is_read() -> None:
    past = Past(7, 2, 1_767_225_600.0, 1)
    assert Past.read(past.annotations()) == past


@pytest.mark.parametrize("text", ["", "-1", "1e9", "many", "9" * 5000])
def test_what_is_no_count_is_none(text: str) -> None:
    assert Past.read({"covey.dev/restarts": text}) == NO_PAST
