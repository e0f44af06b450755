"""The Dockerfile carried out without a container engine: same instructions, same order, below a directory.

Paths that are absolute in the image lie below the directory, which all stages share. ``COPY`` gives a stage only what
the Dockerfile names and ``.dockerignore`` lets through, so that a file that was forgotten is missed here, too. The
base image is a copy of the Python that runs this, as slim images have it: with pip, and with no byte-code.
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
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "test", "tests", "idle_test", "config-*", "site-packages", "*.a")


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
        """What pip installed, and from which files."""
        found: list[dict[str, Any]] = json.loads(self.prefix.with_name("covey.json").read_text())["install"]
        return found

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


def build(root: Path, arguments: Mapping[str, str] | None = None, wheels: Path = WHEELS) -> Image:
    """Carry out the Dockerfile below an empty directory.

    Args:
        root: The directory.
        arguments: As ``--build-arg``.
        wheels: Where pip finds packages; it asks no index.

    Raises:
        ImageError: a step failed, or the wheels are missing.
    """
    if not wheels.is_dir():
        raise ImageError(f"{wheels} is missing: run `make wheels`, which downloads the image's requirements")
    _install_python(root / "usr" / "local")
    running = _Build(Image(root), {"PYTHON": _PYTHON.removeprefix("python"), **(arguments or {})}, wheels)
    for name, value in instructions():
        running.carry_out(name, value)
    shutil.rmtree(root / "cache", ignore_errors=True)
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


class _Build:
    """The state between two instructions."""

    def __init__(self, image: Image, given: dict[str, str], wheels: Path) -> None:
        self.image = image
        self._given = given
        self._known: dict[str, str] = {}
        self._directory = image.root
        self._variables = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "LD_LIBRARY_PATH": str(image.root / "usr" / "local" / "lib"),
            # Not into the base, which the last stage has without.
            "PYTHONPYCACHEPREFIX": str(image.root / "cache"),
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

    def _from(self, _: str) -> None:
        self.image = Image(self.image.root)
        self._directory = self.image.root

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
        *options, place = shlex.split(self._filled(value))
        between = [each for each in options if each.startswith("--from=")]
        for source in (each for each in options if not each.startswith("--")):
            target = self._inside(place)
            if between:
                _merge(self._inside(source), target)
            elif (ROOT / source).is_dir():
                _merge(ROOT / source, target, below=source.rstrip("/"))
            else:
                _take(ROOT / source, target / source)

    def _run(self, value: str) -> None:
        for step in self._filled(value).split("&&"):
            program, *arguments = shlex.split(step)
            if program != "python":
                raise ImageError(f"Dockerfile: {step.strip()!r} is no step of image/build.py")
            command = [
                str(self._inside("/usr/local/bin/python")),
                *(str(self._inside(a)) if a.startswith("/") else a for a in arguments),
            ]
            # The machine's environment without what would let another tree's modules in.
            kept = {key: text for key, text in os.environ.items() if not key.startswith(("PYTHON", "PIP_"))}
            done = subprocess.run(
                command, cwd=self._directory, env=kept | self.image.environment | self._variables,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise ImageError(f"Dockerfile: `{step.strip()}` failed: {done.stdout.strip()[-2000:]}")

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


def _merge(source: Path, target: Path, *, below: str | None = None) -> None:
    """Copy a directory's content into another; with ``below``, only what ``.dockerignore`` lets through."""
    if source == target:  # all stages share one root
        return
    for path in sorted(source.rglob("*")):
        inner = path.relative_to(source)
        if path.is_file() and (below is None or not ignored(f"{below}/{inner.as_posix()}")):
            (target / inner).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inner)


def _take(source: Path, target: Path) -> None:
    if not source.is_file() or ignored(source.name):
        raise ImageError(f"Dockerfile: {source.name} is not there, or .dockerignore keeps it out")
    shutil.copyfile(source, target)
