"""The picture of the house has the layers that the linter checks: none more, none less, in the same order."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}
CONTRACTS = {
    each["name"]: each
    for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
PICTURE = ET.parse(ROOT / "docs/assets/house.svg").getroot()

#: Groups of the picture, the contracts that they draw, and what modules are called there.
DRAWN = [
    ("layers", "Layers", "covey."),
    ("operator", "operator: each room stands on those below it", ""),
    ("placement", "placement: each room stands on those below it", ""),
]


def boxes(group: str) -> Iterator[tuple[float, str, str]]:
    """Height, name and class of each box of a group: its name is the first text that stands within it."""
    found = PICTURE.find(f"svg:g[@id='{group}']", NAMESPACE)
    assert found is not None
    texts = [
        (float(each.get("x", "")), float(each.get("y", "")), each.text or "")
        for each in found.iterfind("svg:text", NAMESPACE)
    ]
    for box in found.iterfind("svg:rect", NAMESPACE):
        x, y, width, height = (float(box.get(key, "")) for key in ("x", "y", "width", "height"))
        name = next(text for left, base, text in texts if x < left < x + width and y < base < y + height)
        yield y, name, box.get("class", "")


@pytest.mark.parametrize(("group", "contract", "prefix"), DRAWN)
def test_it_has_the_layers_of_the_contract(group: str, contract: str, prefix: str) -> None:
    rows: dict[float, set[str]] = {}
    for height, name, _ in boxes(group):
        rows.setdefault(height, set()).add(prefix + name)
    wanted = [{module.strip() for module in row.split("|")} for row in CONTRACTS[contract]["layers"]]
    assert [rows[height] for height in sorted(rows)] == wanted


@pytest.mark.parametrize(
    ("group", "word", "prefix"),
    [("layers", "compile, convert", "covey."), ("operator", "pure, too", "covey.operator.")],
)
def test_it_says_what_is_pure(group: str, word: str, prefix: str) -> None:
    contract: Any = next(each for name, each in CONTRACTS.items() if word in name)
    assert {prefix + name for _, name, kind in boxes(group) if kind == "pure"} == set(contract["source_modules"])


def test_the_planner_is_pure_as_a_whole() -> None:
    assert {kind for _, _, kind in boxes("placement")} == {"pure"}


def test_the_reading_order_leads_to_what_it_names() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    order = text[text.index("Where to begin reading") :].partition("\n\n")[0]
    last = ROOT
    named = re.findall(r"`([\w/.]+)`", order)
    assert len(named) >= 6
    for name in named:
        if name.endswith(".py"):
            last = ROOT / name if "/" in name else last.parent / name
            assert last.is_file(), name
        else:
            assert re.search(rf"def {name}\(", last.read_text()), f"{name} in {last}"


def test_every_file_that_contributors_are_sent_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`((?:operator|tests|dev|docs|helm)/[\w/.-]+)`", text))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
