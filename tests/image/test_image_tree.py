"""What is in the image, and what is not."""

import base64
import csv
import hashlib
import importlib.metadata
import re
import struct
import subprocess
from pathlib import Path

import imaged
from covey import __version__
from imaging import ROOT, Image, ignored, instructions

#: Of docs/decisions/0007-image.md: Python, everything that Covey needs, and Covey, uncompressed.
BUDGET = 230_000_000
#: Imports all of Covey, and prints the sources of all that this brings; modules that are part of the interpreter have none.
_IMPORT_ALL = """
import importlib, pkgutil, sys, covey
for module in pkgutil.walk_packages(covey.__path__, "covey."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if error.name != "rich":
            raise
found = {module.__file__ for module in sys.modules.values() if getattr(module, "__cached__", None)}
print(*sorted(found), sep="\\n")
"""


def packages(image: Image) -> Path:
    return next(image.prefix.glob("lib/python*/site-packages"))


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements" / "run.txt").read_text().splitlines()
    return dict(match.groups() for line in lines if (match := re.match(r"([a-z0-9-]+)==(\S+)", line)))  # type: ignore[misc]


def installed(image: Image) -> dict[str, str]:
    found = importlib.metadata.distributions(path=[str(packages(image))])
    return {normal(each.metadata["Name"]): each.version for each in found}


def normal(name: str) -> str:
    """As PEP 503 has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_fits_the_budget(image: Image) -> None:
    parts = imaged.sizes(image)
    python = imaged.interpreter_size(image)
    total = sum(parts.values()) + python
    largest = sorted(parts.items(), key=lambda part: -part[1])[:8]
    assert total <= BUDGET, f"{total / 1e6:.1f} MB with {python / 1e6:.1f} MB of Python; the largest: {largest}"


def test_it_has_the_pinned_requirements_and_covey_and_nothing_else(image: Image) -> None:
    assert installed(image) == {**pins(), "covey": __version__}


def test_every_requirement_came_as_a_wheel_with_a_pinned_hash(image: Image) -> None:
    text = (ROOT / "requirements" / "run.txt").read_text()
    downloads = {normal(each["metadata"]["name"]): each["download_info"] for each in image.report}
    for name in installed(image).keys() - {"covey"}:
        download = downloads[name]
        assert download["url"].endswith(".whl")
        assert f"--hash=sha256:{download['archive_info']['hashes']['sha256']}" in text


def test_covey_s_wheel_has_every_file_of_the_package(image: Image) -> None:
    source = ROOT / "operator" / "covey"
    expected = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    there = packages(image) / "covey"
    assert {
        path.relative_to(there) for path in there.rglob("*") if path.is_file() and path.suffix != ".pyc"
    } == expected


def test_all_that_is_imported_has_fresh_byte_code(image: Image) -> None:
    command = [str(image.program("python")), "-c", _IMPORT_ALL]
    done = subprocess.run(command, env=image.variables, capture_output=True, text=True, check=True)
    imported = [Path(line) for line in done.stdout.splitlines()]
    assert {"covey", "kopf", "kubernetes", "numpy", "asyncio"} <= {path.parent.name for path in imported}
    for module in imported:
        [cached] = (module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc")
        # PEP 552: no flags, then the source's time and size.
        flags, seconds, size = struct.unpack("<III", cached.read_bytes()[4:16])
        assert (flags, seconds, size) == (0, int(module.stat().st_mtime), module.stat().st_size), cached


def test_every_package_is_as_its_wheel_has_it(image: Image) -> None:
    site = packages(image)
    for record in site.glob("*.dist-info/RECORD"):
        for name, digest, size in csv.reader(record.read_text().splitlines()):
            body = (site / name).read_bytes()
            if digest:
                expected = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={expected}", str(len(body))), name


def test_commands_are_there_and_no_installer(image: Image) -> None:
    commands = {path.name for path in (image.prefix / "bin").iterdir()}
    assert commands >= {"covey", "kubectl-covey", "python"}
    assert not [name for name in commands if name.startswith("pip")]


def test_the_configuration(image: Image) -> None:
    assert image.entrypoint == ("covey",)
    assert image.user == "65532:65532"
    assert image.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    prefix = "org.opencontainers.image."
    assert {image.labels[prefix + "version"], image.labels[prefix + "revision"]} == {"1.2.3", "abc"}
    assert {"title", "description", "licenses", "source", "created"} <= {
        key.removeprefix(prefix) for key in image.labels
    }


def test_one_argument_names_everything_that_it_is_built_of(image: Image) -> None:
    """So that one digest is enough; a frontend would be an image too."""
    assert {value.split()[0] for name, value in instructions() if name == "FROM"} == {"${BASE}"}
    assert "# syntax" not in (ROOT / "Dockerfile").read_text()
    assert image.labels["org.opencontainers.image.base.name"].startswith("python:3.11-")


def test_nothing_in_the_dockerfile_is_for_one_architecture() -> None:
    text = " ".join(f"{name} {value}" for name, value in instructions())
    assert not re.findall(r"amd64|arm64|x86_64|aarch64|--platform", text)


def test_the_base_is_named_by_digest(image: Image) -> None:
    """Of the index of all architectures: a tag may be moved."""
    named = image.labels["org.opencontainers.image.base.name"]
    assert re.fullmatch(r"python:3\.11-slim-trixie@sha256:[0-9a-f]{64}", named)


def test_only_what_is_copied_reaches_the_build() -> None:
    for path in ("requirements/run.txt", "operator/covey/api/crds.py", "LICENSE"):
        assert not ignored(path), path
    for path in (
        ".git/config",
        ".venv/x",
        "tests/imaged.py",
        "operator/covey/__pycache__/x.pyc",
        "operator/x.py",
        "a.kubeconfig",
    ):
        assert ignored(path), path
