"""Paths as kubectl takes them: directories, comma lists, standard input once."""

import os
from pathlib import Path

import pytest

from builders.files import EXAMPLES, cluster, covey, inference, node, plan, role, write
from covey.manifests.sources import InputError, files_of

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


@pytest.mark.parametrize("flag", ["-R", "--recursive"])
def test_directories_in_it_are_read_when_asked_for(manifests: Path, flag: str) -> None:
    assert planned("-f", manifests, flag) == ["a", "b", "c", "d"]


def test_paths_may_be_repeated_and_stand_in_comma_lists(manifests: Path) -> None:
    assert planned("-f", f"{manifests}/c.json,{manifests}/a.yml", "-f", manifests / "b.yaml") == ["c", "a", "b"]


def test_a_path_with_a_comma_stands_in_quotes(tmp_path: Path) -> None:
    write(tmp_path / "a,b.yaml", [inference("llm", role("w"))])
    assert planned("-f", f'"{tmp_path}/a,b.yaml"') == ["llm"]


def test_a_file_that_is_named_may_be_called_anything(tmp_path: Path) -> None:
    assert planned("-f", write(tmp_path / "manifest", [inference("llm", role("w"))])) == ["llm"]


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


def test_compile_reads_directories(manifests: Path) -> None:
    result = covey("compile", "-f", manifests, "-R", "-o", "tree")
    assert [f"Workload {name}\n" in result.stdout for name in "abcd"] == [True] * 4


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


@pytest.mark.parametrize("paths", ["", "a.yaml,", ",a.yaml", "a.yaml,,b.yaml"])
def test_an_empty_path_is_refused(paths: str) -> None:
    result = covey("plan", "-f", paths, "--nodes", NODES)
    assert (result.exit_code, "-f/--filename: names an empty path" in result.stderr) == (2, True)


def test_what_is_no_list_is_refused() -> None:
    result = covey("plan", "-f", "a\rb", "--nodes", NODES)
    assert (result.exit_code, "-f/--filename: is no comma list of paths" in result.stderr) == (2, True)


def test_links_that_lead_round_end(manifests: Path) -> None:
    (manifests / "more/round").symlink_to(manifests)
    assert len(files_of(str(manifests), recursive=True)) == 4


def test_a_link_to_nothing_is_said(manifests: Path) -> None:
    (manifests / "gone.yaml").symlink_to(manifests / "nothing")
    assert "gone.yaml: cannot be read: no such file" in covey("plan", "-f", manifests, "--nodes", NODES).stderr


def test_a_directory_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: str) -> object:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(InputError, match=f"{tmp_path}: cannot be read: permission denied; check the path"):
        files_of(str(tmp_path))
