"""The priority of a gang: a class is an administrator's, a number anybody's."""

from __future__ import annotations

import pytest

from covey.admission.order import priority_of
from covey.api import core


def named(name: str, value: int, *, default: bool = False) -> core.PriorityClass:
    return core.PriorityClass(core.Meta(name=name), value, default)


CLASSES = {each.metadata.name: each for each in (named("online", 1000), named("batch", -5))}
USUAL = {**CLASSES, "usual": named("usual", 10, default=True)}


@pytest.mark.parametrize(
    ("written", "name", "classes", "expected"),
    [
        (2_000_000_000, None, CLASSES, 0),
        (2_000_000_000, "online", CLASSES, 1000),
        (2_000_000_000, None, USUAL, 10),
        (7, "online", CLASSES, 7),
        (-9, None, CLASSES, -9),
        (None, "online", CLASSES, 1000),
        (None, "batch", USUAL, -5),
        (None, None, USUAL, 10),
        (None, None, {}, 0),
        (None, "system-node-critical", {}, 2_000_001_000),
        (None, "gone", CLASSES, None),
        (5, "gone", CLASSES, None),
    ],
)
def test_what_is_written_only_lowers_the_priority_of_the_class(
    written: int | None, name: str | None, classes: dict[str, core.PriorityClass], expected: int | None
) -> None:
    assert priority_of(written, name, classes) == expected
