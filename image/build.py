"""The steps of the Dockerfile, one command each; they need Python, pip and strip, and no container.

``wheel`` builds Covey's wheel, ``install`` fills an empty prefix and ``add`` puts the wheel into it, ``trim`` removes
what no running process reads, ``compile`` writes the byte-code, and ``stdlib`` writes that of Python's own modules,
which slim images come without. The byte-code is of the kind "unchecked hash" (PEP 552): Python never compares it with
the source, so that neither the time stamps of an image's layers nor a read-only root cost a start anything.
"""

from __future__ import annotations

import argparse
import py_compile
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trimming import files, put_records_right, strip_symbols, superfluous

#: What the image runs: the modules that a start imports are compiled in Python's own library, too.
PROCESSES: Final = (
    "covey.cli.main",
    "covey.cli.commands.processes",
    "covey.operator.process.main",
    "covey.scheduler.main",
)
#: Prints the files of all modules that the named ones import.
_IMPORTED: Final = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({file for module in sys.modules.values() if (file := getattr(module, "__file__", None))}), sep="\\n")
"""
_PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input")


def wheel(source: Path, out: Path) -> None:
    """Build Covey's wheel from a source tree, with the build backend of requirements/build.txt."""
    with tempfile.TemporaryDirectory() as backend:
        install(source / "requirements" / "build.txt", Path(backend, "venv"))
        pip = (*_PIP, "--python", str(_python(Path(backend, "venv"))))
        _run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out), str(source))


def install(requirements: Path, prefix: Path) -> None:
    """Make an empty virtual environment and install requirements into it: wheels only, each checked by its hash.

    What was installed, and from which wheel, is left in ``PREFIX.json``, pip's installation report.

    Raises:
        SystemExit: the prefix is not empty.
    """
    if prefix.exists() and any(prefix.iterdir()):
        raise SystemExit(f"{prefix} is not empty: name a new directory")
    venv.create(prefix, symlinks=True)
    report = ("--report", str(prefix.with_name(f"{prefix.name}.json")))
    _install(prefix, *report, "--require-hashes", "--only-binary=:all:", "--requirement", str(requirements))


def add(wheels: Path, prefix: Path) -> None:
    """Install the one wheel in a directory; all that it needs must be in the prefix already."""
    [ours] = wheels.glob("covey-*.whl")
    _install(prefix, "--no-deps", "--no-index", str(ours))
    _run(*_PIP, "--python", str(_python(prefix)), "check")


def trim(prefix: Path) -> None:
    """Remove what no running process reads, and debugging symbols; then put the packages' records right."""
    packages = site_packages(prefix)
    for path in superfluous(prefix, packages):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    strip_symbols(packages)
    put_records_right(packages)


def compile_packages(prefix: Path) -> None:
    """Compile every module of a prefix."""
    for path in files(site_packages(prefix)):
        if path.suffix == ".py":
            _compile(path, path)


def stdlib(prefix: Path, out: Path) -> None:
    """Compile those modules of Python's library that a prefix's processes import, to be laid over the library.

    Every module and extension that a start needs is imported by this, on the architecture that the image is for.
    """
    source = Path(sysconfig.get_path("stdlib")).resolve()
    for name in _run(str(_python(prefix)), "-c", _IMPORTED, *PROCESSES).splitlines():
        path = Path(name).resolve()
        if path.is_relative_to(source) and path.suffix == ".py":
            _compile(path, out / path.relative_to(source))


def site_packages(prefix: Path) -> Path:
    """Where a prefix keeps its packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(prefix)}))


def _compile(source: Path, place: Path) -> None:
    """Compile a module, into the cache directory beside ``place``."""
    target = place.parent / "__pycache__" / f"{place.stem}.{sys.implementation.cache_tag}.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(target), doraise=True, invalidation_mode=mode)


def _python(prefix: Path) -> Path:
    return prefix / "bin" / "python"


def _install(prefix: Path, *arguments: str) -> None:
    _run(*_PIP, "--python", str(_python(prefix)), "install", "--quiet", "--no-compile", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


#: Step → function and the names of its arguments, all of them paths.
STEPS: Final[dict[str, tuple[Callable[..., None], tuple[str, ...]]]] = {
    "wheel": (wheel, ("source", "out")),
    "install": (install, ("requirements", "prefix")),
    "add": (add, ("wheels", "prefix")),
    "trim": (trim, ("prefix",)),
    "compile": (compile_packages, ("prefix",)),
    "stdlib": (stdlib, ("prefix", "out")),
}


def main() -> None:
    """Run the step that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    for name, (function, arguments) in STEPS.items():
        step = steps.add_parser(name, help=(function.__doc__ or "").splitlines()[0])
        for argument in arguments:
            step.add_argument(argument, type=Path)
    given = vars(parser.parse_args())
    function, _ = STEPS[given.pop("step")]
    function(**{name: path.absolute() for name, path in given.items()})


if __name__ == "__main__":
    main()
