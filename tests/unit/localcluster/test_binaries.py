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


@pytest.mark.parametrize("release", [name for name in binaries.RELEASES if name != binaries.KUBERNETES])
def test_another_release_has_its_own_servers_and_the_same_etcd(release: str) -> None:
    module = binaries.RELEASES[release]
    fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.files)
    assert binaries.find(release) is None
    fill(module.cache, *module.files)
    found = binaries.find(release)
    assert found is not None
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        assert found[name].parent == module.cache
    for name in ("etcd", "kwok", "kubectl"):
        assert found[name].parent == binaries.CONTROL_PLANE.cache


def test_a_given_server_is_only_taken_for_its_own_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = binaries.RELEASES["1.36"]
    for each in (binaries.CONTROL_PLANE, module):
        fill(each.cache, *each.files)
    given = fill(tmp_path / "given", "kube-apiserver")
    older = fill(given / "kubernetes-1.36", "kube-scheduler")
    monkeypatch.setenv("COVEY_ASSETS", str(given))
    found = binaries.find("1.36")
    assert found is not None
    assert found["kube-apiserver"].parent == module.cache
    assert found["kube-scheduler"].parent == older


def test_volcano_is_there_when_it_is_asked_for() -> None:
    fill(binaries.CONTROL_PLANE.cache, *binaries.CONTROL_PLANE.files)
    assert binaries.find() is not None
    assert binaries.find(volcano=True) is None
    fill(binaries.VOLCANO.cache, *binaries.VOLCANO.files)
    found = binaries.find(volcano=True)
    assert found is not None
    assert found[binaries.VOLCANO_CRDS].parent == found["vc-scheduler"].parent == binaries.VOLCANO.cache


def test_only_what_is_missing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A go command that makes whatever it is asked for, and keeps a list of it."""
    told = tmp_path / "told"
    go = tmp_path / "go"
    go.write_text(
        f"""#!/bin/sh
echo "$(basename "$PWD") $*" >> {told}
while [ "$1" != "-o" ]; do shift; done
shift; into="$1"; shift
for package; do : > "$into/$(basename "$package")"; done
"""
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fill(binaries.CONTROL_PLANE.cache, *(name for name in binaries.CONTROL_PLANE.files if not name.startswith("kube-")))
    found = binaries.ensure("1.36", report=False)
    assert found["kube-apiserver"].parent == binaries.RELEASES["1.36"].cache
    assert [line.split()[0] for line in told.read_text().splitlines()] == ["kubernetes-1.36"]
    binaries.ensure("1.36", report=False)
    [first, second] = binaries.ensure_named(["kubernetes-1.35", "kubernetes-1.30"], report=False)
    assert (first, second) == (binaries.RELEASES["1.35"].cache, binaries.RELEASES["1.30"].cache)
    assert len(told.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    "module", [*binaries.RELEASES.values(), binaries.VOLCANO], ids=lambda module: module.folder.name
)
def test_a_release_is_pinned_to_the_version_that_it_says(module: binaries.Module) -> None:
    pins = (module.folder / "go.mod").read_text()
    for flag in module.ldflags.split():
        if "gitVersion=" in flag:
            assert f"k8s.io/kubernetes {flag.partition('gitVersion=')[2]}\n" in pins
    for package in (package for step in module.steps for package in step.programs.values()):
        assert f"\t{package}\n" in pins


@pytest.mark.parametrize("name", ["1.29", ""])
def test_a_release_that_there_is_not_is_named(name: str) -> None:
    with pytest.raises(binaries.BuildError, match=r"there are 1\.37, 1\.36, 1\.35, 1\.30"):
        binaries.ensure(name)


def test_a_name_that_there_is_not_is_named() -> None:
    with pytest.raises(binaries.BuildError, match=r"etcd is not known; .* volcano-1\.14"):
        binaries.ensure_named(["etcd"])


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
    with pytest.raises(binaries.BuildError, match=r"The parts of kwok-stages\.yaml are not in"):
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
