"""What an image can do without: rules for files, debugging symbols, and the packages' records of what is there."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Sources and headers of extension modules, type stubs, static libraries: read by compilers and type checkers only.
_SOURCES: Final = {".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"}
#: Directories that only the developers of an installed package need, at any depth.
_DEVELOPMENT: Final = {"tests", "_pyinstaller"}
#: Parts of numpy that build other packages; it imports none of them.
_BUILDERS: Final = {"numpy/distutils", "numpy/f2py"}
#: Extension modules that only tests load.
_TEST_MODULE: Final = re.compile(r"_(\w+_tests|testcapi|simd)\..*so")
#: All that stays in ``bin``; the rest are commands of libraries and scripts for shells.
_COMMANDS: Final = re.compile(r"python[\d.]*|covey|kubectl-covey")


def superfluous(prefix: Path, packages: Path) -> list[Path]:
    """Files and directories of a prefix that no running process reads; none lies in another."""
    found = [path for path in (prefix / "bin").iterdir() if not _COMMANDS.fullmatch(path.name)]
    found += [path for path in [prefix / "include"] if path.exists()]
    for parent, directories, names in os.walk(packages):
        gone = [name for name in directories if _is_development(Path(parent, name), packages)]
        directories[:] = [name for name in directories if name not in gone]
        gone += [name for name in names if Path(name).suffix in _SOURCES or _TEST_MODULE.fullmatch(name)]
        found += [Path(parent, name) for name in gone]
    return found


def _is_development(directory: Path, packages: Path) -> bool:
    return directory.name in _DEVELOPMENT or directory.relative_to(packages).as_posix() in _BUILDERS


def strip_symbols(packages: Path) -> None:
    """Remove debugging symbols from extension modules.

    Packages that bring a ``NAME.libs`` are left alone: auditwheel has rewritten their libraries to find each other,
    and strip makes such files unloadable ("ELF load command address/offset not page-aligned").
    """
    for path in files(packages):
        package = path.relative_to(packages).parts[0]
        rewritten = package.endswith(".libs") or (packages / f"{package}.libs").exists()
        if ".so" in path.suffixes and not rewritten and b".debug_info" in path.read_bytes():
            subprocess.run(["strip", "--strip-debug", str(path)], check=True)


def put_records_right(packages: Path) -> None:
    """Let each package's RECORD list the files that are there, as they are: scanners compare the two."""
    for record in packages.glob("*.dist-info/RECORD"):
        rows = csv.reader(record.read_text(encoding="utf-8").splitlines())
        kept = [_row(name, digest, packages / name) for name, digest, _ in rows if (packages / name).is_file()]
        with record.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(kept)


def _row(name: str, digest: str, path: Path) -> tuple[str, str, str]:
    """A line as PEP 376 has it; those without a digest, of RECORD itself, stay so."""
    if not digest:
        return name, "", ""
    body = path.read_bytes()
    now = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
    return name, f"sha256={now}", str(len(body))


def files(directory: Path) -> Iterator[Path]:
    """Every regular file below a directory, in a fixed order; symbolic links are left out."""
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if not path.is_symlink():
                yield path
