"""YAML as kubectl reads it: what kubectl 1.37 made of each text, see ``tests/cluster/test_kubectl_yaml.py``."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from covey.api.yaml_dialect import dump, load

READ: dict[str, Any] = {
    "y": True,
    "NO": False,
    "tRue": "tRue",
    "~": None,
    "08": 8,
    "010": 8,
    "0o17": 15,
    "-0x1F": -31,
    "0b-1": -1,
    "0b2": "0b2",
    "1_000": 1000,
    "_1": "_1",
    "1e3": 1000,
    "1234e56": 1.234e59,
    "1e400": "1e400",
    "1.0": 1,
    ".5_0": 0.5,
    ".5_": ".5_",
    "1e": "1e",
    "9223372036854775807": 2**63 - 1,
    "9223372036854775808": 2.0**63,
    "0xFFFFFFFFFFFFFFFFF": "0xFFFFFFFFFFFFFFFFF",
    "1:3": "1:3",
    "190:20:30.15": "190:20:30.15",
    "2001-12-14t21:59:43.10-05:00": "2001-12-14t21:59:43.10-05:00",
    "=": "=",
    "<<": "<<",
    "inf": "inf",
    "'08'": "08",
    "!!str 08": "08",
    "!!int '5'": 5,
    "!!float 5": 5,
}
KEYS = {"y": "true", "08": "8", "1.50": "1.5", "1e6": "1e+06", "1e-7": "1e-07", "1234e56": ".inf", "1:3": "1:3"}


def read(text: str) -> Any:
    (document,) = load(text)
    return document


@pytest.mark.parametrize(("text", "value"), READ.items())
def test_a_scalar_is_what_kubectl_reads(text: str, value: Any) -> None:
    (found,) = read(f"- {text}\n")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("text", "key"), KEYS.items())
def test_a_key_is_a_string_as_in_json(text: str, key: str) -> None:
    assert read(f"{text}: v\n") == {key: "v"}


@pytest.mark.parametrize(
    "text",
    [
        *("- .inf", "- .nan", "~: v", "9223372036854775808: v", "[a]: v", "<<: 5", "- !!int 5.5", "- !!binary aGk="),
        # kubectl keeps the last of them, and its strict validation refuses them.
        *("a: 1\na: 2", "y: 1\n'true': 2", "1: a\n0x1: b"),
    ],
)
def test_what_json_does_not_have_and_keys_that_come_twice_are_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read(text)


def test_what_is_merged_in_counts_where_it_stands() -> None:
    assert read("a: 1\n<<: {a: 2, b: 3}\n") == {"a": 2, "b": 3}
    assert read("<<: [{a: 1, b: 1}, {b: 2, c: 2}]\nc: 3\n") == {"a": 1, "b": 1, "c": 3}


@given(st.lists(st.one_of(st.sampled_from([*READ, *KEYS]), st.text("y0189oxbB_.:eE+-infNa~", max_size=6), st.text())))
def test_what_is_printed_is_read_as_it_was(texts: list[str]) -> None:
    value = {"list": texts, "keys": dict.fromkeys(texts, "v")}
    assert read(dump([value])) == value
    # By others, too.
    assert yaml.safe_load(dump([value])) == value


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_are_read_as_they_were_printed(number: float) -> None:
    (found,) = read(dump([[number]]))
    assert math.isclose(found, number, rel_tol=0, abs_tol=0)
