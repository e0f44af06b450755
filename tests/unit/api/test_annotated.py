"""Annotations as anybody may have written them."""

from __future__ import annotations

import pytest

from covey.api.annotations import read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("", None),
        ("{", None),
        ("[" * 100_000, None),
        ("9" * 10_000, None),
        ('{"a": [1]}', {"a": [1]}),
        ("0", 0),
    ],
    ids=["none", "empty", "no JSON", "too deep", "too long a number", "an object", "a number"],
)
def test_what_cannot_be_read_is_nothing(text: str | None, value: object) -> None:
    assert read_json(text) == value
