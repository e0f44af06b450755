"""What ``make dist`` makes of a release."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import dist
from covey import __version__

URL = "https://releases.example.com/covey/v1/"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    dist.build(directory, URL)
    return directory


@pytest.fixture
def manifest(built: Path) -> Any:
    return yaml.safe_load((built / "covey.krew.yaml").read_text())


def test_the_wheel_has_the_files_of_the_page(built: Path) -> None:
    names = zipfile.ZipFile(built / f"covey-{__version__}-py3-none-any.whl").namelist()
    assert {"covey/ui/page/index.html", "covey/ui/page/main.js", "covey/ui/page/palette.css"} <= set(names)


def test_every_file_has_its_checksum(built: Path) -> None:
    lines = dict(reversed(line.split("  ")) for line in (built / "SHA256SUMS").read_text().splitlines())
    assert lines == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in built.iterdir()
        if path.name != "SHA256SUMS"
    }
    assert f"covey-{__version__}.tgz" in lines, "the chart"


def test_the_manifest_keeps_the_rules_of_krews_index(built: Path, manifest: Any) -> None:
    """``ValidatePlugin`` of krew's ``internal/index/validation``."""
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert manifest["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"])
    assert spec["shortDescription"]
    assert not re.search(r"[\r\n]", spec["shortDescription"])
    [archive] = built.glob("kubectl-covey-*.tar.gz")
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert spec["platforms"]
    for platform in spec["platforms"]:
        assert platform["uri"] == f"{URL}{archive.name}"
        assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
        assert platform["bin"] in names
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}


def test_the_plugin_has_all_that_a_terminal_needs_pinned_once(built: Path, tmp_path: Path) -> None:
    [archive] = built.glob("kubectl-covey-*.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    assert (tmp_path / "kubectl-covey").stat().st_mode & 0o111
    subprocess.run(["sh", "-n", tmp_path / "kubectl-covey"], check=True)
    text = (tmp_path / "requirements.txt").read_text()
    pinned = re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
    assert {"kopf", "rich", "pygments"} <= set(pinned)
    assert len(pinned) == len(set(pinned))
    assert all("--hash=sha256:" in text.partition(f"\n{name}==")[2].partition("\n\n")[0] for name in pinned[1:])


def test_an_address_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, dist.__file__, ""], capture_output=True, text=True, check=False, env={"PYTHONPATH": "dev"}
    )
    assert done.returncode == 2
    assert "RELEASE_URL: nothing is no https address" in done.stderr
