"""The Dockerfile carried out without a container engine: same instructions, same order, below a directory.

Paths that are absolute in the image lie below a directory, where one stage is made after the other; each begins with
a copy of the Python that runs this, as slim images have it: with pip, and with no byte-code. ``COPY`` gives a stage only
what the Dockerfile names and ``.dockerignore`` lets through, so that a file that was forgotten is missed here, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pip

ROOT = Path(__file__).resolve().parent.parent
#: Where `make wheels` puts every wheel of requirements/run.txt and requirements/build.txt.
WHEELS = ROOT / ".venv" / "wheels"
_LINE = re.compile(r"^([A-Z]+)\s+(.*)$", re.DOTALL)
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Of Python's library: what the base images leave out, and what lies there for this machine only.
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "test", "tests", "idle_test", "config-*", "site-packages", "*.a", "EXTERNALLY-MANAGED"
)


class ImageError(Exception):
    """The Dockerfile says something that is not understood here, or a step of it failed."""


@dataclass
class Image:
    """What the Dockerfile makes.

    Attributes:
        root: The directory that stands for the image's root.
        environment: Of every process in it.
        labels, user, entrypoint: As in the image's configuration.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: tuple[str, ...] = ()

    @property
    def prefix(self) -> Path:
        """Covey and all that it needs, a virtual environment."""
        return self.root / "opt" / "covey"

    @property
    def report(self) -> list[dict[str, Any]]:
        """The packages that pip installed in any stage, and from which files."""
        reports = sorted(self.root.parent.glob("pip-*.json"))
        return [each for report in reports for each in json.loads(report.read_text())["install"]]

    def program(self, name: str = "covey") -> Path:
        """A command of the prefix."""
        return self.prefix / "bin" / name

    @property
    def variables(self) -> dict[str, str]:
        """The environment as it is below the directory."""
        path = ":".join(self._place(each) for each in self.environment.get("PATH", "").split(":"))
        return {**self.environment, "PATH": path, "LD_LIBRARY_PATH": str(self.root / "usr" / "local" / "lib")}

    def _place(self, directory: str) -> str:
        below = self.root / directory.lstrip("/")
        return str(below) if below.is_dir() else directory


