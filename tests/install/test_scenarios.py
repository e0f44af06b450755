"""``docs/reference/scenarios.md``: every scenario of the others has a row, and every test that is named there exists."""

from __future__ import annotations

import re
from functools import cache

import pytest

from install.test_rules import ROOT

DOCUMENT = (ROOT / "docs/reference/scenarios.md").read_text()
_NAMED = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)(?:\[(?P<case>[^\]]+)\])?`")
_ROW = re.compile(r"^\| (?P<what>[^|]+) \|(?P<rest>.*)\|$", re.MULTILINE)
_TITLES = {"scenario", "---"}

#: As they are numbered there; RU-1 to RU-6 are not in its tree.
GROVE = [
    f"{family}-{number}"
    for family, first, last in (
        ("GS", 1, 12),
        ("GT", 1, 6),
        ("RU", 7, 21),
        ("OD", 1, 9),
        ("SO", 1, 4),
        ("TAS", 1, 23),
    )
    for number in range(first, last + 1)
]
NAMED = sorted({match.group("file", "name", "case") for match in _NAMED.finditer(DOCUMENT)}, key=str)


def rows() -> dict[str, str]:
    """The last cell of every row, by the first."""
    found = [(row["what"].strip(), row["rest"].split("|")[-1].strip()) for row in _ROW.finditer(DOCUMENT)]
    kept = [(what, told) for what, told in found if what not in _TITLES]
    assert len({what for what, _ in kept}) == len(kept), "one stands there twice"
    return dict(kept)


@cache
def text(file: str) -> str:
    return (ROOT / "tests" / file).read_text()


def test_what_is_named_exists(subtests: pytest.Subtests) -> None:
    for file, name, case in NAMED:
        with subtests.test(f"{file}::{name}"):
            assert re.search(rf"^def {name}\(", text(file), re.MULTILINE), f"{file} has no {name}"
            assert case is None or f'"{case}"' in text(file), f"{file} has no case {case}"


def test_every_scenario_of_grove_has_a_row() -> None:
    assert [what for what in rows() if re.fullmatch(r"[A-Z]+-\d+", what)] == GROVE


def test_every_row_has_a_test_or_says_why_not() -> None:
    for what, told in rows().items():
        assert _NAMED.search(told) or len(told.split()) > 1, what


def test_every_case_of_the_replays_is_named() -> None:
    """A case that is written and not named would be forgotten."""
    for file in ("stories/test_grove.py", "stories/test_rollout.py"):
        cases = set(re.findall(r'"((?:GS|SO|RU)-\d+)"', text(file)))
        assert cases == {case for named, _, case in NAMED if named == file and case}
