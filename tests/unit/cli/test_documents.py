"""Reading manifests: the forms that kubectl takes, and what YAML must not make of them."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from covey.api import core
from covey.manifests.documents import read_documents, read_pasted
from covey.manifests.sources import InputError

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


def names(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "in"
    file.write_text(text)
    return [document.name for document in read_documents([str(file)])]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(POD),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [POD]}),
        json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "p"}}]}),
        json.dumps([POD]),
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n",
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\n",
        "\ufeffapiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
        "{apiVersion: v1, kind: Pod, metadata: {name: p}}",
    ],
)
def test_one_pod_in_every_form(tmp_path: Path, text: str) -> None:
    assert names(tmp_path, text) == ["p"]


def test_json_values_one_after_the_other(tmp_path: Path) -> None:
    assert names(tmp_path, f"{json.dumps(POD)}\n{json.dumps(POD)}\n") == ["p", "p"]


def test_lists_may_hold_lists_and_be_empty(tmp_path: Path) -> None:
    empty = {"apiVersion": "v1", "kind": "PodList", "items": None}
    inner = {"apiVersion": "v1", "kind": "List", "items": [POD, empty]}
    assert names(tmp_path, json.dumps({"apiVersion": "v1", "kind": "List", "items": [inner, POD]})) == ["p", "p"]


def test_the_place_counts_documents_and_items(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(
        "apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: B}]\n"
    )
    places = [(d.kind, d.place.document, d.place.field) for d in read_documents([str(file)])]
    assert places == [("A", 1, ""), ("B", 3, "items[0]")]


def test_times_stay_strings_and_anchors_work(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: &m {name: p, creationTimestamp: 2026-01-01T00:00:00Z}\nspec: {x: *m}\n"
    )
    (document,) = read_documents([str(file)])
    assert document.read(core.Pod).metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_null_means_absent(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: null, ownerReferences: null}\nspec: {containers: null}\n"
    )
    (document,) = read_documents([str(file)])
    assert document.read(core.Pod).spec.containers == ()


def test_a_wrong_type_is_told_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: [1]}]}\n")
    (document,) = read_documents([str(file)])
    with pytest.raises(InputError, match=r"document 1, spec.containers\[0\].name: expected a string, got a list"):
        document.read(core.Pod)


def test_anchors_that_strangers_paste_are_taken_as_far_as_they_stay_small() -> None:
    text = "apiVersion: v1\nkind: A\nmetadata: &m {name: a}\nspec: {one: *m, two: {<<: *m, in: *m}}\n"
    (document,) = read_pasted(text, "manifest")
    assert document.body["spec"] == {"one": {"name": "a"}, "two": {"name": "a", "in": {"name": "a"}}}
    steps = list(pairwise(f"x{number}" for number in range(100)))
    for value in ("[*{0}, *{0}]", "{{l: *{0}, r: {{<<: *{0}, o: *{0}}}}}"):
        bomb = "x0: &x0 {a: b}\n" + "".join(f"{b}: &{b} {value.format(a)}\n" for a, b in steps[:30])
        with pytest.raises(InputError, match="manifest, document 1: has more than 100,000 keys and values"):
            read_pasted(bomb, "manifest")
    ladder = "x0: &x0 [x]\n" + "".join(f"{b}: &{b} [*{a}]\n" for a, b in steps)
    with pytest.raises(InputError, match="is nested more than 64 deep"):
        read_pasted(ladder, "manifest")
    for itself in ("a: &a [*a]\n", "a: &a {<<: *a}\n"):
        with pytest.raises(InputError, match="refers to the anchor a, which does not end before"):
            read_pasted(itself, "manifest")


def test_what_strangers_paste_may_not_be_nested_without_end() -> None:
    for deep in ("[" * 100_000, "{a: " * 5000, "- " * 1000, "a:\n" + "".join(" " * n + "b:\n" for n in range(1, 200))):
        with pytest.raises(InputError):
            read_pasted(deep, "manifest")
    with pytest.raises(InputError, match="holds no document"):
        read_pasted("---\n# nothing\n", "manifest")
    (document,) = read_pasted('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}', "manifest")
    assert document.name == "n"
    kinds = [each.kind for each in read_pasted("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\n", "manifest")]
    assert kinds == ["A", "B"]
