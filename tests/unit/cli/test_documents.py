"""Reading manifests: the forms that kubectl takes, and what YAML must not make of them."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from builders.files import EXAMPLES, cluster, covey, inference, node, plan, role, write
from covey.api import core
from covey.manifests.documents import read_documents, read_pasted
from covey.manifests.errors import InputError
from covey.manifests.sources import files_of

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


def names(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "in"
    file.write_text(text)
    return [document.name for document in read_documents([str(file)])]


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


NODES = EXAMPLES / "offline/nodes.json"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """Three resources in a directory, a fourth one deeper, and files that are not for us."""
    folder = tmp_path / "manifests"
    (folder / "more").mkdir(parents=True)
    for place, name in (("b.yaml", "b"), ("a.yml", "a"), ("c.json", "c"), ("more/d.yaml", "d")):
        write(folder / place, [inference(name, role("w"))])
    (folder / "README.md").write_text("no manifest: [")
    (folder / "b.yaml~").write_text("no manifest: [")
    return folder


def planned(*arguments: object) -> list[str]:
    return [each["name"] for each in plan(*arguments, "--nodes", NODES)["workloads"]]


def test_a_directory_is_its_files_in_order_of_their_names(manifests: Path) -> None:
    assert planned("-f", manifests) == ["a", "b", "c"]
    assert planned("-f", f"{manifests}/") == ["a", "b", "c"]


def test_nodes_pods_and_topologies_too(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    first, *others = cluster(3)
    write(folder / "one.json", [first])
    write(folder / "others.json", others)
    gang = write(tmp_path / "in.yaml", [inference("llm", role("w", 3, 3))])
    assert plan("-f", gang, "--nodes", folder)["workloads"][0]["verdict"] == "Admitted"
    comma = f"{folder}/one.json,{folder}/others.json"
    assert plan("-f", gang, "--nodes", comma)["workloads"][0]["verdict"] == "Admitted"
    answer = plan("-f", gang, "--nodes", folder, "--topology", EXAMPLES, "--pods", folder)
    assert answer["topology"]["name"] == "racks"
    assert "--pods: skipped 3 Node" in answer["warnings"]
    assert covey("top", "--nodes", tmp_path, "-R", "-o", "json").exit_code == 0


@pytest.mark.parametrize("command", ["plan", "compile"])
def test_what_is_wrong_in_a_directory_is_said_with_file_document_and_field(manifests: Path, command: str) -> None:
    write(manifests / "bb.yaml", [inference("good", role("w")), inference("bad", role("w", 1, 2))])
    more = ("--nodes", NODES) if command == "plan" else ()
    result = covey(command, "-f", manifests, *more)
    assert result.exit_code == 2
    place = f"error: {manifests}/bb.yaml, document 1, items[1].spec.roles[0].minReplicas: "
    assert result.stderr.startswith(place)


def test_an_empty_file_in_a_directory_is_no_error_but_an_empty_directory_is(manifests: Path, tmp_path: Path) -> None:
    (manifests / "notes.yaml").write_text("# nothing yet\n")
    assert planned("-f", manifests) == ["a", "b", "c"]
    result = covey("plan", "-f", tmp_path, "--nodes", NODES)
    assert result.stderr == (
        f"error: {tmp_path}: is a directory without a .json, .yaml, .yml file; give one that has some, or use -R for those in it\n"
    )
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow/empty.yaml").write_text("")
    assert "hollow: holds no document" in covey("plan", "-f", tmp_path / "hollow", "--nodes", NODES).stderr


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    gang = write(tmp_path / "in.yaml", [inference("llm", role("w"))])
    nodes = write(tmp_path / "nodes.json", [node("n")]).read_text()
    assert plan("-f", gang, "--nodes", "-", stdin=nodes)["workloads"][0]["verdict"] == "Admitted"
    for arguments in (("-f", "-,-", "--nodes", NODES), ("-f", "-", "-f", "-"), ("-f", "-", "--nodes", "-")):
        result = covey("plan", *arguments, stdin=nodes)
        assert result.exit_code == 2
        assert "standard input is named twice, but can be read once; put one of them in a file" in result.stderr


def test_links_that_lead_round_end(manifests: Path) -> None:
    (manifests / "more/round").symlink_to(manifests)
    assert len(files_of(str(manifests), recursive=True)) == 4


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


def test_what_is_no_list_is_refused() -> None:
    result = covey("plan", "-f", "a\rb", "--nodes", NODES)
    assert (result.exit_code, "-f/--filename: is no comma list of paths" in result.stderr) == (2, True)
