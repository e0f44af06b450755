from dataclasses import replace
from pathlib import Path

import pytest

from localcluster import binaries


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COVEY_ASSETS", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def fill(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True)
    for name in names:
        (directory / name).touch()
    return directory


def test_given_programs_come_before_cached_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    everything = (*binaries.CONTROL_PLANE.programs, binaries.STAGES)
    cached = fill(binaries.CONTROL_PLANE.cache, *everything)
    given = fill(tmp_path / "given", "etcd")
    envtest = fill(tmp_path / "envtest", "etcd", "kubectl")
    monkeypatch.setenv("COVEY_ASSETS", str(given))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(envtest))

    found = binaries.find()

    assert found is not None
    assert found["etcd"].parent == given
    assert found["kubectl"].parent == envtest
    assert found["kwok"].parent == found.stages.parent == cached


def test_one_missing_program_is_missed() -> None:
    fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.programs[1:], binaries.STAGES)
    assert binaries.find() is None


def test_without_go_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.BuildError, match="COVEY_ASSETS"):
        binaries.ensure()


def test_stages_that_are_not_in_the_module_cache_are_missed_and_not_cached_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.programs)
    command(tmp_path / "go")  # it knows of no directory, as before `go mod download`
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.BuildError, match="The stages of kwok are not in"):
        binaries.ensure()
    assert not (target / binaries.STAGES).exists()


def command(path: Path) -> None:
    """A program that says nothing and succeeds."""
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_the_cache_is_named_by_what_decides_its_content(tmp_path: Path) -> None:
    module = binaries.CONTROL_PLANE
    copied = replace(module, folder=fill(tmp_path / module.folder.name))
    for name in ("go.mod", "go.sum"):
        (copied.folder / name).write_bytes((module.folder / name).read_bytes())
    assert copied.cache == module.cache

    with (copied.folder / "go.sum").open("a") as sums:
        sums.write("another sum\n")
    assert copied.cache != module.cache
    assert replace(module, also="another stage").cache != module.cache


@pytest.mark.parametrize("name", [name for module in binaries.TOOLS for name in module.programs])
def test_a_tool_that_was_given_is_taken(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = fill(tmp_path / "given", name)
    monkeypatch.setenv("COVEY_ASSETS", str(given))
    assert binaries.ensure_tool(name) == given / name


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.BuildError, match="helm must be built once and Go was not found"):
        binaries.ensure_tool("helm")
