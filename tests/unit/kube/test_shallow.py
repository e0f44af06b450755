"""Shallow copies say the same as the objects, however deep, large or odd these are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.kube.json_text import split_object
from covey.kube.shallow import shallow_event, shallow_list

DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def write(name: str = "llama", spec: str = "{}", **metadata: str) -> str:
    """An object as the API server writes it; values are JSON."""
    fields = {
        "name": json.dumps(name),
        "namespace": '"ml"',
        "uid": f'"uid-{name}"',
        "resourceVersion": '"7"',
        **metadata,
    }
    written = ",".join(f'"{key}":{value}' for key, value in fields.items())
    return f'{{"apiVersion":"v1","kind":"Thing","metadata":{{{written}}},"spec":{spec},"status":null}}'


def event(item: str, kind: str = "ADDED") -> bytes:
    return f'{{"type":"{kind}","object":{item}}}'.encode()


@given(JSON)
def test_spec_and_status_are_text_that_says_the_same(content: Any) -> None:
    kind, copy = shallow_event(event(write(spec=json.dumps({"content": content}, ensure_ascii=False))))
    decoded = json.loads(copy)
    assert (kind, decoded["apiVersion"], decoded["kind"]) == ("ADDED", "v1", "Thing")
    assert decoded["metadata"] == {"name": "llama", "namespace": "ml", "uid": "uid-llama", "resourceVersion": "7"}
    assert json.loads(decoded["spec"]) == {"content": content}
    assert "status" not in decoded


@given(st.dictionaries(st.text(), JSON, max_size=6), st.sampled_from([None, 1, "  "]))
def test_members_are_found_without_going_down(content: dict[str, Any], indent: Any) -> None:
    text = json.dumps(content, indent=indent, ensure_ascii=False).encode()
    assert {name: json.loads(value) for name, value in split_object(text).items()} == content


def test_members_are_found_across_blocks() -> None:
    content = {f"key-{number}": [{}, '}"]{,\\' * 50] * 100 for number in range(20)}
    text = json.dumps(content).encode()
    assert len(text) > 3 * (1 << 18)
    assert {name: json.loads(value) for name, value in split_object(text).items()} == content


@pytest.mark.parametrize(
    "item",
    [write(spec=DEEP), write(managedFields=f'[{{"fieldsV1":{DEEP}}}]'), write(spec=DEEP, managedFields=f"[{DEEP}]")],
    ids=["spec", "managed fields", "both"],
)
def test_depth_harms_nobody(item: str) -> None:
    _, copy = shallow_event(event(item))
    decoded = json.loads(copy)
    assert decoded["metadata"]["name"] == "llama"
    assert "managedFields" not in decoded["metadata"]
    page = shallow_list(
        f'{{"kind":"ThingList","metadata":{{"resourceVersion":"9"}},"items":[{write("b")},{item}]}}'.encode()
    )
    assert page.found == {("ml", "b"): "uid-b", ("ml", "llama"): "uid-llama"}
    assert [each["metadata"]["name"] for each in json.loads(page.body)["items"]] == ["b", "llama"]
    assert page.metadata.resource_version == json.loads(page.body)["metadata"]["resourceVersion"] == "9"


def test_a_bookmark_has_a_version_and_nulls() -> None:
    kind, copy = shallow_event(
        event('{"metadata":{"resourceVersion":"8","creationTimestamp":null,"name":null}}', "BOOKMARK")
    )
    assert (kind, json.loads(copy)["metadata"]) == ("BOOKMARK", {"resourceVersion": "8"})


def test_an_object_without_metadata_is_counted_and_left_out() -> None:
    page = shallow_list(f'{{"items":[{{"metadata":3}},{write()}],"metadata":{{}}}}'.encode())
    assert page.unreadable == 1
    assert page.found == {("ml", "llama"): "uid-llama"}


def test_a_list_of_nothing_may_be_null() -> None:
    page = shallow_list(b'{"metadata":{"resourceVersion":"9"},"items":null}')
    assert (page.found, page.unreadable, page.metadata.resource_version) == ({}, 0, "9")
    assert json.loads(page.body)["items"] == []
