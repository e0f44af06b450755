"""What is in the image, and what is not."""

import base64
import csv
import hashlib
import importlib.metadata
import re
from pathlib import Path

import imaged
from covey import __version__
from imaging import ROOT, Image, ignored, instructions

#: Of docs/decisions/0007-image.md: Python, everything that Covey needs, and Covey, uncompressed.
BUDGET = 120_000_000


def packages(image: Image) -> Path:
    return next(image.prefix.glob("lib/python*/site-packages"))


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements" / "run.txt").read_text().splitlines()
    return dict(match.groups() for line in lines if (match := re.match(r"([a-z0-9-]+)==(\S+)", line)))  # type: ignore[misc]


def installed(image: Image) -> dict[str, str]:
    found = importlib.metadata.distributions(path=[str(packages(image))])
    return {re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version for each in found}


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
    downloads = [each["download_info"] for each in image.report]
    assert len(downloads) == len(pins())
    for download in downloads:
        assert isinstance(download, dict)
        assert download["url"].endswith(".whl")
        assert f"--hash=sha256:{download['archive_info']['hashes']['sha256']}" in text


def test_covey_s_wheel_has_every_file_of_the_package(image: Image) -> None:
    source = ROOT / "operator" / "covey"
    expected = {path.relative_to(source) for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    there = packages(image) / "covey"
    assert {
        path.relative_to(there) for path in there.rglob("*") if path.is_file() and path.suffix != ".pyc"
    } == expected


def test_every_module_is_compiled_and_never_compared_with_its_source(image: Image) -> None:
    modules = list(packages(image).rglob("*.py"))
    assert len(modules) > 500
    for module in modules:
        [cached] = (module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc")
        # PEP 552: bit 0 says that a hash of the source follows, bit 1 that it is to be checked.
        assert int.from_bytes(cached.read_bytes()[4:8], "little") == 0b01, cached


def test_what_no_process_reads_is_gone_and_the_records_say_so(image: Image) -> None:
    site = packages(image)
    assert not [path for path in site.rglob("*") if path.name == "tests" or path.suffix in {".pyi", ".h", ".pyx", ".a"}]
    assert {path.name for path in (image.prefix / "bin").iterdir()} >= {"covey", "kubectl-covey", "python"}
    assert not [path for path in (image.prefix / "bin").iterdir() if path.name.startswith(("pip", "activate", "kopf"))]
    for record in site.glob("*.dist-info/RECORD"):
        for name, digest, size in csv.reader(record.read_text().splitlines()):
            body = (site / name).read_bytes()
            if digest:
                expected = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={expected}", str(len(body))), name


def test_the_configuration(image: Image) -> None:
    assert image.entrypoint == ("covey",)
    assert image.user == "65532:65532"
    assert image.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    prefix = "org.opencontainers.image."
    assert {image.labels[prefix + "version"], image.labels[prefix + "revision"]} == {"1.2.3", "abc"}
    assert {"title", "description", "licenses", "source", "created"} <= {
        key.removeprefix(prefix) for key in image.labels
    }


def test_nothing_in_the_dockerfile_is_for_one_architecture() -> None:
    text = " ".join(f"{name} {value}" for name, value in instructions())
    assert not re.findall(r"amd64|arm64|x86_64|aarch64|--platform|@sha256", text)


def test_only_what_is_copied_reaches_the_build() -> None:
    for path in ("image/build.py", "requirements/run.txt", "operator/covey/api/crds.py", "LICENSE"):
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
