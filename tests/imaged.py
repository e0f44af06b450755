"""The processes of the image on a local control plane: what tests and benchmarks start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

import imaging
from confinement import confined
from imaging import Image
from localcluster import Cluster, Process
from localcluster.cluster import NAMESPACE
from localcluster.probe import answers
from localcluster.programs import Program, builder


@contextmanager
def built() -> Iterator[Image]:
    """The image below a temporary directory that everybody may read and nobody may write; removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="covey-image-"))
    try:
        image = imaging.build(directory, {"VERSION": "1.2.3", "REVISION": "abc"})
        directory.chmod(0o755)
        _mode(directory, "a-w")
        yield image
    finally:
        _mode(directory, "u+w")
        shutil.rmtree(directory)


def _mode(directory: Path, change: str) -> None:
    subprocess.run(["chmod", "-R", change, str(directory)], check=True)


@contextmanager
def readable_directory() -> Iterator[Path]:
    """A directory for files that the image's user reads, as it would a mounted Secret."""
    with tempfile.TemporaryDirectory(prefix="covey-mount-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def process(cluster: Cluster, image: Image, program: Program, mount: Path, *arguments: str) -> Process:
    """One of the two processes, confined, under its own service account; not started yet.

    Args:
        cluster: With Covey's RBAC rules in it.
        image: Where the process comes from.
        program: ``operator`` or ``scheduler``.
        mount: A directory that the image's user can read.
        arguments: More flags; they win over those of a local cluster.
    """
    name = f"covey-{program}"
    kubeconfig = _portable(cluster.service_account_kubeconfig(NAMESPACE, name), mount)
    usual = builder(program, cluster.directory, kubeconfig, name, arguments)()
    urls = {"health_url": usual.health_url, "metrics_url": usual.metrics_url}
    if program == "scheduler":
        urls["url"] = usual.url
    return Process(
        name,
        confined(image, program, *usual.command[usual.command.index(program) + 1 :]),
        directory=cluster.directory,
        ready=lambda: answers(f"{usual.health_url}/readyz"),
        urls=urls,
    )


def _portable(kubeconfig: Path, mount: Path) -> Path:
    """A copy of a kubeconfig with its authority's certificate beside it, both readable by everybody."""
    content = yaml.safe_load(kubeconfig.read_text())
    target = mount / kubeconfig.name
    for each in content["clusters"]:
        authority = Path(each["cluster"]["certificate-authority"])
        copy = mount / authority.name
        copy.write_bytes(authority.read_bytes())
        copy.chmod(0o644)
        each["cluster"]["certificate-authority"] = str(copy)
    target.write_text(json.dumps(content))
    target.chmod(0o644)
    return target


def sizes(image: Image) -> dict[str, int]:
    """Bytes of all files that the image adds to its base, by package; that of Python's library is byte-code alone."""
    packages = next(image.prefix.glob("lib/python*/site-packages"))
    found: dict[str, int] = {}
    for parent, _, names in os.walk(image.prefix):
        for name in names:
            path = Path(parent, name)
            inner = path.relative_to(packages).parts if path.is_relative_to(packages) else ("(prefix)",)
            key = inner[0] if len(inner) > 1 or inner[0] == "(prefix)" else "(single modules)"
            found[key] = found.get(key, 0) + path.lstat().st_size
    library = image.root / "usr" / "local" / "lib"
    found["(stdlib byte-code)"] = sum(path.stat().st_size for path in library.rglob("*.pyc"))
    return found


def interpreter_size(image: Image) -> int:
    """Bytes of Python itself, without pip and our byte-code, as base images have it: all symbols stripped."""
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name, "python")
        left_out = shutil.ignore_patterns("*.pyc", "site-packages")
        shutil.copytree(image.root / "usr" / "local", copy, ignore=left_out, symlinks=True)
        libraries = [str(path) for path in copy.rglob("*.so*") if not path.is_symlink()]
        _mode(copy, "u+w")
        subprocess.run(["strip", "--strip-all", *libraries], check=True)
        return sum(path.lstat().st_size for path in copy.rglob("*") if path.is_file())
