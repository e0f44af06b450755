"""JSON as Go writes it: the same meaning, and nothing that Go would write otherwise."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.kube.go_json import go_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_it_says_the_same(content: Any) -> None:
    text = bytes(go_json(content)).decode()
    assert json.loads(text) == content
    assert not set("&<>\u2028\u2029") & set(text)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"b": 1, "a": [True, None]}, r'{"a":[true,null],"b":1}'),
        ("sh -c 'a && b > c < d'", "\"sh -c 'a \\u0026\\u0026 b \\u003e c \\u003c d'\""),
        ('{"x": "{{ y }}"}\t\n', r'"{\"x\": \"{{ y }}\"}\t\n"'),
        ("\u2028\u2029é", '"\\u2028\\u2029é"'),
    ],
)
def test_as_encoding_json_does(content: Any, text: str) -> None:
    assert bytes(go_json(content)).decode() == text
    assert msgspec.json.encode({"data": go_json(content)}).decode() == f'{{"data":{text}}}'
