"""JSON is taken apart without a decoder, however deep it is."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from covey.kube.json_text import split_object

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=6), st.sampled_from([None, 1, "  "]))
def test_members_are_found_without_going_down(content: dict[str, Any], indent: Any) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False).encode()
    assert {name: json.loads(value) for name, value in split_object(text).items()} == content


def test_members_are_found_across_blocks() -> None:
    content = {f"key-{number}": [{}, '}"]{,\\' * 50] * 100 for number in range(20)}
    text = json.dumps(content).encode()
    assert len(text) > 3 * (1 << 18)
    assert {name: json.loads(value) for name, value in split_object(text).items()} == content
