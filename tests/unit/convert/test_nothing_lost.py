"""Whatever a document holds is in the result, or is remarked on: for every kind, at every depth."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.convert import ConversionError, Converted, Levels, convert
from covey.manifests.documents import Document
from covey.manifests.errors import InputError, ManifestPath
from covey.manifests.inference import read_inference
from foreign_workloads import EVERY, Object

UNKNOWN = "fieldOfANewerRelease"
#: Objects whose keys are names, which people choose.
BY_NAME = ("labels", "annotations", "services", "minRoleReplicas", "limits", "requests")
LEVELS = Levels({"example.com/rack": "rack"})

Step = str | int


def places(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """Paths of everything in a document."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*path, key))


def at(document: Object, path: tuple[Step, ...]) -> Any:
    found: Any = document
    for step in path:
        found = found[step]
    return found


def held(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        return text in value or any(held(inner, text) for inner in value.values())
    if isinstance(value, list):
        return any(held(inner, text) for inner in value)
    return False


def attempt(document: Object) -> Converted | ConversionError:
    try:
        return convert(document, LEVELS)
    except ConversionError as refused:
        return refused


@st.composite
def changed(draw: st.DrawFn) -> tuple[Object, tuple[Step, ...]]:
    """A document with an unknown field somewhere, and where."""
    document = EVERY[draw(st.sampled_from(sorted(EVERY)))]()
    path = draw(st.sampled_from([each for each in places(document) if isinstance(at(document, each), dict)]))
    value = draw(st.sampled_from(["a text", 7, False, {}, [], {"inner": [1]}, [{"a": "b"}]]))
    at(document, path)[UNKNOWN] = value
    return document, path


@given(changed())
def test_an_unknown_field_is_carried_over_or_remarked_on_wherever_it_stands(
    case: tuple[Object, tuple[Step, ...]],
) -> None:
    document, path = case
    found = attempt(document)
    if isinstance(found, ConversionError):
        assert UNKNOWN in str(found)
        assert path[-1] in BY_NAME, "whose values have one type"
    elif not held(found.body, UNKNOWN):
        assert any(UNKNOWN in remark.path for remark in found.remarks), path


@given(st.sampled_from(sorted(EVERY)))
def test_a_document_is_left_as_it_was(name: str) -> None:
    document = EVERY[name]()
    before = copy.deepcopy(document)
    convert(document, LEVELS)
    assert document == before


@st.composite
def broken(draw: st.DrawFn) -> Object:
    """A document in which something somewhere is of another type."""
    document = EVERY[draw(st.sampled_from(sorted(EVERY)))]()
    path = draw(st.sampled_from([each for each in places(document) if each not in {(), ("kind",), ("apiVersion",)}]))
    at(document, path[:-1])[path[-1]] = draw(
        st.sampled_from(["a text", -1, 3, True, 1.5, None, [], [None], ["x"], {}, {"name": 3}, {"a": None}])
    )
    return document


@given(broken())
def test_what_is_malformed_is_said_in_a_sentence_or_passed_on(document: Object) -> None:
    found = attempt(document)
    if isinstance(found, ConversionError):
        assert found.what
        assert found.instead
        return
    place = ManifestPath("in.yaml", 1)
    with contextlib.suppress(InputError):  # a malformed pod template is passed on, and refused with the rest
        read_inference(Document(place, found.body), "default")


@pytest.mark.parametrize("name", EVERY)
def test_what_the_server_keeps_is_no_matter(name: str) -> None:
    document = EVERY[name]()
    plain = convert(document, LEVELS)
    document["status"] = {"replicas": 3, "conditions": []}
    document["metadata"] |= {
        "uid": "u-1",
        "resourceVersion": "7",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "finalizers": ["grove.io/podcliqueset.grove.io"],
    }
    document["metadata"].setdefault("annotations", {})["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
    assert convert(document, LEVELS) == plain