def instructions(dockerfile: Path = ROOT / "Dockerfile") -> list[tuple[str, str]]:
    """The instructions in order, comments left out and continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(match[1], match[2].strip()) for line in whole.splitlines() if (match := _LINE.match(line))]


def build(directory: Path, arguments: Mapping[str, str] | None = None, wheels: Path = WHEELS) -> Image:
    """Carry out the Dockerfile in an empty directory; the image lies in its ``root``.

    Args:
        directory: The directory.
        arguments: As ``--build-arg``.
        wheels: Where pip finds packages; it asks no index.

    Raises:
        ImageError: a step failed, or the wheels are missing.
    """
    if not wheels.is_dir():
        raise ImageError(f"{wheels} is missing: run `make wheels`, which downloads the image's requirements")
    running = _Build(directory, dict(arguments or {}), wheels)
    for name, value in instructions():
        running.carry_out(name, value)
    for stage in running.stages.values():
        shutil.rmtree(stage)
    return running.image


def _install_python(place: Path) -> None:
    """Copy this Python as a base image has it: interpreter, library without tests and byte-code, and pip."""
    base = Path(sys.base_prefix)
    library = place / "lib" / _PYTHON
    shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=_LEFT_OUT)
    shutil.copytree(Path(pip.__file__).parent, library / "site-packages" / "pip", ignore=_LEFT_OUT)
    for shared in (base / "lib").glob("libpython3*.so*"):
        shutil.copy2(shared, place / "lib", follow_symlinks=False)
    (place / "bin").mkdir()
    interpreter = base / "bin" / _PYTHON
    shutil.copy2(interpreter.resolve(), place / "bin" / _PYTHON)
    for name in ("python", "python3"):
        (place / "bin" / name).symlink_to(_PYTHON)
    program = place / "bin" / "pip"
    # By its path: Debian's Python has no site-packages outside a virtual environment.
    program.write_text(f'#!/bin/sh\nexec python {library}/site-packages/pip "$@"\n')
    program.chmod(0o755)


class _Build:
    """The state between two instructions.

    Attributes:
        image: What the current stage has made.
        stages: The roots of those before it that have a name.
    """

    def __init__(self, directory: Path, given: dict[str, str], wheels: Path) -> None:
        self.image = Image(directory / "root")
        self.stages: dict[str, Path] = {}
        self._name = ""
        self._given = given
        self._known: dict[str, str] = {}
        self._directory = self.image.root
        self._runs = 0
        # The machine's environment without what would let another tree's modules in.
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
        self._variables = kept | {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "LD_LIBRARY_PATH": str(self.image.root / "usr" / "local" / "lib"),
            "PATH": f"{self.image.root}/usr/local/bin:{os.environ['PATH']}",
        }

    def carry_out(self, name: str, value: str) -> None:
        """One instruction."""
        steps = {
            "ARG": self._arg, "FROM": self._from, "ENV": self._env, "LABEL": self._label, "WORKDIR": self._workdir,
            "COPY": self._copy, "RUN": self._run, "USER": self._user, "ENTRYPOINT": self._entrypoint,
        }  # fmt: skip
        if name not in steps:
            raise ImageError(f"Dockerfile: no rule for {name} in {__file__}; add one")
        steps[name](value)

    def _arg(self, value: str) -> None:
        name, _, default = value.partition("=")
        self._known[name] = self._given.get(name, default or self._known.get(name, ""))

    def _from(self, value: str) -> None:
        root = self.image.root
        if root.exists():
            self.stages[self._name] = root.rename(root.with_name(f"stage-{self._name}"))
        _, _, self._name = value.partition(" AS ")
        _install_python(root / "usr" / "local")
        self.image, self._directory = Image(root), root

    def _env(self, value: str) -> None:
        self.image.environment |= self._pairs(value)

    def _label(self, value: str) -> None:
        self.image.labels |= self._pairs(value)

    def _user(self, value: str) -> None:
        self.image.user = value

    def _entrypoint(self, value: str) -> None:
        self.image.entrypoint = tuple(json.loads(value))

    def _workdir(self, value: str) -> None:
        self._directory = self._inside(value)
        self._directory.mkdir(parents=True, exist_ok=True)

    def _copy(self, value: str) -> None:
        first, *rest = shlex.split(value)
        if first.startswith("--from="):
            source, place = rest
            stage = self.stages[first.removeprefix("--from=")]
            shutil.copytree(stage / source.lstrip("/"), self._inside(place), symlinks=True)
            return
        *sources, place = first, *rest
        for source in sources:
            if (ROOT / source).is_dir():
                _merge(source.rstrip("/"), self._inside(place))
            else:
                _take(ROOT / source, self._inside(place) / source)

    def _run(self, value: str) -> None:
        self._runs += 1
        command = re.sub(r"(?<!\S)/", f"{self.image.root}/", value)
        report = {"PIP_REPORT": str(self.image.root.with_name(f"pip-{self._runs}.json"))}
        done = subprocess.run(
            ["sh", "-c", command], cwd=self._directory, env=self.image.environment | self._variables | report,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ImageError(f"Dockerfile: `{value}` failed: {done.stdout.strip()[-2000:]}")

    def _pairs(self, value: str) -> dict[str, str]:
        return dict(each.split("=", 1) for each in shlex.split(self._filled(value)))  # type: ignore[misc] # two parts

    def _filled(self, value: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda match: self._known.get(match[1], ""), value)

    def _inside(self, path: str) -> Path:
        return self.image.root / path.lstrip("/") if path.startswith("/") else self._directory / path


def ignored(path: str) -> bool:
    """Whether ``.dockerignore`` keeps a file of the tree, named from its root, out of the build. The last rule wins."""
    result = False
    parents = [path, *map(str, Path(path).parents)]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.strip().removeprefix("!").replace("**/", "*")
        if rule and not rule.startswith("#") and any(fnmatch(each, rule) for each in parents if each != "."):
            result = not line.startswith("!")
    return result


def _merge(name: str, target: Path) -> None:
    """Copy what ``.dockerignore`` lets through of a directory of the tree."""
    for path in sorted((ROOT / name).rglob("*")):
        inner = path.relative_to(ROOT / name)
        if path.is_file() and not ignored(f"{name}/{inner.as_posix()}"):
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inner)


def _take(source: Path, target: Path) -> None:
    if not source.is_file() or ignored(source.name):
        raise ImageError(f"Dockerfile: {source.name} is not there, or .dockerignore keeps it out")
    shutil.copyfile(source, target)
